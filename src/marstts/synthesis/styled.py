"""Speech whose voice or rate changes within the text, as SSML asks: part by part, each a separate request.

Upstream: `synthesizer.speak`, for SSML documents alone.  Downstream: `batch` and `in_order`, which speak all
parts in one batch.
A rate is made by time stretching that keeps the pitch (`audio.tempo`, extra `formats`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from marstts.errors import MissingExtraError, require
from marstts.synthesis.prepared_text import has_words
from marstts.synthesis.speech import Speech, Take, at_speed, join
from marstts.text.lexicon import Lexicon
from marstts.text.reading import read_text
from marstts.text.segments import Segment
from marstts.text.ssml import is_ssml


@dataclass(frozen=True)
class Part:
    """Neighboring sentences with one voice and one rate."""

    text: str
    """The sentences as they are spoken, with marks for their pauses."""

    voice: str | None = None
    rate: float = 1.0
    is_emphasized: bool = False


def split_parts(text: str, lexicon: Lexicon | None) -> tuple[Part, ...]:
    """The parts of an SSML document whose voice or rate changes; none for any other text.

    Raises TextError where the document is malformed.
    """
    if not is_ssml(text):
        return ()
    segments = read_text(text, lexicon).segments
    if not any(segment.voice or segment.rate != 1.0 for segment in segments):
        return ()
    runs = groupby(segments, key=lambda segment: (segment.voice, segment.rate))
    parts = [_part(list(run)) for _, run in runs]
    return tuple(part for part in parts if has_words(part.text))


def _part(segments: list[Segment]) -> Part:
    is_emphasized = any(segment.emphasized for segment in segments)
    return Part(" ".join(map(_marked, segments)), segments[0].voice, segments[0].rate, is_emphasized)


def _marked(segment: Segment) -> str:
    """A sentence and the mark of its pause."""
    return segment.text + (f" [pause:{segment.pause_seconds:g}s]" if segment.pause_seconds else "")


def join_parts(parts: Sequence[Part], spoken: Sequence[Speech]) -> Speech:
    """One speech of all parts, those with a rate stretched; a warning says what was not honored."""
    takes: list[Take] = []
    problems: list[str] = []
    for part, speech in zip(parts, spoken, strict=True):
        try:
            takes += at_rate(speech.takes, part.rate)
        except MissingExtraError as error:
            problems.append(phrase_missing_rate(error))
            takes += speech.takes
    return replace(
        spoken[0],
        waveform=join(takes),
        takes=tuple(takes),
        compute_seconds=max(speech.compute_seconds for speech in spoken),
        text_warning=warning_of(parts, [speech.text_warning for speech in spoken], problems),
    )


def warning_of(parts: Sequence[Part], of_texts: Iterable[str | None], problems: Iterable[str]) -> str | None:
    """One warning for all parts: what was left out of their texts, and what of the document was not honored."""
    emphasis = ["not supported and ignored: emphasis"] if any(part.is_emphasized for part in parts) else []
    return "; ".join(dict.fromkeys([*filter(None, of_texts), *emphasis, *problems])) or None


def phrase_missing_rate(error: MissingExtraError) -> str:
    """The warning where a rate cannot be made."""
    return f"the speaking rate is not honored: {error}"


def at_rate(takes: Sequence[Take], rate: float) -> Iterator[Take]:
    """The takes, `rate` times as fast at the same pitch; raises MissingExtraError without PyAV."""
    if rate == 1.0:
        return iter(takes)
    require("av", "formats")
    return (at_speed(take, rate) for take in takes)
