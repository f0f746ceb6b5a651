"""Add the heteronyms of misaki's gold dictionary to the table of the package; rows that are there stay.

Usage: python recipes/pronunciations/heteronym_table.py MISAKI_GOLD TABLE
    MISAKI_GOLD: us_gold.json of `misaki` (Apache-2.0)
    TABLE: src/marstts/text/pronunciation/data/heteronyms.tsv
A line is `word<TAB>noun<TAB>adjective<TAB>verb<TAB>past`: phones of each use, `-` for one that the word does not have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from table import from_misaki

from marstts.text.phones import CHARACTERS

LEFT_OUT = frozenset("that used inside overall bass axes nearby uptown uphill augmented upsetting lunged".split())  # noqa: SIM905
"""Function words, and words whose use does not tell the phones, or whose phones are doubtful."""

PAST = frozenset("dove learned unlearned crooked jagged ragged dogged".split())  # noqa: SIM905
"""Words whose form as a verb is a past form."""


def row_of(word: str, forms: dict[str, str | None]) -> list[str]:
    """The phones of the four uses of a word."""

    def phones(*tags: str) -> str:
        """Those of the first tag that the dictionary has."""
        symbols = next(symbols for tag in (*tags, "DEFAULT") if (symbols := forms.get(tag)))
        found = from_misaki(symbols)
        if found is None or not set(found) <= set(CHARACTERS):
            raise SystemExit(f"unknown phones of {word!r}: {symbols!r}")
        return " ".join(found)

    noun, adjective, verb = phones("NOUN"), phones("ADJ", "ADV"), phones("VERB")
    if "VBD" in forms:
        return [noun, "-", verb, phones("VBD")]
    if word in PAST:
        return ["-" if word.endswith("ed") else noun, adjective, "-", verb]
    return [noun, adjective, verb, "-"]


def main(gold: str, table: str) -> None:
    lines = Path(table).read_text(encoding="ascii").splitlines()
    rows = {line.split("\t")[0]: line for line in lines if not line.startswith("#")}
    misaki = json.loads(Path(gold).read_text(encoding="utf-8"))
    for word, forms in misaki.items():
        is_plural = word.endswith("s") and (word[:-1] in misaki and isinstance(misaki[word[:-1]], dict))
        if isinstance(forms, dict) and word.isalpha() and word.islower() and word not in LEFT_OUT and not is_plural:
            found = row_of(word, forms)
            if len(set(found) - {"-"}) > 1:
                rows.setdefault(word, "\t".join([word, *found]))
    header = [line for line in lines if line.startswith("#")]
    Path(table).write_text("\n".join([*header, *sorted(rows.values())]) + "\n", encoding="ascii")
    print(f"{len(rows)} heteronyms")


if __name__ == "__main__":
    main(*sys.argv[1:])
