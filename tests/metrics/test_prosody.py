"""Contours of tones with known F0."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform

pytest.importorskip("pyworld")
pytest.importorskip("librosa")

from marstts.metrics.prosody import Contours, contours, correlate

RATE = 16000


def hum(semitones: np.ndarray, loudness: np.ndarray) -> Waveform:
    """A voice-like buzz of 1.6 s around 120 Hz, its pitch and loudness moving along the given points."""
    time = np.arange(int(1.6 * RATE)) / RATE
    along = np.linspace(0, 1.6, len(semitones))
    phase = 2 * np.pi * np.cumsum(120 * 2 ** (np.interp(time, along, semitones) / 12)) / RATE
    buzz = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 20))
    return Waveform((0.1 * buzz * np.interp(time, along, loudness)).astype(np.float32), RATE)


RISING, FALLING = np.array([-4.0, 0.0, 4.0]), np.array([4.0, 0.0, -4.0])
SWELL, FADE = np.array([0.3, 1.0, 0.6]), np.array([1.0, 0.3, 0.6])


def test_tracked_f0_is_in_hertz():
    found = contours(hum(np.zeros(2), np.ones(2)))
    voiced = found.log_f0[np.isfinite(found.log_f0)]
    assert len(voiced) > 100 and np.exp(np.median(voiced)) == pytest.approx(120, rel=0.02)


@pytest.mark.slow
def test_f0_correlation_is_one_for_the_same_contour_and_low_for_the_opposite():
    source = contours(hum(RISING, SWELL))
    same, opposite = correlate(source, source), correlate(contours(hum(FALLING, SWELL)), source)
    assert same == pytest.approx(1.0) and opposite < 0.2


def drawn(voiced: bool, seed: int) -> Contours:
    """Contours that move at random, voiced throughout or not at all."""
    rng = np.random.default_rng(seed)
    pitch = rng.normal(5.0, 0.2, 40) if voiced else np.full(40, np.nan)
    return Contours(rng.normal(size=(40, 40)).astype(np.float32), pitch)


@pytest.mark.slow
def test_f0_correlation_is_none_for_a_whispered_ground_truth_and_zero_for_a_whispered_take():
    assert correlate(drawn(True, 0), drawn(False, 1)) is None
    assert correlate(drawn(False, 0), drawn(True, 1)) == 0.0
