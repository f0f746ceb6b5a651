"""Fitting: speech of a given length, for a whole text or a passage of it, as dubbing needs it.

Upstream: `synthesizer`, where `Speaking.seconds` or `<prosody duration>` asks for it.  Downstream: `speech.at_speed`.
The model's own pace serves first: readings with other seeds are made until they are near enough, and of each sentence
the take with the nearest length is chosen. What is left is done by the tempo, and by silence at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from marstts.audio.tempo import MAX_SPEED, MIN_SPEED
from marstts.audio.waveform import Waveform
from marstts.errors import TextError
from marstts.synthesis.speech import Speech, Take, at_speed, pause_of

MAX_READINGS = 4
"""Readings of a text among whose takes those with the best lengths are chosen."""

NEAR_ENOUGH = 1.1
"""Tempo, or its inverse, up to which no other reading is made: overlap-add is hardly heard."""

SAME_TEMPO = 0.002
"""Nearer tempos to 1 leave the audio as it is."""


@dataclass(frozen=True)
class Span:
    """Takes that last for a given time together, with the pauses between them."""

    indices: tuple[int, ...]
    seconds: float
    silence: float
    """Seconds that the tempo does not change."""

    @property
    def spoken(self) -> float:
        """Seconds for the takes themselves; TextError where pauses leave none."""
        left = self.seconds - self.silence
        if left <= 0.0:
            raise TextError(
                f"{self.seconds:g} s were asked for, but the pauses alone take {self.silence:.1f} s; give more time or "
                "shorter pauses"
            )
        return left


def fitted(read: Callable[[int], Speech], seconds: float | None) -> list[Take]:
    """The takes of a text, fitted to `seconds` in all, and to the durations that it states.

    read: makes the reading of a number, from 0, each with another seed.
    Raises TextError where the length is beyond the range of the tempo.
    """
    readings = [read(0).takes]
    while True:
        spans = spans_of(readings[0], seconds)
        takes = list(readings[0])
        tempos = []
        for span in spans:
            for index, take in zip(span.indices, nearest(readings, span), strict=True):
                takes[index] = take
            tempos.append(sum(takes[index].seconds for index in span.indices) / span.spoken)
        is_near = all(1.0 / NEAR_ENOUGH <= tempo <= NEAR_ENOUGH for tempo in tempos)
        if is_near or len(readings) == MAX_READINGS:
            break
        readings.append(read(len(readings)).takes)
    for span, tempo in zip(spans, tempos, strict=True):
        check_range(span, tempo)
        stretch(takes, span, tempo)
    return takes


def spans_of(takes: Sequence[Take], seconds: float | None) -> list[Span]:
    """The passages that the text states a duration for, and all else, where the whole has one."""
    stated: dict[int, list[int]] = {}
    for index, take in enumerate(takes):
        if take.duration is not None:
            stated.setdefault(take.duration.number, []).append(index)
    spans = []
    for indices in stated.values():
        duration = takes[indices[0]].duration
        assert duration is not None
        inner = sum(pause_of(takes[index], is_last=False) for index in indices[:-1])
        inner += sum(takes[index].lead_seconds for index in indices[1:])
        spans.append(Span(tuple(indices), duration.seconds, inner))
    others = tuple(index for index, take in enumerate(takes) if take.duration is None)
    if seconds is not None and others:
        pauses = sum(take.lead_seconds + pause_of(take, is_last=take is takes[-1]) for take in takes)
        within = sum(span.silence for span in spans)  # which their durations hold
        spans.append(Span(others, seconds, pauses - within + sum(span.seconds for span in spans)))
    return spans


def nearest(readings: Sequence[Sequence[Take]], span: Span) -> list[Take]:
    """The take of each sentence with the length nearest to its share of the span; a flawed one only without others."""
    usual = sum(readings[0][index].seconds for index in span.indices)
    chosen = []
    for index in span.indices:
        share = span.spoken * readings[0][index].seconds / usual
        takes = [reading[index] for reading in readings if index < len(reading)]
        sound = [take for take in takes if take.warning is None] or takes
        chosen.append(min(sound, key=lambda take: abs(math.log(take.seconds / share))))
    return chosen


def check_range(span: Span, tempo: float) -> None:
    """Raise TextError where a tempo is out of range."""
    if not MIN_SPEED <= tempo <= MAX_SPEED:
        usual = span.spoken * tempo
        least, most = span.silence + usual / MAX_SPEED, span.silence + usual / MIN_SPEED
        raise TextError(
            f"this takes {usual + span.silence:.1f} s at its own pace, so that it can last from {least:.1f} to "
            f"{most:.1f} s, but {span.seconds:g} s were asked for; give more or fewer words, or another length"
        )


def stretch(takes: list[Take], span: Span, tempo: float) -> None:
    """Bring the takes of a span to their length; what the filter leaves is silence after the last one."""
    if abs(tempo - 1.0) > SAME_TEMPO:
        for index in span.indices:
            takes[index] = at_speed(takes[index], tempo)
    last, rate = takes[span.indices[-1]], takes[0].waveform.sample_rate
    missing = span.spoken - sum(takes[index].seconds for index in span.indices)
    if missing < 0.0:
        kept = len(last.waveform.samples) - round(-missing * rate)
        last = replace(last, waveform=Waveform(last.waveform.samples[: max(kept, 1)], rate))
    else:
        last = replace(last, extra_pause_seconds=last.extra_pause_seconds + missing)
    takes[span.indices[-1]] = last
