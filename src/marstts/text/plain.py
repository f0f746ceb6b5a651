"""Plain prose: sentences that no rule can change, found by one look at their characters and words.

Upstream: folded text.  Downstream: `normalize`, which then only tidies the punctuation. Most of what people write is
plain, and so is what was read once; this look is several times quicker than trying every rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from string import ascii_letters

from marstts.text.rules.tables import either, table, word_set

_WITHOUT_SPOKEN = dict.fromkeys(map(ord, ascii_letters + " .,?!;:'\"-"))
"""Table for `str.translate` that deletes every character of spoken text, which is quicker than a pattern."""

_CHARACTERS = re.compile(r"""[A-Za-z ,;:'"-]*(?:\.\.\.(?: [A-Za-z][A-Za-z ,;:'"-]*)?)*[.?!]{0,3}["']{0,2}""")
_SUSPICIOUS = re.compile(
    r"[A-Z:;-](?:(?<=[A-Za-z][a-z][A-Z])|(?<=[:;])(?:(?![ \"']|$)|(?<![A-Za-z][:;]))"
    r"|(?<=-)(?:(?![A-Za-z ])|(?<![A-Za-z ]-)|(?<=[A-F]-)(?<![A-Za-z][A-F]-)(?![A-Za-z])"
    r"|(?<= -)(?:[A-Za-z](?= )|[a-z]{2,4}(?![A-Za-z'-]))))"
)
_SENTENCE_GAP = re.compile(
    r" (?:(?<=[a-zA-Z][.?!] )|(?<=[a-zA-Z][.?!][\"'] )|(?<=[a-zA-Z]\?! ))(?=[\"']?(?!of |[A-Z]{2})[A-Za-z])"
)
"""Patterns that begin with a character, for `re` searches those fastest."""

_WORD = re.compile("[A-Za-z]+")
_CAPITALS = re.compile("[A-Z]{2,}")
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_RANGE = re.compile(rf"{_MONTH} ?- ?{_MONTH}\b|- ?(?:noon|midnight)")
_LETTERED = frozenset({
    "Fig", "Figs", "Tab", "Eq", "Sec", "Sect", "App", "Ex", "Thm", "Exh", "Rm", "Apt", "Bldg", "Ste", "Vol", "Bk", "Ch",
    "Pt", "Art", "Sc", "vol", "ch", "sec", "pt", "art", "fig", "sc", "bk", "Max", "max", "Min", "min", "Temp", "temp",
})  # fmt: skip
"""Abbreviations with a stop that are read before a letter or a word; those of other numbers need a digit."""


_UNSTOPPED = frozenset({
    "St", "Rd", "Ave", "Blvd", "Pkwy", "Hwy", "Jr", "Esq", "Jan", "Feb", "Mar", "Apr", "Aug", "Sept", "Sep", "Oct",
    "Nov", "Dec", "tues", "tue", "thurs", "thur", "thu", "weds", "fri", "mon", "wed", "sat", "sun",
})  # fmt: skip
"""Abbreviations that are read without a stop too, where their neighbors allow it."""


def is_spoken(text: str) -> bool:
    """Whether `text` holds only what spoken text holds: letters, single spaces and basic marks."""
    return not text.translate(_WITHOUT_SPOKEN) and "  " not in text and text == text.strip()


def cut_passages(text: str) -> Iterator[tuple[str, bool]]:
    """Sentences and runs of sentences of a spoken text, and whether each is plain; rules look at no other passage.

    A sentence that ends with what may be an abbreviation is kept with the next: "St." may belong to it.
    """
    waiting: list[str] = []
    sentences = _SENTENCE_GAP.split(text)
    for sentence, following in zip(sentences, [*sentences[1:], ""], strict=True):
        plain = is_plain(sentence)
        if plain and not waiting:
            yield sentence, True
            continue
        waiting.append(sentence)
        if plain or not (following[:1].islower() or _may_continue(sentence)):
            yield " ".join(waiting), False
            waiting = []
    if waiting:
        yield " ".join(waiting), False


def _may_continue(sentence: str) -> bool:
    """Whether the last word of a sentence may be an abbreviation whose stop ends nothing."""
    spelled = _WORD.findall(sentence)
    if not spelled:
        return True
    return sentence.rstrip("\"'").endswith(".") and (_reads_stop(spelled) or len(spelled[-1]) < 2)


@lru_cache(maxsize=8192)
def is_plain(sentence: str) -> bool:
    """Whether `sentence` holds words and marks only, and none that a rule reads."""
    if _CHARACTERS.fullmatch(sentence) is None or _SUSPICIOUS.search(sentence) is not None:
        return False
    spelled = _WORD.findall(sentence)
    words = set(spelled)
    if words & _read_words() or (sentence.rstrip("\"'").endswith(".") and _reads_stop(spelled)):
        return False
    if not all(capitals in _known_capitals() for capitals in _CAPITALS.findall(sentence)):
        return False
    if words & _before_capitals() and _title().search(sentence) is not None:
        return False
    return not (words & _before_numerals() and _numbered().search(sentence)) and _RANGE.search(sentence) is None


def _reads_stop(spelled: list[str]) -> bool:
    """Whether the last word may be an abbreviation whose stop is read with it."""
    if not spelled:
        return False
    if spelled[-1] in table("abbreviations")["compass"]:
        return len(spelled) < 2 or len(spelled[-2]) > 1
    return spelled[-1] in _read_with_stop()


@cache
def _title() -> re.Pattern[str]:
    """Pattern of a short title and a name."""
    return re.compile(rf"\b{either(_before_capitals())} (?=[A-Z])")


@cache
def _numbered() -> re.Pattern[str]:
    """Pattern of a name or a part and its Roman numeral, which is read as a number or a rank."""
    parts = {form for part in word_set("names", "parts") for form in (part, part.lower(), part.upper())}
    bearers = word_set("names", "rulers") | word_set("names", "titles")
    return re.compile(
        rf"\b(?:{either(parts)} (?:[IVXLC]|[ivxl]{{1,6}})|{either(bearers)}(?: [A-Z][a-z]+){{0,2}} [IVX])(?![A-Za-z])"
    )


@cache
def _known_capitals() -> frozenset[str]:
    """Capitals that are said as words wherever they stand."""
    return word_set("initialisms", "words") | word_set("initialisms", "interjections")


@cache
def _read_words() -> frozenset[str]:
    """Every word of the tables that a rule may read without digits, stops or symbols."""
    data = table("abbreviations")
    groups = ("bare", "weekdays", "keys", "mixed", "late")
    forms = {*_UNSTOPPED, *(form for group in groups for form in data[group])}
    forms |= {form for small in word_set("initialisms", "small") for form in (small, small + "s")}
    return frozenset(form.partition("'")[0] for form in forms if form.replace("'", "", 1).isalpha())


@cache
def _before_capitals() -> frozenset[str]:
    """Titles that are read without a stop where a name follows."""
    return frozenset(table("abbreviations")["before_names"]) | {"MRS", "MR", "DR"}


@cache
def _read_with_stop() -> frozenset[str]:
    """Every word of the tables that is read where a stop follows it."""
    data = table("abbreviations")
    groups = ("before_names", "ranks", "anywhere", "closing", "streets", "weekdays")
    forms = _LETTERED | word_set("abbreviations", "joined")
    return forms | frozenset(form for group in groups for form in data[group] if form.isalpha())


@cache
def _before_numerals() -> frozenset[str]:
    """Words after which a single letter may be a Roman numeral."""
    names = word_set("names", "rulers") | word_set("names", "titles") | word_set("names", "parts")
    return names | {name.lower() for name in names} | {name.upper() for name in names}
