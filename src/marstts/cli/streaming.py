"""`marstts speak --stream`: chunks to a loudspeaker, into a pipe or a growing file, as they are made.

Upstream: `cli.speak`, `Synthesizer.stream`.  Downstream: sounddevice (extra `play`), standard output, soundfile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import AudioError, MissingExtraError, require
from marstts.synthesis.speech import Speech, Take
from marstts.synthesis.stream import Chunk

LOUDSPEAKER, STANDARD_OUTPUT = "the loudspeaker", "-"

Sink = Callable[[Chunk], None]


@contextmanager
def open_sink(output: str, sample_rate: int) -> Iterator[Sink]:
    """Where chunks go: `LOUDSPEAKER`, standard output as raw 16-bit PCM, or a sound file."""
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


def play_through(chunks: Iterable[Chunk], sink: Sink, *, model: str, seed: int, text_warning: str | None) -> Speech:
    """Hand every chunk on as it comes; what the stream was, once it is over."""
    started = time.perf_counter()
    first_audio_seconds = 0.0
    pieces: list[Chunk] = []
    takes: list[Take] = []
    for chunk in chunks:
        if len(chunk.samples):
            sink(chunk)
            first_audio_seconds = first_audio_seconds or time.perf_counter() - started
        pieces.append(chunk)
        takes += [chunk.take] if chunk.take is not None else []
    return Speech(
        waveform=Waveform(np.concatenate([chunk.samples for chunk in pieces]), pieces[0].sample_rate),
        takes=tuple(takes),
        model=model,
        seed=seed,
        compute_seconds=time.perf_counter() - started,
        first_audio_seconds=first_audio_seconds,
        text_warning=text_warning,
    )
