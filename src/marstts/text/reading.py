"""Reading: a text in, the sentences that will be spoken out, with the rule that read each written form.

Upstream: command line, server, synthesizer.  Downstream: `blocks`, `normalize`, `sentences`, `lexicon`, `ssml`.
The text may come in pieces: a passage is given as soon as its last sentence is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from marstts.text.blocks import Block, cut_blocks
from marstts.text.dialogue import with_quotes
from marstts.text.language import warnings_of
from marstts.text.lexicon import Lexicon, apply_overrides, written_words
from marstts.text.markdown import LineKind
from marstts.text.normalize import normalize_block
from marstts.text.phones import without_phones
from marstts.text.rules.engine import Step, Trace
from marstts.text.segments import (
    MAX_PAUSE_SECONDS,
    SENTENCE_PAUSE_SECONDS,
    VOICE_MARK,
    Boundary,
    Pauses,
    Segment,
)
from marstts.text.sentences import close, is_spoken, last_mark, split_sentences
from marstts.text.ssml import is_ssml, read_ssml

MAX_SENTENCE_CHARACTERS = 160

MAX_UNDIVIDED_CHARACTERS = 1000
"""The same where sentences are to stay whole: a take of more has no bounded cost."""

NUM_REMEMBERED = 512
"""Passages of a text that are kept, so that lines that come again cost little: a long text may be short lines only."""

DEFAULT_PAUSE_SECONDS = 0.5
DEFAULT_NAME = "default"
"""What a mark of a voice names to go back to the voice of all that has no mark."""

USUAL_PAUSES = Pauses()
_STATED_PAUSES = Pauses(paragraph=SENTENCE_PAUSE_SECONDS, scene=SENTENCE_PAUSE_SECONDS)
"""Those of SSML, which states its pauses itself."""

MARK = re.compile(
    rf"{VOICE_MARK}|\[pause(?::\s?(?P<number>[0-9]{{1,5}}(?:\.[0-9]{{1,3}})?)\s?(?P<unit>ms|s)?)?\]", re.IGNORECASE
)
"""A mark of a pause or of a voice."""

_VOICE = re.compile(VOICE_MARK)

Speller = Callable[[str, Trace], str]
"""A block of text as a model reads it; records which rules were applied."""


def as_typed(text: str, trace: Trace) -> str:
    """The block as a person typed it, for models that were trained on such texts; white space becomes one space."""
    return " ".join(text.split())


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How texts are read."""

    lexicon: Lexicon = field(default_factory=Lexicon)
    pauses: Pauses = USUAL_PAUSES
    spell: Speller = normalize_block
    """`as_typed` for models that read texts as people type them."""

    dialogue: str | None = None
    """Name of the voice of what is said in quotation marks, where no mark names another one; None: no voice of its
    own. SSML names its voices itself."""

    max_characters: int = MAX_SENTENCE_CHARACTERS
    """Longer sentences are divided, at clauses if possible."""


USUAL_MANNER = Manner()


@dataclass(frozen=True)
class Passage:
    """A passage of a text: as it was written, and as it is spoken."""

    written: str
    segments: tuple[Segment, ...]
    steps: tuple[Step, ...]
    """Readings by rule, in the order of the rules."""

    left_out: tuple[str, ...]
    """Characters that have no reading, and `[x]{y}` that was read as text because it is no pronunciation."""


@dataclass(frozen=True)
class Reading:
    """A whole text as it is spoken."""

    passages: tuple[Passage, ...]
    warnings: tuple[str, ...]
    """Sentences for people: what was left out, and whether the language is another."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of all passages, in order."""
        return tuple(segment for passage in self.passages for segment in passage.segments)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The spoken sentences, in order."""
        return tuple(segment.text for segment in self.segments if segment.text)


def read_text(text: str, lexicon: Lexicon | None = None, manner: Manner = USUAL_MANNER) -> Reading:
    """`text` as it is spoken; a text that begins with `<speak` is SSML. A `lexicon` replaces that of the manner.

    Raises TextError where SSML is malformed.
    """
    warnings: list[str] = []
    manner = manner if lexicon is None else replace(manner, lexicon=lexicon)
    if is_ssml(text):
        document = read_ssml(text)
        warnings += document.warnings
        stated = replace(manner, pauses=_STATED_PAUSES, dialogue=None)
        passages = [passage for part in document.segments for passage in _read_segment(part, stated)]
        words = " ".join(part.text for part in document.segments)
    else:
        passages = list(read_stream([text], manner=manner))
        words = text
    return Reading(
        tuple(passages), tuple(warnings + warnings_of((run for passage in passages for run in passage.left_out), words))
    )


def read_stream(
    pieces: Iterable[str], lexicon: Lexicon | None = None, manner: Manner = USUAL_MANNER
) -> Iterator[Passage]:
    """The passages of a text that comes in pieces, each as soon as it is complete; never SSML."""
    manner = manner if lexicon is None else replace(manner, lexicon=lexicon)
    yield from _read_blocks(pieces, Segment(), manner)


def stream_sentences(pieces: Iterable[str], lexicon: Lexicon | None = None) -> Iterator[str]:
    """The spoken sentences of a text that comes in pieces."""
    for passage in read_stream(pieces, lexicon):
        yield from (segment.text for segment in passage.segments if segment.text)


def voices_named_in(text: str) -> Iterator[str]:
    """The names in the voice marks of a text that is not SSML."""
    names = (mark["voice"].strip() for mark in _VOICE.finditer(text))
    return (name for name in names if name.lower() not in ("", DEFAULT_NAME))


def _closed(segment: Segment) -> Segment:
    """The segment with a stop at its end; itself where nothing is said in it, or a mark is there."""
    text = close(segment.text) if segment.text else ""
    if text == segment.text:
        return segment
    return _segment(text, segment.pause_seconds, segment)


def _segment(text: str, pause_seconds: float, style: Segment) -> Segment:
    """A segment in the style of another, without `__init__`, which takes much longer: a long text has many."""
    segment = object.__new__(Segment)
    vars(segment).update(vars(style), text=text, pause_seconds=pause_seconds)
    return segment


def _read_segment(part: Segment, manner: Manner) -> Iterator[Passage]:
    """The passages of one part of an SSML document; the pause of the part follows the last."""
    style = replace(part, pause_seconds=0.0)
    passages = [_without_boundaries(each) for each in _read_blocks([part.text], style, manner)]
    if part.pause_seconds and passages and passages[-1].segments:
        *first, last = passages[-1].segments
        last = replace(last, pause_seconds=last.pause_seconds + part.pause_seconds)
        passages[-1] = replace(passages[-1], segments=(*first, last))
    elif part.pause_seconds:
        passages.append(Passage("", (Segment(pause_seconds=part.pause_seconds),), (), ()))
    yield from passages


def _without_boundaries(passage: Passage) -> Passage:
    """The passage of an SSML document, which states its pauses itself."""
    segments = (
        replace(each, boundary=Boundary.SENTENCE) for each in passage.segments if each.text or each.pause_seconds
    )
    return replace(passage, segments=tuple(segments))


def _read_blocks(pieces: Iterable[str], style: Segment, manner: Manner) -> Iterator[Passage]:
    """The passages; one that ends a line without a mark gets a stop, except for the last, as in `normalize`.

    `[voice:NAME]` changes the voice of all that follows.
    """
    first_style, voice = style, style.voice

    def read(block: Block, voice: str | None, *, is_last: bool = False) -> tuple[Passage, bool, str | None]:
        style = first_style if voice == first_style.voice else replace(first_style, voice=voice)
        return _read_block(block, style, first_style.voice, manner, is_last)

    remembered = lru_cache(maxsize=NUM_REMEMBERED)(read)
    blocks = cut_blocks(pieces)
    waiting: tuple[Passage, Block, str | None] | None = None  # that a stop was added to, and that may be the last
    for block in blocks if manner.dialogue is None else with_quotes(blocks):
        before = voice
        passage, has_stop_added, voice = remembered(block, voice)
        if waiting is not None and passage.segments:
            yield waiting[0]
            waiting = None
        if has_stop_added:
            waiting = passage, block, before
        elif passage.segments or passage.left_out:
            yield passage
    if waiting is not None:
        yield read(*waiting[1:], is_last=True)[0]


def _read_block(
    block: Block, style: Segment, default: str | None, manner: Manner, is_last: bool
) -> tuple[Passage, bool, str | None]:
    """The passage of a block, whether a stop was added to it because it ends a sentence, and the voice at its end."""
    trace = Trace()
    segments: list[Segment] = []
    pauses = manner.pauses
    if block.kind is LineKind.SCENE:
        scene = replace(style, boundary=Boundary.SCENE, pause_seconds=pauses.added(Boundary.SCENE))
        return Passage("", (scene,), (), ()), False, style.voice
    start = 0
    for mark in MARK.finditer(block.text) if "[" in block.text else ():
        segments += _speak(block, start, mark.start(), style, default, manner, trace)
        if mark["voice"] is None:
            segments = _pause_after(segments, _seconds(mark), style)
            trace.record("pause", mark[0], f"{_seconds(mark):g} s of silence")
        else:
            name = mark["voice"].strip()
            style = replace(style, voice=default if name.lower() in ("", DEFAULT_NAME) else name)
            trace.record("voice", mark[0], f"voice {name}")
        start = mark.end()
    last = _speak(block, start, len(block.text), style, default, manner, trace)
    segments += last
    if last and block.kind is LineKind.HEADING:
        segments[-1] = _ended(segments[-1], Boundary.HEADING, pauses)
    if segments and block.ends_paragraph:
        segments[-1] = _ended(segments[-1], Boundary.PARAGRAPH, pauses)
    written = written_words(_VOICE.sub(" ", block.text) if "[" in block.text else block.text).strip()
    unclosed = segments[-1] if segments and block.is_closed and not is_last else None
    if unclosed is not None:
        segments[-1] = _closed(unclosed)
    has_stop_added = unclosed is not None and segments[-1] is not unclosed
    passage = Passage(written, tuple(segments), tuple(trace.steps), tuple(trace.left_out))
    return passage, has_stop_added, style.voice


def _speak(
    block: Block, start: int, end: int, style: Segment, default: str | None, manner: Manner, trace: Trace
) -> list[Segment]:
    """The segments of a part of a block; what is said in it has a voice of its own where it has no other."""
    quotes = block.quotes if style.voice == default else ()
    if not quotes:
        return _sentences(_respelled(block.text[start:end], manner.lexicon, trace), style, manner, trace)
    cuts = sorted({start, end, *(place for quote in quotes for place in quote if start < place < end)})
    segments: list[Segment] = []
    for first, last in pairwise(cuts):
        is_said = any(opening <= first < closing for opening, closing in quotes)
        spoken = replace(style, voice=manner.dialogue) if is_said else style
        segments += _sentences(_respelled(block.text[first:last], manner.lexicon, trace), spoken, manner, trace)
    return segments


def _respelled(text: str, lexicon: Lexicon, trace: Trace) -> str:
    """The text with the pronunciations that it gives itself, and those of the lexicon."""
    return lexicon.apply(apply_overrides(without_phones(text), trace), trace)


def _sentences(text: str, style: Segment, manner: Manner, trace: Trace) -> list[Segment]:
    spoken = manner.spell(text, trace)
    if not spoken:
        return []
    return [
        _segment(sentence, usual_pause(sentence, Boundary.SENTENCE, manner.pauses), style)
        for sentence in split_sentences(spoken, manner.max_characters)
        if is_spoken(sentence)
    ]


def _ended(segment: Segment, boundary: Boundary, pauses: Pauses) -> Segment:
    """The segment with another boundary at its end, and the pause of that."""
    pause = without_usual(segment, pauses) + usual_pause(segment.text, boundary, pauses)
    return replace(segment, boundary=boundary, pause_seconds=round(pause, 6))


def without_usual(segment: Segment, pauses: Pauses) -> float:
    """The pause of a segment that was read with `pauses`, without the usual one of its boundary."""
    return segment.pause_seconds - usual_pause(segment.text, segment.boundary, pauses)


def usual_pause(text: str, boundary: Boundary, pauses: Pauses) -> float:
    """What `pauses` add after a text; a clause that a long sentence was cut at is no end of a sentence."""
    is_cut = boundary is Boundary.SENTENCE and last_mark(text) not in (".", "!", "?")
    return 0.0 if is_cut else pauses.added(boundary)


def _pause_after(segments: list[Segment], seconds: float, style: Segment) -> list[Segment]:
    if not segments:
        return [replace(style, text="", pause_seconds=seconds)]
    return [*segments[:-1], replace(segments[-1], pause_seconds=segments[-1].pause_seconds + seconds)]


def _seconds(mark: re.Match[str]) -> float:
    if mark["number"] is None:
        return DEFAULT_PAUSE_SECONDS
    seconds = float(mark["number"]) / (1000 if (mark["unit"] or "s").lower() == "ms" else 1)
    return min(seconds, MAX_PAUSE_SECONDS)
