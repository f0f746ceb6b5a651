"""Takes, one for each sentence, and the speech that they are joined into.

Upstream: `synthesizer`, which makes the takes.  Downstream: callers that play, save or report.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.audio.tempo import change_tempo
from marstts.codec.base import Codes
from marstts.errors import ConfigError
from marstts.generation.request import StopReason
from marstts.lazy import lazy_module
from marstts.synthesis.flaws import TakeFlaw
from marstts.synthesis.word_times import Word

if TYPE_CHECKING:
    from marstts.synthesis import captions
else:
    captions = lazy_module("marstts.synthesis.captions")

NO_WORD_TIMES = (
    "this model has no word times: no head of its attention is known to follow the text; `marstts bundle upgrade` "
    "looks for such heads"
)

EDGE_BELOW_PEAK_DB = 40.0
"""Frames at the edges of a take that are this much below its loudest frame are silence; the end of an "f" is louder."""

SENTENCE_PAUSE_SECONDS = 0.30
CLAUSE_PAUSE_SECONDS = 0.15
WORD_PAUSE_SECONDS = 0.05
"""Silence set between two takes, by the mark the first of them ends with; takes are trimmed before they are joined."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Take:
    """One attempt at one sentence."""

    text: str
    """The normalized sentence, without the transcript of the reference."""

    codes: Codes
    """The generated codes, without prefix and end of speech."""

    waveform: Waveform
    """The decoded codes, silent edges trimmed."""

    stop: StopReason
    """Reason why the take ended."""

    top_p: float
    """Nucleus it was sampled with."""

    attempts: int = 1
    """Takes of this sentence that were sampled, this one included."""

    warning: str | None = None
    """Reason why the take is not acceptable, if no attempt was and this one was the best; else None."""

    extra_pause_seconds: float = 0.0
    """Silence after the take that the text asks for, in addition to the usual one."""

    timing: Callable[[], tuple[Word, ...]] | None = None
    """Computes `words`; None where the model has no word times."""

    flaws: tuple[TakeFlaw, ...] = ()
    """Words that are missing, repeated or broken off, and sounds after the last one, times as in `words`."""

    repaired: str | None = None
    """Remedy for a sentence whose attempts were all flawed; None if no repair was needed, or none helped."""

    @property
    def seconds(self) -> float:
        return self.waveform.seconds

    @cached_property
    def words(self) -> tuple[Word, ...] | None:
        """The words that were said, with times from the beginning of `waveform`; None if the model has no word times.

        They are computed when they are first read, because most callers do not need them.
        """
        return None if self.timing is None else self.timing()

    @cached_property
    def loudness_lufs(self) -> float:
        """Integrated loudness (LUFS)."""
        return audio.loudness_lufs(self.waveform)

    def summary(self) -> TakeSummary:
        """The take without its codes and audio."""
        return TakeSummary(
            text=self.text,
            stop=self.stop,
            top_p=self.top_p,
            attempts=self.attempts,
            seconds=self.seconds,
            warning=self.warning,
            flaws=self.flaws,
            repaired=self.repaired,
        )


@dataclass(frozen=True, kw_only=True)
class TakeSummary:
    """A take without its codes and audio, for reports."""

    text: str
    stop: StopReason
    top_p: float
    attempts: int
    seconds: float
    warning: str | None
    flaws: tuple[TakeFlaw, ...] = ()
    repaired: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Speech:
    """All takes of a text, joined. In a notebook it shows a player."""

    waveform: Waveform
    takes: tuple[Take, ...]

    model: str
    """Name of the model that spoke."""

    seed: int
    """Seed of the sampling: the same text, voice, model, seed and machine give the same speech."""

    compute_seconds: float
    """Wall time from text to joined waveform."""

    first_audio_seconds: float
    """Wall time from text to the first take."""

    text_warning: str | None = None
    """Parts of the text that could not be spoken."""

    @property
    def samples(self) -> NDArray[np.float32]:
        """(N,) float32, at most 1 in magnitude."""
        return self.waveform.samples

    @property
    def sample_rate(self) -> int:
        return self.waveform.sample_rate

    @property
    def seconds(self) -> float:
        return self.waveform.seconds

    @property
    def words(self) -> tuple[Word, ...]:
        """All words, with their times from the beginning of the speech.

        Raises ConfigError if the model has no word times, because no head of its attention follows the text.
        """
        return tuple(
            word.shifted(offset)
            for take, offset in zip(self.takes, take_offsets(self.takes), strict=True)
            for word in known_words(take)
        )

    def save_words(self, path: Path | str) -> None:
        """Write the word times in the format of the file's suffix: .json, .srt, .vtt or .TextGrid."""
        captions.write_captions(self.words, path, seconds=self.seconds)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the listener: text that was left out, and sentences without an acceptable take."""
        found = (self.text_warning, *(take.warning for take in self.takes))
        return tuple(warning for warning in found if warning is not None)

    def save(self, path: Path | str) -> None:
        """Write the audio in the format of the file's suffix: .wav, .flac, .ogg, .opus or .mp3."""
        audio.write(self.waveform, path)

    def wav_bytes(self) -> bytes:
        """The speech as a 16-bit WAV file in memory."""
        return audio.encode(self.waveform, ".wav")

    def report(self) -> dict[str, Any]:
        """The object that `marstts speak --json` prints."""
        return describe_speech(self)

    def _repr_html_(self) -> str:
        source = base64.b64encode(self.wav_bytes()).decode("ascii")
        notes = "".join(f"<div>⚠ {html.escape(warning)}</div>" for warning in self.warnings)
        return f'<audio controls src="data:audio/wav;base64,{source}"></audio>{notes}'

    def __repr__(self) -> str:
        return f"Speech({self.seconds:.2f} s, {len(self.takes)} takes, model={self.model!r}, seed={self.seed})"


def describe_speech(speech: Any) -> dict[str, Any]:
    """Describe a `Speech`, or the report of a stream, for programs."""
    return {
        "audio_seconds": round(speech.seconds, 3),
        "compute_seconds": round(speech.compute_seconds, 3),
        "first_audio_seconds": round(speech.first_audio_seconds, 3),
        "model": speech.model,
        "seed": speech.seed,
        "warnings": list(speech.warnings),
        "takes": [
            {
                "text": take.text,
                "stop": take.stop.value,
                "top_p": take.top_p,
                "attempts": take.attempts,
                "seconds": round(take.seconds, 3),
                "warning": take.warning,
                "repaired": take.repaired,
                "flaws": describe_flaws(take.flaws),
            }
            for take in speech.takes
        ],
    }


def describe_flaws(flaws: Sequence[TakeFlaw]) -> list[dict[str, Any]]:
    """Describe flaws for programs."""
    return [{"kind": flaw.kind.value, "word": flaw.word, "at": flaw.seconds} for flaw in flaws]


def pause_after(text: str) -> float:
    """Seconds of silence after `text`, by its last punctuation mark."""
    mark = text.rstrip("\"')] ")[-1:]
    if mark and mark in ".!?":
        return SENTENCE_PAUSE_SECONDS
    if mark and mark in ",;:—-":
        return CLAUSE_PAUSE_SECONDS
    return WORD_PAUSE_SECONDS


def join(takes: Sequence[Take]) -> Waveform:
    """The takes one after another, with pauses by punctuation between them, at most 1 in magnitude."""
    sample_rate = takes[0].waveform.sample_rate
    pieces = [takes[0].waveform]
    for before, take in pairwise(takes):
        pieces += [silence(pause_after(before.text) + before.extra_pause_seconds, sample_rate), take.waveform]
    return limit_peak(audio.join(pieces))


def at_speed(take: Take, speed: float) -> Take:
    """The take at another tempo, times of its words and flaws included; 1 returns it as it is."""
    if speed == 1.0:
        return take
    return replace(
        take,
        waveform=change_tempo(take.waveform, speed),
        timing=None if take.timing is None else partial(scaled_words, take.timing, 1.0 / speed),
        flaws=tuple(replace(flaw, seconds=round(flaw.seconds / speed, 2)) for flaw in take.flaws),
    )


def scaled_words(timing: Callable[[], tuple[Word, ...]], factor: float) -> tuple[Word, ...]:
    """The words in audio that is `factor` times as long."""
    return tuple(word.scaled(factor) for word in timing())


def take_offsets(takes: Sequence[Take]) -> list[float]:
    """Seconds from the beginning of the joined speech until each take begins."""
    offsets = [0.0]
    for take in takes[:-1]:
        pause = silence(pause_after(take.text) + take.extra_pause_seconds, take.waveform.sample_rate)
        offsets.append(offsets[-1] + take.seconds + pause.seconds)
    return offsets[: len(takes)]


def known_words(take: Take) -> tuple[Word, ...]:
    """The words of a take; ConfigError where its model has no word times."""
    if take.words is None:
        raise ConfigError(NO_WORD_TIMES)
    return take.words


def silence(seconds: float, sample_rate: int) -> Waveform:
    return Waveform(np.zeros(round(seconds * sample_rate), dtype=np.float32), sample_rate)


def limit_peak(waveform: Waveform) -> Waveform:
    """The same audio, scaled down as a whole if its peak would be clipped in a file."""
    peak = float(np.abs(waveform.samples).max(initial=0.0))
    return waveform if peak <= 1.0 else Waveform(waveform.samples / np.float32(peak), waveform.sample_rate)
