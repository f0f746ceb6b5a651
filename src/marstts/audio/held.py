"""Whole files for pipes, whose header says how long they are: nothing is sent before all of the audio is there.

Upstream: `cli.streaming`, which gets speech piece by piece.  Downstream: `writer`.
Until then the encoded file waits in memory while it is small, later on disk without a name, so that hours of speech
need no memory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, cast

import numpy as np
import soundfile

from marstts.audio.writer import Write, format_of, rate_for, resampling
from marstts.errors import AudioError
from marstts.io.file_errors import os_errors

MAX_HELD_BYTES = 16 * 2**20
"""Larger files are held on disk."""

TEMPORARY = "the temporary file of the audio"
"""Its name in messages."""


@contextmanager
def open_held_stream(target: BinaryIO, suffix: str, sample_rate: int) -> Iterator[Write]:
    """Write a whole file in the format of `suffix` to a pipe when the body ends -> takes the next samples (N,)."""
    container, encoding = format_of(suffix)
    rate = rate_for(suffix, sample_rate)
    with cast("IO[bytes]", tempfile.SpooledTemporaryFile(MAX_HELD_BYTES)) as encoded:
        with (
            os_errors(TEMPORARY, kind=AudioError),
            soundfile.SoundFile(encoded, "w", rate, 1, encoding, format=container) as file,
        ):
            write_any = resampling(lambda samples: file.write(np.clip(samples, -1.0, 1.0)), sample_rate, rate)
            yield write_any
            if rate != sample_rate:
                write_any(np.zeros(0, np.float32))
        encoded.seek(0)
        shutil.copyfileobj(encoded, target)
        target.flush()
