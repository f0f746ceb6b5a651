"""What may be given as a reference: bytes, arrays of any common shape and type, pairs with a sample rate."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import AudioError
from marstts.synthesis.reference_types import as_reference

TONE = (0.5 * np.sin(np.arange(8000) / 9)).astype(np.float32)


@pytest.mark.parametrize(
    ("reference", "rate"),
    [
        (TONE, 16_000),
        (TONE.astype(np.float64), np.int64(16_000)),
        (TONE.tolist(), 16_000),
        (np.stack([TONE, TONE]), 16_000),
        (np.stack([1.5 * TONE, 0.5 * TONE], axis=1), 16_000),
        (TONE[:, None], 16_000),
        (np.round(TONE * 32768).astype(np.int16), 16_000),
        (np.round(TONE * 2**31).astype(np.int32), 16_000),
        (np.round(TONE * 128 + 128).astype(np.uint8), 16_000),
        ((TONE, 16_000), None),
        ((16_000, TONE), None),
    ],
)
def test_arrays_become_one_channel_of_floats(reference: object, rate: int | None):
    found = as_reference(reference, rate)
    assert isinstance(found, Waveform) and found.sample_rate == 16_000
    np.testing.assert_allclose(found.samples, TONE, atol=0.005)


def test_paths_waveforms_and_bytes_stay_what_they_are():
    waveform = Waveform(TONE, 16_000)
    for reference in (waveform, Path("a.wav"), "a.wav"):
        assert as_reference(reference) is reference
    for content in (b"RIFF", bytearray(b"RIFF")):
        assert isinstance(opened := as_reference(content), io.BytesIO) and opened.read() == b"RIFF"


@pytest.mark.parametrize(
    ("reference", "rate", "complaint"),
    [
        (TONE, None, "an array with its sample_rate, but this is ndarray without a sample rate"),
        (TONE, 16_000.5, "not 16000.5"),
        (np.zeros((2, 3, 4)), 16_000, r"not \(2, 3, 4\)"),
        ([[1.0], [1.0, 2.0]], 16_000, "one array of numbers"),
    ],
)
def test_what_is_no_recording_is_refused_in_a_sentence(reference: object, rate: object, complaint: str):
    with pytest.raises(AudioError, match=complaint):
        as_reference(reference, rate)
