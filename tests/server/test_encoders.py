"""Audio formats piece by piece."""

from __future__ import annotations

import gc
import io
import sys

import av
import numpy as np
import pytest

from marstts.server.encoders import API_RATE, AudioFormat, EncodedStream, WholeFile

STREAMED = [AudioFormat.WAV, AudioFormat.FLAC, AudioFormat.MP3, AudioFormat.OPUS, AudioFormat.AAC]
SIZES = [1, 0, 7, 1920, 333, 24_000, 11]


@pytest.fixture
def tone() -> np.ndarray:
    """1.1 s of a tone that rises."""
    seconds = np.arange(26_400) / API_RATE
    return (0.5 * np.sin(2 * np.pi * (200 + 300 * seconds) * seconds)).astype(np.float32)


def encode(samples: np.ndarray, name: AudioFormat, rate: int = API_RATE) -> list[bytes]:
    """A file, pushed in odd pieces."""
    stream, pieces, start = EncodedStream(name, rate, whole=False), [], 0
    for size in SIZES:
        pieces.append(stream.push(samples[start : start + size]))
        start += size
    return [*pieces, stream.push(samples[start:]), stream.finish()]


def decode(content: bytes) -> np.ndarray:
    with av.open(io.BytesIO(content)) as container:
        frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
        rate = container.streams.audio[0].rate
    samples = np.concatenate([frame.reshape(-1) for frame in frames])
    samples = samples / 32768.0 if samples.dtype == np.int16 else samples
    return samples[:: rate // API_RATE]


@pytest.mark.parametrize("name", STREAMED)
def test_pieces_of_any_size_decode_to_the_samples(tone: np.ndarray, name: AudioFormat):
    decoded = decode(b"".join(encode(tone, name)))
    assert len(tone) <= len(decoded) <= len(tone) + 3000
    lag = int(np.argmax(np.correlate(decoded, tone, "valid")))
    error = decoded[lag : lag + len(tone)] - tone
    assert np.sqrt(np.mean(error[2400:-2400] ** 2)) < (0.001 if name in STREAMED[:2] else 0.06)


@pytest.mark.parametrize("name", STREAMED)
def test_bytes_come_before_the_end(tone: np.ndarray, name: AudioFormat):
    stream = EncodedStream(name, API_RATE, whole=False)
    assert sum(len(stream.push(piece)) for piece in np.split(tone[:9600], 4)) > 0


def test_another_rate_is_resampled(tone: np.ndarray):
    content = b"".join(encode(tone, AudioFormat.PCM, rate=16_000))
    assert len(content) / 2 == pytest.approx(len(tone) * 1.5, abs=2)


def test_samples_beyond_full_scale_are_clipped():
    loud = np.array([2.0, -2.0, 0.5], np.float32)
    assert np.frombuffer(b"".join(encode(loud, AudioFormat.PCM)), "<i2").tolist() == [32767, -32767, 16384]


@pytest.mark.parametrize("name", list(AudioFormat))
def test_no_samples_make_no_error(name: AudioFormat):
    stream = EncodedStream(name, API_RATE, whole=False)
    assert isinstance(stream.push(np.zeros(0, np.float32)) + stream.finish(), bytes)


@pytest.mark.parametrize("audio_format", [AudioFormat.WAV, AudioFormat.FLAC])
def test_a_whole_file_that_is_left_unfinished_says_nothing(audio_format: AudioFormat, monkeypatch):
    failures: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    file = WholeFile(audio_format)
    file.push(np.zeros(100, np.float32))
    file.itself = file  # collected in any order
    del file
    gc.collect()
    assert not failures
