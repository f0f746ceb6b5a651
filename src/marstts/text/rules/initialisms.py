"""Capitals: which are said letter by letter ("D N A"), and which are a word ("NASA", "WAIT").

Upstream: text whose symbols are read.  Downstream: `punctuation`.
The lists in `data/initialisms.toml` decide first, then the word list; the rest is a word if it can be pronounced.
"""

from __future__ import annotations

import re

from marstts.text.rules.engine import Trace
from marstts.text.rules.tables import word_list, word_set, words

_CAPITALS = re.compile(r"(?<![A-Za-z'])(?P<letters>[A-Z]{2,6})(?P<plural>'?s)?(?![A-Za-z]|'[a-ce-rt-z])")
_CONTRACTED = re.compile("'(?:S|D|LL|RE|VE)(?![A-Za-z])")
"""Endings of a word in capitals, "IT'S"; the possessive of an initialism has a small "s"."""

_SPEAKER = re.compile(r"(?:[A-Z][A-Z']{1,14}\.?)(?: [A-Z][A-Z']{1,14}\.?| (?:of|the|and)){0,3}[.:,]?")
_SPEAKER_BEFORE = re.compile(
    r"(?:[A-Z][A-Z']{1,14}\.?)(?: [A-Z][A-Z']{1,14}){0,3}(?:,? ?\([^()]{1,60}\)|, [a-z ]{1,40},?)?(?::|\.(?= [A-Z\"']))"
)
_ONSET = (
    "(?:BL|BR|CH|CL|CR|DR|FL|FR|GH|GL|GR|GW|KN|PH|PL|PR|QU|RH|SC|SCH|SH|SHR|SK|SL|SM|SN|SP|SPR|ST|STR|SW|TH|THR|TR|TW|WH|WR"
    "|[BCDFGHJKLMNPRSTVWXZ])"
)
_CODA = (
    "(?:CK|CT|FF|FT|GG|LD|LF|LK|LL|LM|LP|LT|LS|MB|MM|MP|ND|NG|NK|NN|NS|NT|NCE|PP|PT|RB|RC|RCH|RD|RF|RG|RK|RL|RM|RN|RP|RR|RS|RT"
    "|SH|SK|SP|SS|ST|TH|TT|TCH|CH|PH|GH|ZZ|[BCDFGKLMNPRSTVXZHW])"
)
_NAME = re.compile(f"{_ONSET}?[AEIOUY]{{1,3}}(?:{_CODA}?{_ONSET}[AEIOUY]{{1,3}}){{0,3}}{_CODA}?")
_SMALL = re.compile("[a-z]")
_PRONOUNCEABLE = re.compile(
    "(?:[BCDFGHJKLMNPRSTVWZ]{1,2}|SCH|STR|TH|SH|CH|QU)?(?:[AEIOU]{1,2}[BCDFGKLMNPRSTVXZ]{1,2}){1,3}[AEIOY]?"
)
_CONSONANT_VOWEL = re.compile("[BCDFGHJKLMNPRSTVWZ]?(?:[AEIOU][BCDFGHJKLMNPRSTVWZ]){1,3}[AEIOUY]?")


_SPELLED, _AMBIGUOUS = word_set("initialisms", "spelled"), word_set("initialisms", "ambiguous")
_AS_WORDS = word_set("initialisms", "words") | word_set("initialisms", "interjections")
_FIRST_NAMES = word_list("first_names")
_LISTED = _SPELLED | _AS_WORDS


def spell_initialisms(text: str, trace: Trace) -> str:
    """Capitals that are no word, letter by letter: "BBC" -> "B B C", "DVDs" -> "D V D's"."""
    found = [match["letters"] for match in _CAPITALS.finditer(text)]
    if not found:
        return text
    shouted = is_shouted(text, found)

    def read(match: re.Match[str]) -> str:
        is_contraction = _CONTRACTED.match(text, match.end()) is not None and match["letters"] in _AMBIGUOUS
        letters = match["letters"]
        is_name = letters in _FIRST_NAMES and (letters not in _LISTED or is_speaker(match))
        if is_contraction or is_word(letters, shouted) or is_name or (is_speaker(match) and may_be_name(letters)):
            return match[0]
        spelled = " ".join(match["letters"]) + ("'s" if match["plural"] else "")
        trace.record("initialism", match[0], spelled)
        return spelled

    return _CAPITALS.sub(read, text)


def is_speaker(match: re.Match[str]) -> bool:
    """Whether capitals name who speaks in a play: a line of capitals alone, or what stands before a colon."""
    text = match.string
    if _SPEAKER.fullmatch(text):
        return True
    before = _SPEAKER_BEFORE.match(text)
    return before is not None and match.end() <= before.end()


def may_be_name(letters: str) -> bool:
    """Whether capitals can be pronounced as a name."""
    return letters not in _SPELLED and len(letters) > 3 and _NAME.fullmatch(letters) is not None


def is_shouted(text: str, capitals: list[str]) -> bool:
    """Whether words are written in capitals for emphasis: "WAIT FOR US"."""
    plain = [each for each in capitals if each.lower() in words() and each not in _LISTED]
    has_small = _SMALL.search(text) is not None
    return (
        len(plain) >= 2
        or (len(plain) == 1 and not has_small)
        or (not plain and not has_small and " " in text and _reads(capitals))
    )


def _reads(capitals: list[str]) -> bool:
    """Whether most of the capitals are common words, though each is an initialism as well: "IT IS US"."""
    known = [letters for letters in capitals if letters.lower() in words() or letters in _AMBIGUOUS]
    return len(known) == len(capitals) and len(capitals) > 2


def is_word(letters: str, shouted: bool) -> bool:
    """Whether capitals are said as a word; `shouted`: the words around them are in capitals as well."""
    if letters in _AS_WORDS:
        return True
    if letters in _SPELLED:
        return shouted and letters in _AMBIGUOUS
    if letters.lower() in words():
        return True
    if not set(letters) & set("AEIOUY"):
        return False
    if shouted or len(letters) > 5:
        return len(letters) > 2
    if len(letters) < 4:
        return False
    return (_CONSONANT_VOWEL if len(letters) == 4 else _PRONOUNCEABLE).fullmatch(letters) is not None
