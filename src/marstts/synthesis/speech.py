"""Values: takes, one for each sentence, chunks of a speech that is still spoken, and the speech of a whole text.

Upstream: `runner`, which makes the takes.  Downstream: callers that play, save or report.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.audio.limiter import limit_peaks
from marstts.audio.tempo import change_tempo
from marstts.codec.base import Codes
from marstts.errors import ConfigError
from marstts.generation.request import StopReason
from marstts.synthesis.words import captions
from marstts.synthesis.words.flaws import TakeFlaw
from marstts.synthesis.words.word_times import Word
from marstts.text.phones import readable
from marstts.text.segments import SENTENCE_PAUSE_SECONDS, Duration
from marstts.text.sentences import last_mark
from marstts.voice import Prefix, Voice

Samples = NDArray[np.float32]

NO_WORD_TIMES = (
    "this model has no word times: no head of its attention is known to follow the text; `marstts bundle upgrade` "
    "looks for such heads"
)

EDGE_BELOW_PEAK_DB = 40.0
"""Frames at the edges of a take that are this much below its loudest frame are silence; the end of an "f" is louder."""

MAX_TAIL_SECONDS = 0.4
"""Longest end of a take that is much quieter than its loudest frame (`audio.TAIL_BELOW_PEAK_DB`): a final "s" is
shorter, breath is longer."""

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

    lead_seconds: float = 0.0
    """Silence before the take that the text asks for."""

    extra_pause_seconds: float = 0.0
    """Silence after the take that the text asks for, in addition to the usual one."""

    duration: Duration | None = None
    """Length of the passage that it is a part of, where the text states one."""

    timing: Callable[[], tuple[Word, ...]] | None = None
    """Computes `words`; None where the model has no word times."""

    flaws: tuple[TakeFlaw, ...] = ()
    """Words that are missing, repeated or broken off, and sounds after the last one, times as in `words`."""

    is_level: bool = False
    """Whether it is a question whose pitch should rise at its end and does not."""

    goodness: float | None = None
    """Goodness of pronunciation, at most 0 (`words.pronunciation`); None where it was not measured."""

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

    def report(self) -> dict[str, Any]:
        """The take without codes and audio, for programs."""
        return {
            "text": readable(self.text),
            "stop": self.stop.value,
            "top_p": self.top_p,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 3),
            "warning": self.warning,
            "repaired": self.repaired,
            "flaws": [{"kind": flaw.kind.value, "word": flaw.word, "at": flaw.seconds} for flaw in self.flaws],
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Chunk:
    """The next piece of a speech: a whole sentence, or what there is of it."""

    samples: Samples
    """(N,) float32, at most 1 in magnitude; chunks joined are the speech. May be empty where a chunk reports `take`."""

    sample_rate: int

    sentence: int
    """Number of its sentence, from 1."""

    text: str = ""
    """The normalized sentence."""

    written: str = ""
    """The sentence as it was written, where its words are known."""

    take: Take | None = None
    """The take of the sentence, with its last chunk."""

    text_warning: str | None = None
    """Parts of the text that could not be spoken; comes with the first chunk, or with the last one of a long text."""

    is_last: bool = False
    """Whether no chunk follows."""

    voice: str | None = None
    """Name of the voice that says it, where the text or `dialogue` names one."""

    words: tuple[Word, ...] = ()
    """Words that were finished since the last chunk, times from the beginning of the speech; none from a model without
    word times. The audio of a word may still follow with the next chunk."""

    @property
    def warning(self) -> str | None:
        """Warning for the listener: text that was left out, or a flawed take."""
        found = (self.text_warning, None if self.take is None else self.take.warning)
        return "; ".join(warning for warning in found if warning) or None

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    def pcm(self) -> bytes:
        """The samples as 16-bit integers, little-endian."""
        return np.rint(self.samples * 32767.0).astype("<i2").tobytes()


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
        return describe_speech(self, [take.report() for take in self.takes])

    def _repr_html_(self) -> str:
        source = base64.b64encode(self.wav_bytes()).decode("ascii")
        notes = "".join(f"<div>⚠ {html.escape(warning)}</div>" for warning in self.warnings)
        return f'<audio controls src="data:audio/wav;base64,{source}"></audio>{notes}'

    def __repr__(self) -> str:
        return f"Speech({self.seconds:.2f} s, {len(self.takes)} takes, model={self.model!r}, seed={self.seed})"


def describe_speech(speech: Any, takes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Describe a `Speech`, or what was written of one, for programs; `takes` are the reports of its takes."""
    return {
        "audio_seconds": round(speech.seconds, 3),
        "compute_seconds": round(speech.compute_seconds, 3),
        "first_audio_seconds": round(speech.first_audio_seconds, 3),
        "model": speech.model,
        "seed": speech.seed,
        "warnings": list(speech.warnings),
        "takes": list(takes),
    }


def pause_after(text: str) -> float:
    """Seconds of silence after `text`, by its last punctuation mark."""
    mark = last_mark(text)
    if mark and mark in ".!?":
        return SENTENCE_PAUSE_SECONDS
    if mark and mark in ",;:—-":
        return CLAUSE_PAUSE_SECONDS
    return WORD_PAUSE_SECONDS


def join(takes: Sequence[Take]) -> Waveform:
    """The takes one after another, with pauses by punctuation between them."""
    samples = [spaced(take, is_last=take is takes[-1]) for take in takes]
    return Waveform(np.concatenate(samples), takes[0].waveform.sample_rate)


def spaced(take: Take, *, is_last: bool) -> Samples:
    """(N,) the take with faded ends, between the pauses that the text asks for."""
    after = silence(pause_of(take, is_last=is_last), take.waveform.sample_rate)
    return np.concatenate([led(take), after.samples])


def led(take: Take) -> Samples:
    """(N,) the take with faded ends, after the pause that the text asks for."""
    before = silence(take.lead_seconds, take.waveform.sample_rate)
    return np.concatenate([before.samples, audio.join([take.waveform]).samples])


def pause_of(take: Take, *, is_last: bool) -> float:
    """Seconds of silence after a take; after the last one, only what the text asks for."""
    return max(0.0, take.extra_pause_seconds + (0.0 if is_last else pause_after(take.text)))


def at_speed(take: Take, speed: float) -> Take:
    """The take at another tempo, times of its words and flaws included, and never beyond ±1."""
    if speed == 1.0:
        return replace(take, waveform=limit_peaks(take.waveform))
    return replace(at_other_times(take, speed), waveform=limit_peaks(change_tempo(take.waveform, speed)))


def at_other_times(take: Take, speed: float) -> Take:
    """The take with the times of words and flaws at another tempo, and the same audio."""
    if speed == 1.0:
        return take
    return replace(
        take,
        timing=None if take.timing is None else partial(scaled_words, take.timing, 1.0 / speed),
        flaws=tuple(replace(flaw, seconds=round(flaw.seconds / speed, 2)) for flaw in take.flaws),
    )


def scaled_words(timing: Callable[[], tuple[Word, ...]], factor: float) -> tuple[Word, ...]:
    """The words in audio that is `factor` times as long."""
    return tuple(word.scaled(factor) for word in timing())


def take_offsets(takes: Sequence[Take]) -> list[float]:
    """Seconds from the beginning of the joined speech until each take begins."""
    offsets, end = [], 0
    for take in takes:
        rate = take.waveform.sample_rate
        start = end + len(silence(take.lead_seconds, rate).samples)
        offsets.append(start / rate)
        end = start + len(take.waveform.samples) + len(silence(pause_of(take, is_last=False), rate).samples)
    return offsets


def known_words(take: Take) -> tuple[Word, ...]:
    """The words of a take; ConfigError where its model has no word times."""
    if take.words is None:
        raise ConfigError(NO_WORD_TIMES)
    return take.words


def silence(seconds: float, sample_rate: int) -> Waveform:
    return Waveform(np.zeros(round(seconds * sample_rate), dtype=np.float32), sample_rate)


# Continuation: the prefix that a sentence continues from.
# MARS6 (arXiv:2501.05787), Sec. IV.


class Continuation(str, Enum):
    """The prefix of each sentence."""

    NONE = "none"
    """No prefix: a deep voice is used as a shallow one."""

    FIXED_REFERENCE = "fixed-reference"
    """The voice's prefix for every sentence; a shallow voice has none. Errors cannot accumulate."""

    PER_CHUNK = "per-chunk"
    """The voice's prefix for the first sentence, then the take before: prosody continues, the voice may drift."""


def first_voice(voice: Voice, continuation: Continuation) -> Voice:
    """The voice of the first sentence."""
    return voice.without_prefix() if continuation is Continuation.NONE else voice


def next_voice(voice: Voice, take: Take, continuation: Continuation) -> Voice:
    """The voice of the sentence after `take`. A flawed take is never continued from."""
    if continuation is not Continuation.PER_CHUNK or take.warning is not None:
        return voice
    return replace(voice, prefix=Prefix(transcript=take.text, codes=take.codes))
