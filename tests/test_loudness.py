"""Loudness compared with the package pyloudnorm."""

from __future__ import annotations

import math

import numpy as np
import pytest

from marstts.audio import loudness
from marstts.audio.loudness import integrated_loudness

pytestmark = pytest.mark.slow


def signal_like_speech(seconds: float, sample_rate: int, seed: int = 0) -> np.ndarray:
    """Noise over a low hum, with loud, soft and silent stretches."""
    rng, count = np.random.default_rng(seed), round(seconds * sample_rate)
    steps = 10 ** rng.uniform(-3.5, -0.5, max(1, round(seconds / 0.3))) * (
        rng.random(max(1, round(seconds / 0.3))) > 0.2
    )
    envelope = np.repeat(steps, -(-count // len(steps)))[:count]
    return envelope * rng.normal(size=count) + 0.01 * np.sin(2 * np.pi * 30 * np.arange(count) / sample_rate)


@pytest.mark.parametrize("sample_rate", [8_000, 16_000, 24_000, 44_100])
@pytest.mark.parametrize("seconds", [0.4, 0.437, 1.0, 2.68, 7.3])
def test_figures_equal_those_of_pyloudnorm(sample_rate: int, seconds: float):
    import pyloudnorm  # slow to import

    samples = signal_like_speech(seconds, sample_rate)
    expected = pyloudnorm.Meter(sample_rate).integrated_loudness(samples)
    assert integrated_loudness(samples, sample_rate) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("sample_rate", [16_000, 96_000, 384_000])
def test_pieces_fit_together(sample_rate: int, monkeypatch: pytest.MonkeyPatch):
    samples = signal_like_speech(3.0, sample_rate)
    in_pieces = loudness.k_weight(samples, sample_rate)
    monkeypatch.setattr(loudness, "FFT_SIZE", 1 << 21)  # one piece
    np.testing.assert_allclose(in_pieces, loudness.k_weight(samples, sample_rate), atol=1e-9)


def test_a_full_scale_tone_has_the_loudness_of_the_standard():
    tone = np.sin(2 * np.pi * 997 * np.arange(48_000) / 48_000)
    assert integrated_loudness(tone, 48_000) == pytest.approx(-3.01, abs=0.1)


def test_silence_has_no_loudness_and_samples_stay_as_they_are():
    assert integrated_loudness(np.zeros(24_000), 24_000) == -math.inf
    assert integrated_loudness(1e-6 * signal_like_speech(1.0, 24_000), 24_000) == -math.inf
    samples = signal_like_speech(1.0, 24_000)
    before = samples.copy()
    integrated_loudness(samples, 24_000)
    np.testing.assert_array_equal(samples, before)
