"""Completeness of recordings: the length in a container's headers, compared with the file's size.

Upstream: an open file.  Downstream: `decoders`.  A decoder that finds less than the header states
reports no error, so half a sentence would be taken for a whole one. Writers that stream leave lengths unknown: this is
accepted. Layouts: RIFF (Microsoft 1994), RF64 (EBU Tech 3306), Wave64 (Sony), IFF 85, Core Audio (Apple), Ogg
(RFC 3533), NIST SPHERE; MPEG audio is in `mpeg`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import BinaryIO

from marstts.audio import mpeg

_UNKNOWN_FROM = 0x7FFF_0000
"""32-bit lengths from here on are placeholders of streaming writers for an unknown length."""

_MAX_CHUNKS = 10_000
_OGG_TAIL = 2**17
"""Bytes at the end of an Ogg file in which its last page begins: a page has at most 65,307."""

_END_OF_STREAM = 0x04
_W64_DATA = b"data" + bytes.fromhex("f3acd3118cd100c04f8edb8a")


def is_cut_short(file: BinaryIO, size: int) -> bool:
    """Return True where a file of `size` bytes is shorter than its headers state; False where no header does.

    The file's position is where it was before.
    """
    position = file.tell()
    try:
        file.seek(0)
        start = file.read(16)
        for pattern, check in _CHECKS:
            if re.match(pattern, start, re.DOTALL):
                return check(file, size)
        return False
    finally:
        file.seek(position)


def _read_at(file: BinaryIO, offset: int, count: int, size: int) -> bytes:
    """The bytes at an offset from a header, fewer where the file ends: the offset may be beyond any number."""
    if offset >= size:
        return b""
    file.seek(offset)
    return file.read(count)


def _riff(file: BinaryIO, size: int) -> bool:
    file.seek(0)
    order = ">" if file.read(4) == b"RIFX" else "<"
    long_size: int | None = None
    offset = 12
    for _ in range(_MAX_CHUNKS):
        header = _read_at(file, offset, 8, size)
        if len(header) < 8:
            return False
        kind, length = header[:4], struct.unpack(f"{order}I", header[4:])[0]
        if kind == b"ds64":
            long_size = struct.unpack("<8xQ8x", (file.read(24) + bytes(24))[:24])[0]
        if kind == b"data":
            if long_size is not None and length == 0xFFFF_FFFF:
                return offset + 8 + long_size > size
            return length < _UNKNOWN_FROM and offset + 8 + length > size
        offset += 8 + length + length % 2
    return False


def _w64(file: BinaryIO, size: int) -> bool:
    offset = 40  # the GUIDs of RIFF and WAVE, and a length between them
    for _ in range(_MAX_CHUNKS):
        header = _read_at(file, offset, 24, size)
        if len(header) < 24:
            return False
        length = struct.unpack("<Q", header[16:])[0]
        if header[:16] == _W64_DATA:
            return offset + length > size
        offset += max(24, length + -length % 8)
    return False


def _iff(file: BinaryIO, size: int) -> bool:
    offset = 12
    for _ in range(_MAX_CHUNKS):
        header = _read_at(file, offset, 8, size)
        if len(header) < 8:
            return False
        length = struct.unpack(">I", header[4:])[0]
        if header[:4] in (b"SSND", b"BODY"):
            return length < _UNKNOWN_FROM and offset + 8 + length > size
        offset += 8 + length + length % 2
    return False


def _caf(file: BinaryIO, size: int) -> bool:
    offset = 8
    for _ in range(_MAX_CHUNKS):
        header = _read_at(file, offset, 12, size)
        if len(header) < 12:
            return False
        length = struct.unpack(">q", header[4:])[0]
        if header[:4] == b"data" or length < 0:  # -1: unknown, up to the end
            return offset + 12 + length > size
        offset += 12 + length
    return False


def _au(file: BinaryIO, size: int) -> bool:
    file.seek(0)
    header = file.read(12)
    if len(header) < 12:
        return False
    order = ">" if header[:4] == b".snd" else "<"
    offset, length = struct.unpack(f"{order}II", header[4:])
    return length < _UNKNOWN_FROM and offset + length > size


def _nist(file: BinaryIO, size: int) -> bool:
    file.seek(0)
    header = file.read(4096).decode("latin-1")
    found = {name: int(value) for name, value in re.findall(r"^(\w+) -i (\d{1,18})\s*$", header, re.MULTILINE)}
    lines = header.split("\n", 2)
    if len(lines) < 2 or not lines[1].strip().isdigit() or "sample_count" not in found:
        return False
    values = found["sample_count"] * found.get("channel_count", 1) * found.get("sample_n_bytes", 2)
    return int(lines[1].strip()[:9]) + values > size


def _ogg(file: BinaryIO, size: int) -> bool:
    """Return True where the last page is cut off, or is not the last of its stream."""
    file.seek(max(0, size - _OGG_TAIL))
    tail = file.read(_OGG_TAIL)
    start = tail.rfind(b"OggS\0")
    while start >= 0:
        count = tail[start + 26] if start + 27 <= len(tail) else 0
        end = start + 27 + count + sum(tail[start + 27 : start + 27 + count])
        if start + 27 + count > len(tail) or end > len(tail):
            return True
        if end == len(tail) or tail[end : end + 3] == b"TAG":
            return not tail[start + 5] & _END_OF_STREAM
        start = tail.rfind(b"OggS\0", 0, start)  # these letters were in the page's content
    return True


_CHECKS: tuple[tuple[bytes, Callable[[BinaryIO, int], bool]], ...] = (
    (rb"(RIFF|RIFX|RF64|BW64)....WAVE", _riff),
    (rb"riff\x2e\x91\xcf\x11", _w64),
    (rb"FORM....(AIFF|AIFC|8SVX|16SV)", _iff),
    (rb"caff", _caf),
    (rb"\.snd|dns\.", _au),
    (rb"NIST_1A", _nist),
    (rb"OggS", _ogg),
    (rb"ID3|\xff[\xe0-\xff]", lambda file, size: mpeg.walk(file).is_cut_short),
)
