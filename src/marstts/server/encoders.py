"""Audio formats of responses: samples in, bytes out, piece by piece.

Upstream: chunks of `Synthesizer.stream`.  Downstream: HTTP. WAV and raw PCM are written here; MP3, Opus, AAC and
FLAC by FFmpeg through PyAV, into a sink that can only write, so that no byte is changed after it was sent. Where
nothing is sent before the end, libsndfile encodes the file whole.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, Protocol
from weakref import finalize

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from marstts.audio.writer import format_of
from marstts.errors import require

Samples = NDArray[np.float32]

EXTRA = "serve"
API_RATE = 24_000
"""Hz of all responses: OpenAI's `pcm` is 24 kHz by definition."""

PUSHED_SAMPLES = 2**16
"""Samples that are filtered and encoded at a time, so that a long speech needs no second and third copy in memory."""

UNKNOWN_LENGTH = 0xFFFF_FFFF
"""Length in the header of a WAV file whose end is not known yet."""


class AudioFormat(str, Enum):
    """OpenAI's formats."""

    MP3 = "mp3"
    OPUS = "opus"
    AAC = "aac"
    FLAC = "flac"
    WAV = "wav"
    PCM = "pcm"

    @property
    def media_type(self) -> str:
        """The content type of a response."""
        return MEDIA_TYPES[self]


MEDIA_TYPES = {
    AudioFormat.MP3: "audio/mpeg",
    AudioFormat.OPUS: "audio/ogg",
    AudioFormat.AAC: "audio/aac",
    AudioFormat.FLAC: "audio/flac",
    AudioFormat.WAV: "audio/wav",
    AudioFormat.PCM: "audio/pcm",
}


@dataclass(frozen=True)
class Muxer:
    """FFmpeg's names and options for one format."""

    container: str
    codec: str
    bit_rate: int | None = None
    container_options: dict[str, str] = field(default_factory=dict)
    codec_options: dict[str, str] = field(default_factory=dict)


MUXERS = {
    AudioFormat.MP3: Muxer("mp3", "libmp3lame", 64_000, {"write_xing": "0", "id3v2_version": "0"}),
    AudioFormat.OPUS: Muxer("ogg", "libopus", 32_000, {"page_duration": "20000"}),  # µs; else 1 s passes before a page
    AudioFormat.AAC: Muxer("adts", "aac", 64_000),
    AudioFormat.FLAC: Muxer("flac", "flac", None, {}, {"frame_size": "1152"}),
}


class AudioEncoder(Protocol):
    """A file in the making."""

    def push(self, samples: Samples) -> bytes:
        """Encode the next samples (N,) -> the bytes that are certain by now, perhaps none."""
        ...

    def finish(self) -> bytes:
        """Return the rest of the file."""
        ...


class PcmEncoder:
    """Raw 16-bit integers, little-endian, after a header."""

    def __init__(self, header: bytes = b"") -> None:
        self._header = header

    def push(self, samples: Samples) -> bytes:
        header, self._header = self._header, b""
        return header + to_pcm16(samples)

    def finish(self) -> bytes:
        return self._header


class FFmpegEncoder:
    """MP3, Opus, AAC or FLAC, encoded by FFmpeg."""

    def __init__(self, audio_format: AudioFormat) -> None:
        muxer, self._av = MUXERS[audio_format], require("av", EXTRA)
        self._sink = WriteOnly()
        self._container = self._av.open(self._sink, mode="w", format=muxer.container, options=muxer.container_options)
        self._stream = self._container.add_stream(muxer.codec, rate=API_RATE, options=muxer.codec_options)
        self._stream.layout = "mono"
        if muxer.bit_rate is not None:
            self._stream.bit_rate = muxer.bit_rate
        self._num_samples = 0

    def push(self, samples: Samples) -> bytes:
        if len(samples):
            clipped = np.ascontiguousarray(np.clip(samples, -1.0, 1.0)[None, :])
            frame = self._av.AudioFrame.from_ndarray(clipped, format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = API_RATE, self._num_samples, Fraction(1, API_RATE)
            self._num_samples += len(samples)
            self._mux(frame)
        return self._sink.take()

    def finish(self) -> bytes:
        self._mux(None)
        self._container.close()
        return self._sink.take()

    def _mux(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)


class WriteOnly:
    """A sink without `seek`."""

    def __init__(self) -> None:
        self._content = bytearray()

    def write(self, content: Any) -> int:
        """Append bytes."""
        self._content += bytes(content)
        return len(content)

    def take(self) -> bytes:
        """Return the bytes since the last call."""
        taken, self._content = bytes(self._content), bytearray()
        return taken


class WholeFile:
    """Encoded by libsndfile into memory; the bytes are known at the end, with lengths in their headers."""

    def __init__(self, audio_format: AudioFormat) -> None:
        container, encoding = format_of(f".{audio_format.value}")
        self._content = io.BytesIO()
        self._file = soundfile.SoundFile(self._content, "w", API_RATE, 1, encoding, format=container)
        finalize(self, self._file.close)  # where it is left unfinished: before the content, which closing writes to

    def push(self, samples: Samples) -> bytes:
        self._file.write(np.clip(samples, -1.0, 1.0))
        return b""

    def finish(self) -> bytes:
        self._file.close()
        return self._content.getvalue()


def open_encoder(audio_format: AudioFormat, *, whole: bool = False) -> AudioEncoder:
    """An encoder of audio at API_RATE; `whole` where nothing is sent before the end, so that headers hold lengths."""
    if audio_format is AudioFormat.PCM:
        return PcmEncoder()
    if whole and audio_format is not AudioFormat.AAC:
        return WholeFile(audio_format)
    if audio_format is AudioFormat.WAV:
        return PcmEncoder(streaming_wav_header())
    return FFmpegEncoder(audio_format)


def streaming_wav_header() -> bytes:
    """The 44 bytes before the samples of a WAV file of unknown length: 16 bits, mono."""
    riff = struct.pack("<4sI4s", b"RIFF", UNKNOWN_LENGTH, b"WAVE")
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, API_RATE, 2 * API_RATE, 2, 16)
    return riff + layout + struct.pack("<4sI", b"data", UNKNOWN_LENGTH)


def to_pcm16(samples: Samples) -> bytes:
    """Samples (N,) as 16-bit integers, little-endian, rounded as `Chunk.pcm` rounds them; clipped to ±1."""
    return np.rint(np.clip(samples, -1.0, 1.0) * np.float32(32767.0)).astype("<i2").tobytes()


class EncodedStream:
    """A resampler and an encoder, one after another."""

    def __init__(self, audio_format: AudioFormat, sample_rate: int, *, whole: bool) -> None:
        same = sample_rate == API_RATE
        self._resampler = None if same else soxr.ResampleStream(sample_rate, API_RATE, 1, dtype="float32")
        self._encoder = open_encoder(audio_format, whole=whole)

    def push(self, samples: Samples) -> bytes:
        """Take the next samples (N,) -> bytes of the file."""
        return b"".join(map(self._push, np.split(samples, range(PUSHED_SAMPLES, len(samples), PUSHED_SAMPLES))))

    def _push(self, samples: Samples, *, is_last: bool = False) -> bytes:
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples, last=is_last)
        return self._encoder.push(samples) if len(samples) else b""

    def finish(self) -> bytes:
        """Return the rest of the file."""
        return self._push(np.zeros(0, np.float32), is_last=True) + self._encoder.finish()
