"""Speech whose voice or rate changes within the text, as SSML asks: part by part, each a separate request.

Upstream: `synthesizer.speak`, for SSML documents alone.  Downstream: `batch`, which speaks all parts in one batch.
A rate is made by time stretching that keeps the pitch (WSOLA: `atempo` of FFmpeg, through PyAV, extra `formats`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from marstts.audio import Waveform
from marstts.errors import MissingExtraError, require
from marstts.synthesis.prepared_text import has_words
from marstts.synthesis.speech import Speech, Take, join
from marstts.text.lexicon import Lexicon
from marstts.text.reading import read_text
from marstts.text.segments import Segment
from marstts.text.ssml import is_ssml

STRETCH_SAMPLES = 65_536
"""Samples that are given to the filter at once."""


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
    warnings: dict[str, None] = dict.fromkeys(speech.text_warning for speech in spoken if speech.text_warning)
    if any(part.is_emphasized for part in parts):
        warnings["not supported and ignored: emphasis"] = None
    takes: list[Take] = []
    for part, speech in zip(parts, spoken, strict=True):
        try:
            takes += at_rate(speech.takes, part.rate)
        except MissingExtraError as error:
            warnings[f"the speaking rate is not honored: {error}"] = None
            takes += speech.takes
    return replace(
        spoken[0],
        waveform=join(takes),
        takes=tuple(takes),
        compute_seconds=max(speech.compute_seconds for speech in spoken),
        text_warning="; ".join(warnings) or None,
    )


def at_rate(takes: Sequence[Take], rate: float) -> Iterator[Take]:
    """The takes, `rate` times as fast at the same pitch; raises MissingExtraError without PyAV."""
    if rate == 1.0:
        return iter(takes)
    require("av", "formats")
    return (replace(take, waveform=stretch(take.waveform, rate)) for take in takes)


def stretch(waveform: Waveform, rate: float) -> Waveform:
    """`waveform` `rate` times as fast, 0.5 to 2, at the same pitch and sample rate."""
    av = require("av", "formats")
    graph = av.filter.Graph()
    source = graph.add_abuffer(format="flt", sample_rate=waveform.sample_rate, layout="mono", time_base=None)
    tempo, sink = graph.add("atempo", f"{rate:g}"), graph.add("abuffersink")
    source.link_to(tempo)
    tempo.link_to(sink)
    graph.configure()
    pieces: list[np.ndarray] = []
    for start in range(0, len(waveform.samples), STRETCH_SAMPLES):
        piece = np.ascontiguousarray(waveform.samples[None, start : start + STRETCH_SAMPLES], np.float32)
        frame = av.AudioFrame.from_ndarray(piece, format="flt", layout="mono")
        frame.sample_rate, frame.pts = waveform.sample_rate, start
        graph.push(frame)
        pieces += _pull(av, graph)
    graph.push(None)
    pieces += _pull(av, graph)
    samples = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    return Waveform(samples, waveform.sample_rate)


def _pull(av: object, graph: object) -> list[np.ndarray]:
    """Every frame that the filter has ready."""
    found: list[np.ndarray] = []
    while True:
        try:
            found.append(graph.pull().to_ndarray().reshape(-1).astype(np.float32))  # type: ignore[attr-defined]
        except (av.BlockingIOError, av.EOFError):  # type: ignore[attr-defined]
            return found
