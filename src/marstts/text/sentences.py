"""Sentences of a text, each short enough to be spoken in one take.

Upstream: `normalize` (though any text will do).  Downstream: the synthesizer, one take after another.
Deviation from the published splitter, which cuts at every stop character: decimals, abbreviations, initials, "?!" and
a quotation followed by "he said" stay whole here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import accumulate, chain

NEVER_LAST = frozenset({
    "mr", "mrs", "ms", "messrs", "dr", "prof", "rev", "hon", "capt", "cpt", "cmdr", "lt", "col", "gen", "sgt",
    "maj", "pvt", "gov", "sen", "rep", "pres", "supt", "mt", "vs", "cf", "viz", "approx", "e.g", "i.e", "fig",
    "figs", "vol", "vols", "pp", "jan", "feb", "mar", "apr", "aug", "sept", "oct", "nov", "dec",
})  # fmt: skip
"""Abbreviations that never end a sentence, without their last stop."""

SELDOM_LAST = frozenset({
    "etc", "al", "jr", "sr", "esq", "inc", "ltd", "co", "corp", "bros", "ave", "rd", "st", "blvd", "sq", "ft", "p",
    "nos", "dept", "univ", "a.m", "p.m",
})  # fmt: skip
"""Abbreviations that end a sentence only where no small letter follows."""

SENTENCE_OPENERS = frozenset({
    "I", "He", "She", "It", "They", "We", "You", "The", "This", "That", "These", "Those", "But", "And", "So", "Then",
    "My", "His", "Her", "Its", "Our", "Their", "There", "What", "Why", "How", "When", "Where", "If", "In", "On", "At",
})  # fmt: skip
"""Words that no name begins with: after "plan B." they open a sentence."""

MIN_CLAUSE_RATIO = 0.25
"""A clause shorter than this ratio of the limit is not cut off."""

MONTHS = frozenset({
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
})  # fmt: skip

ORDINALS = frozenset({
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
    "twentieth", "thirtieth", "hundredth", "thousandth", "millionth",
})  # fmt: skip

NUMBER_WORDS = ORDINALS | {
    "zero", "oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty", "forty",
    "fifty", "sixty", "seventy", "eighty", "ninety", "hundred", "thousand", "million", "billion", "trillion",
}  # fmt: skip

NUMBER_JOINTS = frozenset({"and", "point", "minus", "to", "times", "over", "dot", "colon", "slash", "dash"})
"""Words between parts of one number."""

MONEY_WORDS = frozenset({"dollar", "dollars", "pound", "pounds", "euro", "euros", "rupees", "francs", "pesos"})
"""Currencies that "and" and a smaller unit may follow."""

_NUMBERS_AND_MONEY = NUMBER_WORDS | MONEY_WORDS
_NUMBERS_AND_MONTHS = NUMBER_WORDS | MONTHS
_STOPS = ".?!\u2026\u3002\uff01\uff1f"
_CLOSING_MARKS = "\"')]\u2019\u201d\u00bb"
_OPENING_MARKS = "\"'([\u2018\u201c\u00ab-"
_MAY_END = frozenset(_STOPS + _CLOSING_MARKS)
_CLAUSE_MARKS = (",", ";", ":", "-", "\u2013", "\u2014", ".", "?", "!", ")")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_CLAUSE_ENDS = frozenset((*_CLAUSE_MARKS, *"\"'\u2019\u201d"))


def split_sentences(text: str, max_characters: int = 160) -> list[str]:
    """The sentences of `text`, in order, none longer than `max_characters`; no text gives no sentence.

    White space apart, the pieces joined are the text.  A sentence that is too long is cut after a clause mark, or
    between words where it has none within reach; a word that is itself too long is cut as well.
    """
    assert max_characters >= 1, "a piece holds at least one character"
    words = text.split()
    return [piece for sentence in _sentences(words) for piece in _cut(sentence, max_characters)]


def _sentences(words: list[str]) -> Iterator[list[str]]:
    """Words grouped into sentences; marks that stand alone go with the sentence before them."""
    sentence: list[str] = []
    has_words, num_seen, last = False, 0, len(words) - 1
    for index, word in enumerate(words):
        sentence.append(word)
        if word[-1] not in _MAY_END or index == last:
            continue
        has_words, num_seen = has_words or any(map(is_spoken, sentence[num_seen:])), len(sentence)
        if has_words and is_spoken(words[index + 1]) and _ends_sentence(words, index):
            yield sentence
            sentence, has_words, num_seen = [], False, 0
    if sentence:
        yield sentence


def _ends_sentence(words: list[str], index: int) -> bool:
    """Whether a sentence ends after `words[index]`, which is not the last word and ends in a mark."""
    before_closing = words[index].rstrip(_CLOSING_MARKS)
    word = before_closing.rstrip(_STOPS).lstrip(_OPENING_MARKS)
    stop = before_closing[len(before_closing.rstrip(_STOPS)) :]
    if not stop:
        return False
    following = words[index + 1].lstrip(_OPENING_MARKS)
    is_number = (
        following.rstrip(_STOPS + ",;:").lower().split("-")[0] in NUMBER_WORDS and before_closing == words[index]
    )
    small_letter_follows = following[:1].islower() and not is_number
    if stop != "." or before_closing != words[index]:
        return not small_letter_follows  # "Why?" he asked; so... well
    if word.lower() in NEVER_LAST or _is_initial(words, index):
        return False
    return not (word.lower() in SELDOM_LAST and small_letter_follows)


def _is_initial(words: list[str], index: int) -> bool:
    """Whether `words[index]` is a letter that stands for a name ("J. R. Smith"), not the end of "the U S A."."""
    letter = words[index].lstrip(_OPENING_MARKS)[:-1]
    if len(letter) != 1 or not letter.isupper() or letter == "I":
        return False
    after_letter = index > 0 and len(words[index - 1]) == 1 and words[index - 1].isupper()
    name_follows = words[index + 1][:1].isupper() and words[index + 1] not in SENTENCE_OPENERS
    return name_follows and not after_letter


def _cut(words: list[str], max_characters: int) -> Iterator[str]:
    """The sentence of `words` in pieces of at most `max_characters`, as even as its clauses allow."""
    sentence = " ".join(words)
    if words and len(sentence) <= max_characters:
        yield sentence
        return
    if any(len(word) > max_characters for word in words):
        words = [part for word in words for part in _chunks(word, max_characters)]
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    is_inside = cache(lambda end: _is_inside_number(words, end))
    start = 0
    while (remaining := starts[-1] - 1 - starts[start]) > max_characters:
        num_pieces = -(-remaining // max_characters)
        end = _next_cut(words, starts, start, max_characters, remaining / num_pieces, is_inside)
        yield " ".join(words[start:end])
        start = end
    if start < len(words):
        yield " ".join(words[start:])


def _next_cut(
    words: list[str],
    starts: list[int],
    start: int,
    max_characters: int,
    target: float,
    is_inside: Callable[[int], bool],
) -> int:
    """Best end of the piece from `start`: at the clause, else at the word, nearest `target` characters."""
    origin = starts[start] + 1
    last = bisect_right(starts, origin + max_characters) - 1
    at_words = sorted(range(start + 1, last + 1), key=lambda end: abs(starts[end] - origin - target))
    shortest = origin + MIN_CLAUSE_RATIO * max_characters
    at_clauses = [end for end in at_words if starts[end] >= shortest and _ends_clause(words[end - 1])]
    for end in chain(at_clauses, at_words):
        if end == len(words) or not (_continues_number(words[end - 1]) or is_inside(end)):
            return end
    return (at_clauses or at_words)[0]


def _ends_clause(word: str) -> bool:
    return word[-1] in _CLAUSE_ENDS and word.rstrip("\"'\u2019\u201d").endswith(_CLAUSE_MARKS)


def _is_inside_number(words: list[str], end: int) -> bool:
    """Whether `words[end - 1]`, which is no number word, and `words[end]` are of one number, date, amount or name."""
    before, after = words[end - 1], words[end]
    if len(before) == 1 and len(after.rstrip(_STOPS + ",;:")) == 1:
        return before.isupper() and after[0].isupper()
    last = _last_part(before)
    if before == "the" and words[max(end - 3, 0) : end] == ["ten", "to", "the"]:
        return True
    following = _first_part(words, end)
    if before in ("plus", "minus", "point") or last in MONTHS or last in NUMBER_WORDS:
        return following in NUMBER_WORDS
    if before in MONEY_WORDS:
        return following == "and" and _first_part(words, end + 1) in NUMBER_WORDS
    of_number = end > 1 and _last_part(words[end - 2]) in _NUMBERS_AND_MONEY
    is_joint = last in NUMBER_JOINTS and of_number
    return (is_joint or (last == "of" and following in MONTHS)) and following in _NUMBERS_AND_MONTHS


@lru_cache(maxsize=4096)
def _continues_number(word: str) -> bool:
    """Whether a number word without a comma goes with what is counted: "five kilometers"."""
    return _last_part(word) in NUMBER_WORDS and not word.endswith(",")


def _first_part(words: list[str], index: int) -> str:
    """The word at `index` without marks, up to its first hyphen; empty behind the last word."""
    return _without_marks(words[index]) if index < len(words) else ""


@lru_cache(maxsize=4096)
def _without_marks(word: str) -> str:
    return word.strip(_STOPS + ",;:\"'").lower().split("-")[0]


@lru_cache(maxsize=4096)
def _last_part(word: str) -> str:
    """The word in small letters without a comma, from its last hyphen on."""
    return word.lower().rstrip(",").split("-")[-1]


def _chunks(word: str, size: int) -> list[str]:
    return [word[start : start + size] for start in range(0, len(word), size)]


def is_spoken(text: str) -> bool:
    """Whether a text holds a letter or a digit."""
    return _LETTER_OR_DIGIT.search(text) is not None


def last_mark(spoken: str) -> str:
    """The last character but for closing quotation marks and brackets; empty where there is none."""
    return spoken.rstrip("\"')]\u2019\u201d ")[-1:]


def close(spoken: str) -> str:
    """`spoken` with a mark at its end that ends a sentence."""
    if not spoken.rstrip("\"'") or spoken.rstrip("\"'").endswith((".", "?", "!")):
        return spoken
    return spoken.rstrip(" -,;:") + "."
