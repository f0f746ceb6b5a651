"""Files of which something is decided at the end: how loud they may be, where they begin, what their header says.

Upstream: `cli.streaming`, which gets speech piece by piece.  Downstream: `writer`.
Until then the samples wait in memory while they are few, later in a file without a name, so that hours of speech need
no memory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Protocol, cast

import numpy as np
import soundfile
from numpy.typing import NDArray

from marstts.audio.waveform import TRIM_FRAME, TRIM_HOP, audible_samples, sums_of_hops
from marstts.audio.writer import Write, check_finite, format_of, growing_file, rate_for, resampling
from marstts.errors import AudioError
from marstts.io.file_errors import os_errors

MAX_HELD_BYTES = 16 * 2**20
"""Three minutes of samples; more of them are held on disk."""

HELD_BLOCK_SAMPLES = 2**18
"""Samples are read back in blocks of so many."""

BYTES_PER_SAMPLE = 4

TEMPORARY = "the temporary file of the audio"
"""Name of the spool in messages."""

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Decision:
    """Samples of a file that are kept, and their scale."""

    start: int
    end: int
    """The first sample that is kept, and the last + 1."""

    divisor: np.float32
    """Divides the samples."""


class Ending(Protocol):
    """Sees all samples of a file in order, and decides at the end."""

    def push(self, samples: Samples) -> None:
        """Take the next samples (N,)."""
        ...

    def decide(self) -> Decision:
        """Decide; nothing is pushed after it."""
        ...


class PeakLimit:
    """Keeps all samples; where the peak is above 1, all of them are made quieter."""

    def __init__(self) -> None:
        self._length, self._peak = 0, 0.0

    def push(self, samples: Samples) -> None:
        """Take the next samples (N,)."""
        self._length += len(samples)
        self._peak = max(self._peak, float(np.abs(samples).max(initial=0.0)))

    def decide(self) -> Decision:
        """All samples, divided by a peak above 1."""
        return Decision(0, self._length, np.float32(max(self._peak, 1.0)))


class EdgeTrim:
    """Keeps what `waveform.trim_silence` would keep of the whole; samples are not scaled."""

    def __init__(self) -> None:
        self._length = 0
        self._rest = np.zeros(TRIM_FRAME // 2)
        self._hops: list[NDArray[np.float64]] = []

    def push(self, samples: Samples) -> None:
        """Take the next samples (N,)."""
        self._length += len(samples)
        self._add(samples.astype(np.float64) ** 2)

    def decide(self) -> Decision:
        """The samples from the first to the last audible frame."""
        self._add(np.zeros(TRIM_FRAME // 2))
        return Decision(*audible_samples(np.concatenate(self._hops), self._length), np.float32(1.0))

    def _add(self, squares: NDArray[np.float64]) -> None:
        squares = np.concatenate([self._rest, squares])
        self._hops.append(sums_of_hops(squares))
        self._rest = squares[len(squares) // TRIM_HOP * TRIM_HOP :]


class HeldAudio:
    """The samples of a file in the making."""

    def __init__(self, spool: IO[bytes], ending: Ending, write_at_once: Write) -> None:
        self._spool, self._ending, self._write_at_once = spool, ending, write_at_once
        self.length = 0
        """Samples written so far; when the file is complete, those that it holds."""

    def write(self, samples: Samples) -> None:
        """Take the next samples (N,); AudioError where they are not finite."""
        check_finite(samples)
        self._write_at_once(samples)
        with os_errors(TEMPORARY, kind=AudioError):
            self._spool.write(samples.astype(np.float32, copy=False).tobytes())
        self._ending.push(samples)
        self.length += len(samples)

    def finish(self, rewrite: Callable[[Iterator[Samples]], None], *, is_written: bool) -> None:
        """Write the samples as decided; not again, where all of them `is_written` already, and stay as they are."""
        decision = self._ending.decide()
        if not is_written or decision != Decision(0, self.length, np.float32(1.0)):
            rewrite(self._blocks(decision))
        self.length = decision.end - decision.start

    def _blocks(self, decision: Decision) -> Iterator[Samples]:
        for first in range(decision.start, decision.end, HELD_BLOCK_SAMPLES):
            with os_errors(TEMPORARY, "be read", AudioError):
                self._spool.seek(first * BYTES_PER_SAMPLE)
                content = self._spool.read(min(decision.end - first, HELD_BLOCK_SAMPLES) * BYTES_PER_SAMPLE)
            yield np.frombuffer(content, np.float32) / decision.divisor


@contextmanager
def open_held_writer(path: Path, sample_rate: int, ending: Ending) -> Iterator[HeldAudio]:
    """Write a file as `writer.open_writer` does, piece by piece; it is written anew where `ending` changes anything."""
    with growing_file(path, sample_rate, None) as begin, open_spool(path.parent) as spool:
        with begin() as write_piece:
            held = HeldAudio(spool, ending, write_piece)
            yield held

        def rewrite(blocks: Iterator[Samples]) -> None:
            with begin() as write_piece:
                for block in blocks:
                    write_piece(block)

        held.finish(rewrite, is_written=True)


@contextmanager
def open_held_stream(target: BinaryIO, suffix: str, sample_rate: int, ending: Ending) -> Iterator[HeldAudio]:
    """Write a whole file in the format of `suffix` to a pipe when the body ends: its header has the length."""
    container, encoding = format_of(suffix)
    rate = rate_for(suffix, sample_rate)
    with open_spool() as spool, open_spool() as encoded:
        held = HeldAudio(spool, ending, lambda samples: None)
        yield held

        def rewrite(blocks: Iterator[Samples]) -> None:
            with (
                os_errors(TEMPORARY, kind=AudioError),
                soundfile.SoundFile(encoded, "w", rate, 1, encoding, format=container) as file,
            ):
                write_any = resampling(lambda samples: file.write(np.clip(samples, -1.0, 1.0)), sample_rate, rate)
                for block in blocks:
                    write_any(block)
                write_any(np.zeros(0, np.float32))

        held.finish(rewrite, is_written=False)
        encoded.seek(0)
        shutil.copyfileobj(encoded, target)
        target.flush()


def open_spool(folder: Path | None = None) -> IO[bytes]:
    """A temporary file without a name in `folder`, or in that of the system; in memory while it is small."""
    place = None if folder is None else str(folder)
    return cast("IO[bytes]", tempfile.SpooledTemporaryFile(MAX_HELD_BYTES, dir=place))
