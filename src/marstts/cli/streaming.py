"""`marstts speak --stream`: chunks to a loudspeaker, into a pipe or a growing file, as they are made.

Upstream: `cli.speak`, `Synthesizer.stream`.  Downstream: sounddevice (extra `play`), standard output, soundfile.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marstts import audio
from marstts.errors import AudioError, MissingExtraError, require
from marstts.io.files import atomic_write
from marstts.synthesis.speech import TakeSummary, describe_speech
from marstts.synthesis.stream import Chunk
from marstts.synthesis.word_times import Word

if TYPE_CHECKING:
    from marstts.synthesis.in_order import SpokenSentence

LOUDSPEAKER, STANDARD_OUTPUT = "the loudspeaker", "-"

Sink = Callable[[Chunk], None]


@contextmanager
def open_sink(output: str, sample_rate: int) -> Iterator[Sink]:
    """Destination of chunks: `LOUDSPEAKER`, standard output as raw 16-bit PCM, or a sound file."""
    if output == LOUDSPEAKER:
        with open_loudspeaker(sample_rate) as sink:
            yield sink
    elif output == STANDARD_OUTPUT:
        yield write_to_pipe
    else:
        with audio.open_writer(Path(output), sample_rate) as write:
            yield lambda chunk: write(chunk.samples)


def write_to_pipe(chunk: Chunk) -> None:
    """Raw PCM, signed 16 bits, little-endian, at once."""
    sys.stdout.buffer.write(chunk.pcm())
    sys.stdout.buffer.flush()


@contextmanager
def open_loudspeaker(sample_rate: int) -> Iterator[Sink]:
    """The system's default output; raises MissingExtraError or AudioError where there is none to be had."""
    try:
        sounddevice = require("sounddevice", "play")
    except OSError as error:  # the package is there, but not the library it binds
        raise MissingExtraError(
            f"playing needs the PortAudio library ({error}): install it (apt-get install libportaudio2), or give "
            "--output"
        ) from error
    try:
        device = sounddevice.RawOutputStream(samplerate=sample_rate, channels=1, dtype="int16")
    except sounddevice.PortAudioError as error:
        raise AudioError(
            f"no loudspeaker can be opened ({error}); give --output to write the stream instead"
        ) from error
    with device:
        yield lambda chunk: device.write(chunk.pcm())


@dataclass(frozen=True, kw_only=True)
class StreamReport:
    """Report of a stream; unlike a `Speech` it holds no audio, so that a stream of hours needs no memory for it."""

    seconds: float
    takes: tuple[TakeSummary, ...]
    model: str
    seed: int
    compute_seconds: float
    first_audio_seconds: float
    warnings: tuple[str, ...] = ()
    """Notes on text that was left out, and takes that no attempt made acceptable."""

    words: tuple[Word, ...] = ()
    """Times from the beginning of the stream; empty for a model without word times."""

    def report(self) -> dict[str, Any]:
        """The object that `marstts speak --json` prints."""
        return describe_speech(self)


def write_sentences(
    sentences: Iterable[SpokenSentence],
    opened: AbstractContextManager[audio.HeldAudio],
    sample_rate: int,
    *,
    model: str,
    seed: int,
    started: float,
) -> StreamReport:
    """Write every sentence as it comes -> a report of the speech. `started` is when work on it began."""
    first_audio_seconds = 0.0
    takes: list[TakeSummary] = []
    words: list[Word] = []
    text_warnings: list[str] = []
    with opened as held:
        for sentence in sentences:
            first_audio_seconds = first_audio_seconds or time.perf_counter() - started
            held.write(sentence.samples)
            takes.append(sentence.take.summary())
            words += sentence.words
            text_warnings += [sentence.text_warning] if sentence.text_warning else []
    return StreamReport(
        seconds=held.length / sample_rate,
        takes=tuple(takes),
        model=model,
        seed=seed,
        compute_seconds=time.perf_counter() - started,
        first_audio_seconds=first_audio_seconds,
        warnings=(*text_warnings, *(take.warning for take in takes if take.warning is not None)),
        words=tuple(words),
    )


@contextmanager
def open_held(output: str, sample_rate: int, ending: audio.Ending) -> Iterator[audio.HeldAudio]:
    """Destination of sentences: a file that grows, or a pipe or device that gets the whole when all are spoken."""
    if output == STANDARD_OUTPUT:
        with audio.open_held_stream(sys.stdout.buffer, ".wav", sample_rate, ending) as held:
            yield held
    elif is_pipe(output):
        with (
            atomic_write(output, AudioError) as target,
            audio.open_held_stream(target, Path(output).suffix, sample_rate, ending) as held,
        ):
            yield held
    else:
        with audio.open_held_writer(Path(output), sample_rate, ending) as held:
            yield held


def is_pipe(output: str) -> bool:
    """Whether an output is standard output, or a pipe or device that exists: nothing there can be written anew."""
    return output == STANDARD_OUTPUT or (os.path.exists(output) and not os.path.isfile(output))


def play_through(chunks: Iterable[Chunk], sink: Sink, *, model: str, seed: int) -> StreamReport:
    """Send every chunk as it comes -> a report of the stream."""
    started = time.perf_counter()
    first_audio_seconds = seconds = 0.0
    takes: list[TakeSummary] = []
    warnings: list[str] = []
    words: list[Word] = []
    for chunk in chunks:
        if len(chunk.samples):
            sink(chunk)
            seconds += chunk.seconds
            first_audio_seconds = first_audio_seconds or time.perf_counter() - started
        takes += [chunk.take.summary()] if chunk.take is not None else []
        words += chunk.words
        warnings += [chunk.warning] if chunk.warning else []
    return StreamReport(
        seconds=seconds,
        takes=tuple(takes),
        model=model,
        seed=seed,
        compute_seconds=time.perf_counter() - started,
        first_audio_seconds=first_audio_seconds,
        warnings=tuple(warnings),
        words=tuple(words),
    )
