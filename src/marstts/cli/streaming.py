"""Where speech goes chunk by chunk: a loudspeaker, a pipe, or a growing file.

Upstream: `cli.speak`, `cli.book`.  Downstream: sounddevice (extra `play`), standard output, soundfile.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.errors import AudioError, MissingExtraError, require
from marstts.io.files import atomic_write
from marstts.synthesis.speech import Chunk, describe_speech
from marstts.synthesis.words.word_times import Word

LOUDSPEAKER, STANDARD_OUTPUT = "the loudspeaker", "-"

Sink = Callable[[Chunk], None]


@contextmanager
def open_sink(output: str, sample_rate: int, *, at_once: bool) -> Iterator[Sink]:
    """Destination of chunks: `LOUDSPEAKER`, standard output, a pipe or device, or an audio file, which grows.

    Standard output gets raw 16-bit PCM `at_once`, or a whole WAV file when all is spoken; other pipes likewise.
    """
    if output == LOUDSPEAKER:
        with open_loudspeaker(sample_rate) as sink:
            yield sink
    elif output == STANDARD_OUTPUT and at_once:
        yield write_to_pipe
    elif output == STANDARD_OUTPUT:
        with audio.open_held_stream(sys.stdout.buffer, ".wav", sample_rate) as write:
            yield lambda chunk: write(chunk.samples)
    elif is_pipe(output) and not at_once:
        with (
            atomic_write(output, AudioError) as target,
            audio.open_held_stream(target, Path(output).suffix, sample_rate) as write,
        ):
            yield lambda chunk: write(chunk.samples)
    else:
        with audio.open_writer(Path(output), sample_rate) as write:
            yield lambda chunk: write(chunk.samples)


def is_pipe(output: str) -> bool:
    """Whether an output is a pipe or device that exists."""
    return os.path.exists(output) and not os.path.isfile(output)


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
    """Report of a speech that went chunk by chunk; it holds no audio, so that hours of speech need no memory for it."""

    seconds: float

    takes: tuple[dict[str, Any], ...]
    """The reports of the takes."""

    model: str
    seed: int
    compute_seconds: float
    first_audio_seconds: float
    warnings: tuple[str, ...] = ()
    """Notes on text that was left out, and takes that no attempt made acceptable."""

    words: tuple[Word, ...] = ()
    """Times from the beginning of the speech; empty for a model without word times."""

    def report(self) -> dict[str, Any]:
        """The object that `marstts speak --json` prints."""
        return describe_speech(self, self.takes)


def play_through(
    chunks: Iterable[Chunk], sink: Sink, *, model: str, seed: int, started: float | None = None
) -> StreamReport:
    """Send every chunk as it comes -> a report. `started`: when work on the speech began; now, if that is not given."""
    started = time.perf_counter() if started is None else started
    first_audio_seconds, num_samples, sample_rate = 0.0, 0, 1
    takes: list[dict[str, Any]] = []
    of_text: list[str] = []
    of_takes: list[str] = []
    words: list[Word] = []
    for chunk in chunks:
        if len(chunk.samples):
            sink(chunk)
            num_samples, sample_rate = num_samples + len(chunk.samples), chunk.sample_rate
            first_audio_seconds = first_audio_seconds or time.perf_counter() - started
        words += chunk.words
        of_text += [chunk.text_warning] if chunk.text_warning else []
        if chunk.take is not None:
            takes.append(chunk.take.report())
            of_takes += [chunk.take.warning] if chunk.take.warning else []
    return StreamReport(
        seconds=num_samples / sample_rate,
        takes=tuple(takes),
        model=model,
        seed=seed,
        compute_seconds=time.perf_counter() - started,
        first_audio_seconds=first_audio_seconds,
        warnings=(*of_text, *of_takes),
        words=tuple(words),
    )
