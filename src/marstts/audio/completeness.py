"""Completeness of recordings: what headers state, compared with what is there.

Upstream: the log of libsndfile, which compares the lengths of chunks with the file, and Ogg pages (RFC 3533).
Downstream: `decoders`.  A decoder that finds less than the header states reports no error, so half a sentence would be
taken for a whole one. Writers that stream leave lengths unknown: this is accepted.
"""

from __future__ import annotations

import re
from typing import BinaryIO

_UNKNOWN_FROM = 0x7FFF_0000
"""Lengths from here on are placeholders of streaming writers for an unknown length."""

_STATED = re.compile(r"^ *(?:data|SSND|Data Size|riff|Riff size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
_FORMAT = re.compile(r"^ *(Format|Channels|Sample Rate|Block Align|Bit Width|Bytes/sec) *: (\w+)", re.MULTILINE)
_BEHIND = re.compile(r"^RIFF : (\d+).*^data : .*^\*\*\* Unknown chunk marker \(\w+\) at position (\d+)", re.M | re.S)
"""Lines of libsndfile's log."""

PCM, FLOAT, A_LAW, MU_LAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_PLAUSIBLE_RATES = range(4_000, 400_000)

_OGG_TAIL = 2**17
"""Bytes at the end of an Ogg file in which its last page begins: a page has at most 65,307."""

_END_OF_STREAM = 0x04


def is_cut_short(log: str) -> bool:
    """Return True where libsndfile found less audio than the header states."""
    return any(int(present) < int(stated) < _UNKNOWN_FROM for stated, present in _STATED.findall(log))


def contradiction(log: str) -> str | None:
    """The contradiction in the header of a WAV file, of which libsndfile believes one number and drops the others.

    A wrong number of channels, of bits or a wrong rate changes pitch and length of what is read; a wrong length of the
    data leaves the rest out. Only what is refuted by two other numbers is called wrong: many writers leave the rate of
    bytes, the size of a block or that of the file at zero.
    """
    if (found := _BEHIND.search(log)) and int(found[2]) < int(found[1]):
        return "audio lies behind the end that its header states"
    numbers = {name: int(value, 0) for name, value in _FORMAT.findall(log)}
    block, bits, channels = (numbers.get(name, 0) for name in ("Block Align", "Bit Width", "Channels"))
    byte_rate, sample_rate = numbers.get("Bytes/sec", 0), numbers.get("Sample Rate", 0)
    if numbers.get("Format") not in (PCM, FLOAT, A_LAW, MU_LAW, EXTENSIBLE) or not block:
        return None
    by_sample = channels * (1 if numbers["Format"] in (A_LAW, MU_LAW) else (bits + 7) // 8)
    if by_sample != block:
        is_refuted = byte_rate == sample_rate * block
        return f"{channels} channels of {bits} bits are not {block} bytes" if is_refuted else None
    if byte_rate % block == 0 and byte_rate // block in _PLAUSIBLE_RATES and byte_rate != sample_rate * block:
        return f"{sample_rate} Hz are not {byte_rate} bytes a second"
    return None


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
