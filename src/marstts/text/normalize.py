"""Text as people write it -> text as it is spoken: English words and basic punctuation, nothing else.

Upstream: whatever a person types or a book holds.  Downstream: `sentences`, then the prompt.
Letters A-Z and a-z, spaces and . , ? ! ; : ' - " come out.  What has no English reading (emoji, other scripts) is
dropped.  The time is linear in the text, and normalising twice changes nothing more.
"""

from __future__ import annotations

import re

from marstts.text.characters import fold_characters
from marstts.text.numbers import cardinal, ends_sentence, read_numbers

BEFORE_NAMES = {
    "Mr": "Mister",
    "Mrs": "Missus",
    "Ms": "Miss",
    "Dr": "Doctor",
    "Prof": "Professor",
    "Messrs": "Messieurs",
    "Mt": "Mount",
    "Ft": "Fort",
}
"""Abbreviations that stand before a name; common enough to be written without a stop."""

RANKS = {
    "Rev": "Reverend",
    "Hon": "Honorable",
    "Capt": "Captain",
    "Cpt": "Captain",
    "Cmdr": "Commander",
    "Lt": "Lieutenant",
    "Col": "Colonel",
    "Gen": "General",
    "Sgt": "Sergeant",
    "Maj": "Major",
    "Pvt": "Private",
    "Gov": "Governor",
    "Sen": "Senator",
    "Rep": "Representative",
    "Pres": "President",
    "Supt": "Superintendent",
}
"""Abbreviations that stand before a name, recognised by their stop."""

ANYWHERE = {
    "e.g": "for example",
    "i.e": "that is",
    "Ph.D": "P H D",
    "vs": "versus",
    "approx": "approximately",
    "cf": "compare",
    "viz": "namely",
    "dept": "department",
    "Dept": "Department",
    "Univ": "University",
    "govt": "government",
    "Govt": "Government",
    "Jan": "January",
    "Feb": "February",
    "Mar": "March",
    "Apr": "April",
    "Aug": "August",
    "Sept": "September",
    "Oct": "October",
    "Nov": "November",
    "Dec": "December",
}
"""Abbreviations recognised by their stop, which is no end of a sentence."""

CLOSING = {
    "etc": "et cetera",
    "al": "al",
    "Jr": "Junior",
    "Sr": "Senior",
    "Esq": "Esquire",
    "Inc": "Incorporated",
    "Ltd": "Limited",
    "Co": "Company",
    "Corp": "Corporation",
    "Bros": "Brothers",
    "Ave": "Avenue",
    "Rd": "Road",
    "Blvd": "Boulevard",
    "Sq": "Square",
}
"""Abbreviations recognised by their stop, which may end the sentence as well."""

BEFORE_NUMBERS = {
    "No": "number",
    "no": "number",
    "Nos": "numbers",
    "nos": "numbers",
    "p": "page",
    "pp": "pages",
    "Vol": "volume",
    "vol": "volume",
    "Ch": "chapter",
    "ch": "chapter",
    "Fig": "figure",
    "fig": "figure",
    "Sec": "section",
    "sec": "section",
    "c": "circa",
    "ca": "circa",
}
"""Abbreviations recognised by their stop and the number after it."""

SYMBOLS = {
    "&": "and",
    "@": "at",
    "+": "plus",
    "=": "equals",
    "%": "percent",
    "$": "dollars",
    "£": "pounds",
    "€": "euros",
    "¥": "yen",
    "₹": "rupees",
    "¢": "cents",
    "°": "degrees",
}
"""Symbols read by name wherever they stand; numerals have claimed theirs before."""

ADDRESS_SYMBOLS = {
    ".": "dot",
    "/": "slash",
    "@": "at",
    "-": "dash",
    "_": "underscore",
    ":": "colon",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "%": "percent",
    "#": "hash",
    "+": "plus",
    "~": "tilde",
}

TOP_LEVEL_DOMAINS = "com|org|net|edu|gov|int|io|ai|co|uk|de|fr|eu|us|ca|au|info|dev|app|me|tv"

SPELLED_INITIALISMS = frozenset(
    {"AI", "API", "CEO", "CIA", "CPU", "EU", "FBI", "GPU", "IBM", "UFO", "UK", "UN", "URL", "USA", "USB"}
)
"""Names said letter by letter although they hold a vowel."""

INTERJECTIONS = frozenset({"HM", "HMM", "MM", "MMM", "SH", "SHH", "PST", "PSST", "TSK", "BRR", "GRR", "ZZZ", "PFFT"})
"""Words without a vowel."""

NUMBERED_PARTS = "Chapter|CHAPTER|Act|ACT|Scene|SCENE|Volume|VOLUME|Canto|CANTO|World War|Section|SECTION"

ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def normalize(text: str) -> str:
    """`text` as it is spoken; empty where nothing in it can be.

    Goes on until nothing changes: what one pass drops or reads may leave an abbreviation for the next, never more work
    than before, for every rule consumes what it reads.
    """
    spoken = _normalize_once(text)
    while (again := _normalize_once(spoken)) != spoken:
        spoken = again
    return spoken


def _normalize_once(text: str) -> str:
    text = fold_characters(text)
    text = read_addresses(text)
    text = expand_abbreviations(text)
    text = read_roman_numerals(text)
    text = read_numbers(text)
    text = read_dotted_initials(text)
    text = read_symbols(text)
    text = spell_initialisms(text)
    text = tidy_punctuation(text)
    return text if re.search("[A-Za-z]", text) else ""


def read_addresses(text: str) -> str:
    """E-mail and web addresses: "www.example.com/a" -> "W W W dot example dot com slash a"."""
    return re.sub(r"\S+", lambda match: _read_if_address(match[0]), text)


def _read_if_address(word: str) -> str:
    core = word.strip("\"'()[]{}<>,;:!?.*_")
    if not (_EMAIL.fullmatch(core) or _WEB_ADDRESS.fullmatch(core)):
        return word
    before, _, after = word.partition(core)
    spoken = re.sub(r"^[A-Za-z]{3,5}://", "", core).rstrip("/")
    spoken = _ADDRESS_SYMBOL.sub(lambda match: f" {ADDRESS_SYMBOLS[match[0]]} ", spoken)
    return before + re.sub(r"\bwww\b", "W W W", spoken) + after


def expand_abbreviations(text: str) -> str:
    """Titles, common Latin, streets and months in full: "Dr. Li, No. 5 Elm St" -> "Doctor Li, number 5 Elm Street"."""
    text = re.sub("#(?=[0-9])", "number ", text)
    text = _BEFORE_NUMBERS.sub(lambda match: BEFORE_NUMBERS[match["short"]] + " ", text)
    text = _SAINT_OR_STREET.sub(_read_saint_or_street, text)
    text = _BEFORE_NAMES.sub(lambda match: BEFORE_NAMES[match["short"].capitalize()] + " ", text)
    return _WITH_STOP.sub(_read_abbreviation, text)


def _read_abbreviation(match: re.Match[str]) -> str:
    short = match["short"]
    if short in CLOSING:
        return CLOSING[short] + _closing_stop(match)
    return (RANKS | ANYWHERE)[short]


def _closing_stop(match: re.Match[str]) -> str:
    return "." if ends_sentence(match.string, match.end()) else ""


def _read_saint_or_street(match: re.Match[str]) -> str:
    """Street after a name, Saint before one; between two names Saint only where the first word opens a sentence."""
    before, stop = match["before"] or "", match["stop"]
    name_follows = _NAME.match(match.string, match.end()) is not None
    opens_sentence = match.start() == 0 or match.string[max(match.start() - 2, 0)] in ".?!"
    if before and not (name_follows and opens_sentence):
        return f"{before}Street{_closing_stop(match) if stop else ''}"
    return f"{before}Saint" if name_follows else match[0]


def read_dotted_initials(text: str) -> str:
    """Letters with a stop after each, as letters: "the U.S. Army" -> "the U S Army"."""
    return _DOTTED_INITIALS.sub(_read_dotted_initials, text)


def _read_dotted_initials(match: re.Match[str]) -> str:
    letters = " ".join(match["letters"].replace(".", "").upper())
    at_end = match.end() == len(match.string) or (
        letters in ("A M", "P M") and ends_sentence(match.string, match.end())
    )
    touches = match.end() < len(match.string) and match.string[match.end()].isalnum()
    return letters + (match["stop"] if at_end else "") + (" " if touches else "")


def read_roman_numerals(text: str) -> str:
    """Numbers of chapters and the like: "Chapter IV" -> "Chapter four"."""
    return _ROMAN.sub(lambda match: f"{match['part']} {cardinal(str(_roman_value(match['numeral'])))}", text)


def _roman_value(numeral: str) -> int:
    values = [ROMAN_DIGITS[letter] for letter in numeral]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def read_symbols(text: str) -> str:
    """Symbols with a name are read; brackets part like commas; all others part like spaces."""
    text = re.sub(r"\b([A-G])#", r"\1 sharp ", text)
    text = re.sub(r"#(?=\w)", " hashtag ", text)
    text = re.sub(r"(?<=[\w)] )([<>])(?= ?\w)", lambda match: "less than" if match[0] == "<" else "greater than", text)
    text = _NAMED_SYMBOL.sub(lambda match: f" {SYMBOLS[match[0]]} ", text)
    text = re.sub(r"[()\[\]{}]", " , ", text)
    text = text.replace("—", " - ")
    return re.sub(r"[^A-Za-z.,?!;:'\" -]", " ", text)


def spell_initialisms(text: str) -> str:
    """Capitals that cannot be a word, letter by letter: "BBC" -> "B B C", "DVDs" -> "D V D's"."""
    return _CAPITALS.sub(_spell_if_initialism, text)


def _spell_if_initialism(match: re.Match[str]) -> str:
    letters, plural = match["letters"], match["plural"]
    is_word = letters in INTERJECTIONS or (set(letters) & set("AEIOUY") and letters not in SPELLED_INITIALISMS)
    return match[0] if is_word else " ".join(letters) + ("'s" if plural else "")


def tidy_punctuation(text: str) -> str:
    """One mark where several meet, none at the start, spaces where print has them."""
    text = re.sub(r"(?<=[A-Za-z])\.(?=[a-z])", " dot ", text)  # file names and the like
    text = re.sub(r'""+', '"', text)
    text = re.sub(r"''+", "'", text)
    text = re.sub(r"(?<![A-Za-z'])-+|-+(?![A-Za-z'])|--+", " - ", text)
    text = " " + re.sub(" +", " ", text).strip() + " "
    text = _MARKS.sub(lambda match: _strongest(match[0]), text)
    text = re.sub(r"([.,;:?!])(?=[A-Za-z])", r"\1 ", text)
    return re.sub(" +", " ", text).strip(" -").lstrip(" .,;:?!-")


def _strongest(marks: str) -> str:
    """The mark that speaks for a run of them."""
    if "?" in marks or "!" in marks:
        return ("?" if "?" in marks else "") + ("!" if "!" in marks else "")
    if ".." in marks.replace(" ", ""):
        return "..."
    return next((mark for mark in ".;:," if mark in marks), " -")


def _either(words: dict[str, str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_EMAIL = re.compile(r"[A-Za-z0-9_.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_WEB_ADDRESS = re.compile(
    r"[A-Za-z]{3,5}://\S+|www\.\S+"
    rf"|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.(?:{TOP_LEVEL_DOMAINS})(?:[/:?#]\S*)?"
)
_ADDRESS_SYMBOL = re.compile(f"[{re.escape(''.join(ADDRESS_SYMBOLS))}]")
_NAMED_SYMBOL = re.compile(f"[{re.escape(''.join(SYMBOLS))}]")

_WORD_START = r"(?<![A-Za-z0-9'])"
_BEFORE_NUMBERS = re.compile(rf"{_WORD_START}(?P<short>{_either(BEFORE_NUMBERS)})\. ?(?=[0-9])")
_BEFORE_NAMES = re.compile(rf"{_WORD_START}(?P<short>{_either(BEFORE_NAMES)}|MRS|MR|DR)(?:\.|(?= [A-Z]))(?![a-z])")
_WITH_STOP = re.compile(rf"{_WORD_START}(?P<short>{_either(RANKS | ANYWHERE | CLOSING)})\.(?![A-Za-z0-9])")
_SAINT_OR_STREET = re.compile(
    rf"(?P<before>{_WORD_START}[A-Z0-9][A-Za-z0-9]{{1,20}} )?\bSt(?P<stop>\.?)(?![A-Za-z0-9'])"
)
_NAME = re.compile(" [A-Z]")
_DOTTED_INITIALS = re.compile(r"(?<![A-Za-z0-9.'])(?P<letters>[A-Za-z](?:\.[A-Za-z])+)(?![A-Za-z0-9])(?P<stop>\.?)")
_ROMAN = re.compile(rf"\b(?P<part>{NUMBERED_PARTS}) (?P<numeral>[IVXLC]{{1,8}})\b")
_CAPITALS = re.compile(r"(?<![A-Za-z])(?P<letters>[A-Z]{2,4})(?P<plural>s?)(?![A-Za-z])")
_MARKS = re.compile(r" ?(?:[.,;:?!]|(?<= )-(?= ))(?: ?(?:[.,;:?!]|(?<= )-(?= )))*")
