"""Write the pronunciation table: CMUdict, and what misaki's gold dictionary has beyond it, in one phone set.

Usage: python recipes/pronunciations/table.py CMUDICT MISAKI_GOLD OUTPUT
    CMUDICT: cmudict.dict of the package `cmudict` (data: BSD-2-Clause)
    MISAKI_GOLD: us_gold.json of `misaki` (Apache-2.0)
A line is `word<TAB>phones`, phones with spaces between, words in small letters, sorted. A `*` follows the phones of
words that have others in other contexts: these are in `heteronyms.tsv` by use, or stay letters.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from pathlib import Path

from marstts.text.phones import CHARACTERS

MISAKI = dict(
    symbol.split("=")
    for symbol in """
    A=EY I=AY W=AW Y=OY O=OW Q=OW ʧ=CH ʤ=JH ɑ=AA a=AE æ=AE ɛ=EH ɪ=IH i=IY ɔ=AO ʊ=UH u=UW ʌ=AH ə=AH ᵊ=AH ɐ=AH ᵻ=IH
    p=P b=B t=T ɾ=T T=T ʔ=T d=D k=K ɡ=G f=F v=V θ=TH ð=DH s=S z=Z ʃ=SH ʒ=ZH h=HH m=M n=N ŋ=NG l=L ɹ=R j=Y w=W x=K
    """.split()  # noqa: SIM905
)
"""misaki's symbols and the phones of ARPAbet; the rhotic vowels `ɜɹ`, `əɹ` are ER."""

VOWELS = frozenset(phone[:-1] for phone in CHARACTERS if phone[-1].isdigit())


def from_misaki(symbols: str) -> list[str] | None:
    """Phones of a word of misaki; None where a symbol is not known."""
    phones, stress, place = [], "0", 0
    while place < len(symbols):
        symbol = symbols[place]
        if symbol in "ˈˌ":
            stress, place = "1" if symbol == "ˈ" else "2", place + 1
            continue
        if symbols[place : place + 2] in ("ɜɹ", "əɹ"):
            phones.append(f"ER{stress}")
            stress, place = "0", place + 2
            continue
        phone = "ER" if symbol == "ɜ" else MISAKI.get(symbol)
        if phone is None:
            return None
        phones.append(phone + stress if phone in VOWELS else phone)
        if phone in VOWELS:
            stress = "0"
        place += 1
    return phones


def read_cmudict(path: Path) -> dict[str, list[list[str]]]:
    """The variants of each word."""
    words: dict[str, list[list[str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        word, *phones = line.split("#")[0].split()
        words.setdefault(re.sub(r"\(\d+\)$", "", word), []).append(phones)
    return words


def main(cmudict: str, gold: str, output: str) -> None:
    """Write the table, compressed."""
    cmu, misaki = read_cmudict(Path(cmudict)), json.loads(Path(gold).read_text(encoding="utf-8"))
    heteronyms = {
        word.lower()
        for word, symbols in misaki.items()
        if isinstance(symbols, dict) and len({form for tag, form in symbols.items() if form and tag != "None"}) > 1
    }
    table = {word: variants[0] for word, variants in cmu.items() if re.fullmatch("[a-z][a-z']*", word)}
    for word, symbols in sorted(misaki.items(), key=lambda item: item[0].islower(), reverse=True):
        key = word.lower()
        form = symbols.get("DEFAULT") if isinstance(symbols, dict) else symbols
        if key not in table and form and re.fullmatch("[a-z][a-z']*", key) and not (len(word) > 1 and word.isupper()):
            phones = from_misaki(form)
            if phones and all(phone in CHARACTERS for phone in phones):
                table[key] = phones
    lines = [
        f"{word}\t{' '.join(phones)}{'*' if word in heteronyms else ''}\n" for word, phones in sorted(table.items())
    ]
    Path(output).write_bytes(lzma.compress("".join(lines).encode("ascii"), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(lines)} words, {sum(word in heteronyms for word in table)} of them heteronyms")


if __name__ == "__main__":
    main(*sys.argv[1:])
