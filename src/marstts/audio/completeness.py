"""Completeness of recordings: what headers state, compared with what is there.

Upstream: the log of libsndfile, which compares the lengths of chunks with the file, and Ogg pages (RFC 3533).
Downstream: `decoders`.  A decoder that finds less than the header states reports no error, so half a sentence would be
taken for a whole one. Writers that stream leave lengths unknown: this is accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import BinaryIO, Literal

_UNKNOWN_FROM = 0x7FFF_0000
"""Lengths from here on are placeholders of streaming writers for an unknown length."""

_STATED = re.compile(r"^ *(?:data|SSND|Data Size|riff|Riff size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
"""Lines of libsndfile's log."""

MAX_CHUNKS = 100
"""Chunks of a WAV file that are searched for its audio."""

_OGG_TAIL = 2**17
"""Bytes at the end of an Ogg file in which its last page begins: a page has at most 65,307."""

_END_OF_STREAM = 0x04


def is_cut_short(log: str) -> bool:
    """Return True where libsndfile found less audio than the header states."""
    return any(int(present) < int(stated) < _UNKNOWN_FROM for stated, present in _STATED.findall(log))


def missing_wav_length(file: BinaryIO) -> int | None:
    """Where the length of a WAV file's audio is written, if it is 0 and audio follows; None for any other file.

    Writers that stream, or that were ended, leave it so. The position of the file is lost.
    """
    size = file.seek(0, 2)
    file.seek(0)
    head = file.read(12)
    if head[:4] not in (b"RIFF", b"RIFX") or head[8:] != b"WAVE":
        return None
    order: Literal["little", "big"] = "little" if head[:4] == b"RIFF" else "big"
    place = 12
    for _ in range(MAX_CHUNKS):
        file.seek(place)
        chunk = file.read(8)
        if len(chunk) < 8:
            return None
        length = int.from_bytes(chunk[4:], order)
        if chunk[:4] == b"data":
            return place + 4 if length == 0 and not _are_chunks(file, place + 8, size, order) else None
        place += 8 + length + length % 2
    return None


def mp4_lacks_its_index(file: BinaryIO) -> bool:
    """Return True where the boxes of an MPEG-4 file end, or are cut off, before one with the index (`moov`).

    Many recorders write it last, and without it nothing can be decoded. The position of the file is lost.
    """
    size, place = file.seek(0, 2), 0
    for _ in range(MAX_CHUNKS):
        file.seek(place)
        head = file.read(16)
        if len(head) < 8:
            return True
        length = int.from_bytes(head[:4], "big")
        length = int.from_bytes(head[8:16], "big") if length == 1 else length or size - place
        if head[4:8] == b"moov":
            return place + length > size
        if length < 8:
            return False
        place += length
    return False


def _are_chunks(file: BinaryIO, place: int, size: int, order: Literal["little", "big"]) -> bool:
    """Whether nothing but whole chunks lies between a place and the end of a WAV file."""
    for _ in range(MAX_CHUNKS):
        if place >= size:
            return True
        file.seek(place)
        chunk = file.read(8)
        if len(chunk) < 8 or not chunk[:4].strip().isalnum():
            return False
        length = int.from_bytes(chunk[4:], order)
        place += 8 + length + length % 2
        if place > size + 1:
            return False
    return False


def ogg_is_cut_short(file: BinaryIO, size: int) -> bool:
    """Return True where the last page of an Ogg file is cut off, or is not the last of its stream."""
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


# The frames of an MP3: how many there are, and whether the last one is whole.
# Decoders estimate the length of an MP3 without a Xing header, too long or far too short, and libsndfile reads no
# further than its estimate. So frames are counted here, and the header is added. ISO 11172-3 and 13818-3; for the
# header, http://gabriel.mp3-tech.org/mp3infotag.html.

MAX_FRAMES = 2_000_000
"""14 hours; what follows is not walked."""

MAX_PADDING_BYTES = 2**16
"""Zero bytes before the audio that are passed over: recorders and cut streams leave some."""

MAX_TAGS = 8
"""ID3v2 tags before the audio: programs that do not know the first one add another."""

MAX_SEARCHED_BYTES, SURE_FRAMES = 2**14, 4
"""Bytes that are searched for a first frame, and frames in a row that chance does not make."""

_MARKS = (b"Xing", b"Info", b"VBRI")
_TAGS = (b"TAG", b"APETAGEX", b"LYRICS", b"ID3", b"3DI")
_BITRATES = {  # kbit/s by version 1 or other (2, 2.5) and layer; index 0 is "free format", 15 is not allowed
    (1, 1): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (1, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (1, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}


@dataclass(frozen=True)
class Walk:
    """Result of a scan from frame to frame."""

    first: int
    """Offset of the first frame."""

    frames: int

    is_cut_short: bool
    """True where the file ends within a frame."""

    is_broken: bool
    """True where something else than tags follows at the offset of a frame."""


def is_mpeg(start: bytes) -> bool:
    """Return True where a file with these first four bytes may be an MP3."""
    return start[:3] == b"ID3" or frame_length(start) is not None


def walk(file: BinaryIO, first: int | None = None) -> Walk:
    """Read the headers of all frames of a file, from its beginning or `first` on; its position is lost."""
    size = file.seek(0, 2)
    first = offset = after_tag(file) if first is None else first
    frames = 0
    while frames < MAX_FRAMES and offset < size:
        file.seek(offset)
        start = file.read(10)
        length = frame_length(start[:4])
        if length is None:
            return Walk(first, frames, False, is_broken=bool(start.strip(b"\0")) and not start.startswith(_TAGS))
        offset += length
        frames += 1
    file.seek(max(0, size - 128))
    tail = file.read(128)  # the bytes of a tag might look like a frame
    tagged = tail[:3] == b"TAG" or tail[-32:-24] == b"APETAGEX"
    return Walk(first, frames, offset > size and not tagged, is_broken=False)


def has_frame_count(file: BinaryIO) -> bool:
    """Return True where the first frame holds a Xing, Info or VBRI header, which gives the length."""
    file.seek(after_tag(file))
    head = file.read(256)
    return any(mark in head for mark in _MARKS)


def missing_header(file: BinaryIO, found: Walk) -> bytes:
    """The frame to put before an MP3 without its length."""
    file.seek(found.first)
    return xing_frame(file.read(4), found.frames)


def xing_frame(header: bytes, frames: int) -> bytes:
    """A silent frame like that with these four bytes, holding a Xing header."""
    word = int.from_bytes(header, "big") | 1 << 16  # without a checksum
    version, is_mono = word >> 19 & 3, word >> 6 & 3 == 3
    side_bytes = (17 if is_mono else 32) if version == 3 else (9 if is_mono else 17)
    content = bytes(side_bytes) + b"Xing" + (1).to_bytes(4, "big") + frames.to_bytes(4, "big")
    for bitrate in range(1, 15):
        start = (word & ~(0xF << 12) | bitrate << 12).to_bytes(4, "big")
        length = frame_length(start) or 0
        if length >= 4 + len(content):
            break
    return (start + content).ljust(length, b"\0")


def after_tag(file: BinaryIO) -> int:
    """Where the audio begins: behind ID3v2 tags and zero bytes, of which the search is bounded."""
    place = _after_zeros(file, 0)
    for _ in range(MAX_TAGS):
        file.seek(place)
        head = file.read(10)
        if head[:3] != b"ID3" or len(head) < 10:
            break
        length = 0
        for byte in head[6:10]:
            length = length << 7 | byte & 0x7F
        place = _after_zeros(file, place + 10 + length + (10 if head[5] & 0x10 else 0))
    return place


def first_frame(file: BinaryIO) -> int | None:
    """Where the first frame of an MP3 is whose beginning is missing; None where none comes soon."""
    file.seek(0)
    start = file.read(MAX_SEARCHED_BYTES)
    for match in re.finditer(b"\xff", start):
        place, count = match.start(), 0
        while count < SURE_FRAMES and (length := frame_length(start[place : place + 4])):
            place, count = place + length, count + 1
        if count == SURE_FRAMES:
            return match.start()
    return None


def is_layer_three(header: bytes) -> bool:
    """Whether the frame that begins with these four bytes is one of an MP3, not of its older layers."""
    return header[1] >> 1 & 3 == 1


def _after_zeros(file: BinaryIO, place: int) -> int:
    """Offset of the first byte from `place` on that is not zero; `place` where none comes soon."""
    file.seek(place)
    padding = file.read(MAX_PADDING_BYTES)
    return place + len(padding) - len(padding.lstrip(b"\0")) if padding.strip(b"\0") else place


def frame_length(header: bytes) -> int | None:
    """Bytes of the MPEG audio frame that begins with these four; None where none does."""
    if len(header) < 4:
        return None
    word = int.from_bytes(header, "big")
    version, layer = word >> 19 & 3, 4 - (word >> 17 & 3)
    bitrate, rate, padding = word >> 12 & 15, word >> 10 & 3, word >> 9 & 1
    if word >> 21 != 0x7FF or version == 1 or layer == 4 or bitrate in (0, 15) or rate == 3:
        return None
    bits = _BITRATES[1 if version == 3 else 2, layer][bitrate] * 1000
    hertz = _RATES[version][rate]
    if layer == 1:
        return (12 * bits // hertz + padding) * 4
    return (72 if layer == 3 and version != 3 else 144) * bits // hertz + padding
