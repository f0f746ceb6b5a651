"""Written forms: which words of the text each spoken word of a sentence stands for ("five dollars" for "$5").

Upstream: `text.reading`, whose passages hold the written text and the steps of the rules.  Downstream: `word_times`.
Words that are spoken as they are written are matched by difflib; what lies between two such words belongs together,
and is divided further where a rule says which words it put in whose place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import SequenceMatcher

from marstts.text.reading import Passage
from marstts.text.rules.engine import Step
from marstts.text.segments import Segment

_CHUNK = re.compile(r"\S+")
_PAUSE = re.compile(r"\[pause[^\]]*\]", re.IGNORECASE)


@dataclass(frozen=True)
class WrittenForm:
    """A stretch of a spoken sentence, and the word of the text that it is the reading of."""

    written: str
    start: int
    """First character in the spoken sentence."""
    end: int


@dataclass(frozen=True, kw_only=True)
class SpokenSegment(Segment):
    """A segment that knows the written form of its words."""

    forms: tuple[WrittenForm, ...] = ()

    lead_seconds: float = 0.0
    """Silence before the text, where nothing is spoken before it."""

    @property
    def written(self) -> str:
        """The sentence as it was written."""
        return " ".join(form.written for form in self.forms)


def forms_of(segment: Segment) -> tuple[WrittenForm, ...]:
    """The written forms of a segment's words; empty where they are not known."""
    return segment.forms if isinstance(segment, SpokenSegment) else ()


def lead_of(segment: Segment) -> float:
    """Seconds of silence before a segment."""
    return segment.lead_seconds if isinstance(segment, SpokenSegment) else 0.0


def with_forms(passage: Passage) -> tuple[SpokenSegment, ...]:
    """The segments of a passage with their written forms."""
    spoken = [
        (number, chunk[0], chunk.start(), chunk.end())
        for number, segment in enumerate(passage.segments)
        for chunk in _CHUNK.finditer(segment.text)
        if _letters(chunk[0])
    ]
    written = [chunk for chunk in _PAUSE.sub(" ", passage.written).split() if any(map(_is_read, chunk))]
    forms: dict[int, list[WrittenForm]] = {number: [] for number in range(len(passage.segments))}
    for words, first, last in pair_words(written, [word for _, word, _, _ in spoken], passage.steps):
        for number in sorted({spoken[index][0] for index in range(first, last)}):  # a form may reach over a cut
            inside = [spoken[index] for index in range(first, last) if spoken[index][0] == number]
            forms[number].append(WrittenForm(" ".join(words), inside[0][2], inside[-1][3]))
    return tuple(
        SpokenSegment(**{field.name: getattr(segment, field.name) for field in fields(Segment)}, forms=tuple(found))
        for segment, found in zip(passage.segments, forms.values(), strict=True)
    )


def pair_words(
    written: Sequence[str], spoken: Sequence[str], steps: Sequence[Step] = ()
) -> Iterator[tuple[list[str], int, int]]:
    """Yield written words with the first and last + 1 of the spoken words they stand for; all spoken words in order.

    Spoken words without a written one are their own written form.
    """
    plain = [_letters(word) for word in written], [_letters(word) for word in spoken]
    if plain[0] == plain[1]:  # most sentences
        yield from (([word], index, index + 1) for index, word in enumerate(written))
        return
    for tag, i, j, first, last in SequenceMatcher(None, *plain, autojunk=False).get_opcodes():
        if tag == "equal":
            for offset in range(j - i):
                yield [written[i + offset]], first + offset, first + offset + 1
        elif tag == "insert":
            for index in range(first, last):
                yield [spoken[index]], index, index + 1
        elif tag == "replace":
            yield from _pair_readings(written[i:j], spoken[first:last], first, steps)


def _pair_readings(
    written: Sequence[str], spoken: Sequence[str], offset: int, steps: Sequence[Step]
) -> Iterator[tuple[list[str], int, int]]:
    """Divide words that are not spoken as written: word by word while the rules' readings are found, then the rest."""
    start = 0
    while len(written) > 1:
        length = _reading_length(written[0], spoken[start:], steps)
        if not length or start + length >= len(spoken):
            break
        yield [written[0]], offset + start, offset + start + length
        written, start = written[1:], start + length
    yield list(written), offset + start, offset + len(spoken)


def _reading_length(written: str, spoken: Sequence[str], steps: Sequence[Step]) -> int:
    """Number of the spoken words that a rule put in the place of `written`; 0 where no rule is known to have."""
    plain = [_letters(word) for word in spoken]
    for step in steps:
        read = [_letters(word) for word in step.read.split()]
        read = [word for word in read if word]
        if read and step.written.strip(".,;:!?") == written.strip(".,;:!?") and plain[: len(read)] == read:
            return len(read)
    return 0


def _letters(word: str) -> str:
    """The word in small letters, without marks."""
    small = word.lower()
    return small if small.isalnum() else "".join(filter(str.isalnum, small))


def _is_read(character: str) -> bool:
    return character.isalnum() or character in "$£€%&@#+=°"
