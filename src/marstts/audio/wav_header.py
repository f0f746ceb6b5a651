"""Contradictions in the header of a WAV file: libsndfile believes one number and drops the others.

Upstream: an open file.  Downstream: `decoders`.  A wrong number of channels, of bits or a wrong rate changes pitch and
length of what is read; a wrong length of the data leaves the rest out. Only what is refuted by two other numbers of the
header is called wrong: many writers leave the rate of bytes, the size of a block or that of the file at zero.
"""

from __future__ import annotations

import re
import struct
from typing import BinaryIO

PCM, FLOAT, A_LAW, MU_LAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE

_PLAUSIBLE_RATES = range(4_000, 400_000)
_MAX_CHUNKS = 1_000
_PLACEHOLDER_FROM = 0x7FFF_0000


def contradiction(file: BinaryIO, size: int) -> str | None:
    """The contradiction in the header of a file of `size` bytes; None where there is none, or it is no WAV file.

    The file's position is where it was before.
    """
    position = file.tell()
    try:
        file.seek(0)
        start = file.read(12)
        if not re.match(rb"(RIFF|RIFX)....WAVE", start, re.DOTALL):
            return None
        order = ">" if start[:4] == b"RIFX" else "<"
        return _contradiction(file, size, order, 8 + struct.unpack(f"{order}I", start[4:8])[0])
    finally:
        file.seek(position)


def _contradiction(file: BinaryIO, size: int, order: str, riff_end: int) -> str | None:
    """`riff_end`: where the file ends by its own statement."""
    offset, behind_data = 12, False
    for _ in range(_MAX_CHUNKS):
        if offset + 8 > min(size, riff_end):
            return None
        file.seek(offset)
        kind, length = struct.unpack(f"{order}4sI", file.read(8))
        if behind_data and not (re.fullmatch(rb"[ -~]{4}", kind) and offset + 8 + length <= size):
            return "audio lies behind the end that its header states"
        if kind == b"fmt " and length >= 16:
            found = format_contradiction(*struct.unpack(f"{order}HHIIHH", (file.read(16) + bytes(16))[:16]))
            if found:
                return found
        if kind == b"data":
            if length >= _PLACEHOLDER_FROM:
                return None
            behind_data = True
        offset += 8 + length + length % 2
    return None


def format_contradiction(
    encoding: int, channels: int, sample_rate: int, byte_rate: int, block: int, bits: int
) -> str | None:
    """The contradiction among the numbers of a format, if its samples have one size."""
    if encoding not in (PCM, FLOAT, A_LAW, MU_LAW, EXTENSIBLE) or not block:
        return None
    by_sample = channels * (1 if encoding in (A_LAW, MU_LAW) else (bits + 7) // 8)
    if by_sample != block and byte_rate == sample_rate * block:
        return f"{channels} channels of {bits} bits are not {block} bytes"
    if by_sample == block and byte_rate % block == 0 and byte_rate // block in _PLAUSIBLE_RATES:
        return None if byte_rate // block == sample_rate else f"{sample_rate} Hz are not {byte_rate} bytes a second"
    return None
