"""The limiter: nothing beyond ±1, nothing cut off flat, and audio within ±1 as it was."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.audio.limiter import Limiter, limit_peaks

RATE = 24_000


def speechlike(peak: float, seconds: float = 1.0) -> np.ndarray:
    """A tone of 150 Hz whose loudest stretch, in its middle, has this peak; the rest has a third of it."""
    time = np.arange(round(seconds * RATE)) / RATE
    loud = np.where(np.abs(time - seconds / 2) < 0.1, 1.0, 0.3)
    return (peak * loud * np.sin(2 * np.pi * 150 * time)).astype(np.float32)


def limited(samples: np.ndarray, rate: int = RATE) -> np.ndarray:
    return limit_peaks(Waveform(samples, rate)).samples


@pytest.mark.parametrize("peak", [0.01, 0.5, 1.0])
def test_audio_within_full_scale_stays_as_it_is(peak: float) -> None:
    np.testing.assert_array_equal(limited(speechlike(peak)), speechlike(peak))


@pytest.mark.parametrize("peak", [1.05, 1.4, 2.2, 8.0])
def test_peaks_are_turned_down_without_being_cut_off(peak: float) -> None:
    whole = speechlike(peak)
    samples = limited(whole)
    assert np.abs(samples).max() <= 1.0 and len(samples) == len(whole)
    at_top = np.flatnonzero(np.abs(samples) > 0.9999)
    longest = max(map(len, np.split(at_top, np.flatnonzero(np.diff(at_top) > 1) + 1)))
    assert longest <= 3, "no run of samples at full scale"
    gains = samples[np.abs(whole) > 0.1] / whole[np.abs(whole) > 0.1]
    assert np.abs(np.diff(gains)).max() < 0.05, "the gain has no steps"


@pytest.mark.parametrize("peak", [1.2, 2.0, 3.0])
def test_what_is_far_from_a_peak_keeps_its_loudness(peak: float) -> None:
    whole = speechlike(peak, 4.0)
    samples, far = limited(whole), np.abs(np.arange(len(whole)) / RATE - 2.0) > 1.0
    np.testing.assert_array_equal(samples[far], whole[far])
    assert np.abs(samples).max() > 0.95


@pytest.mark.parametrize("size", [1, 119, 120, 121, 5_000])
@pytest.mark.parametrize("rate", [8_000, 24_000, 44_100])
def test_pieces_of_any_size_give_the_same_samples(size: int, rate: int) -> None:
    whole = speechlike(1.7, 0.3)
    limiter = Limiter(rate)
    pieces = [limiter.push(whole[start : start + size]) for start in range(0, len(whole), size)]
    np.testing.assert_array_equal(np.concatenate([*pieces, limiter.finish()]), limited(whole, rate))


@pytest.mark.parametrize("length", [0, 1, 119, 120, 241])
def test_audio_of_any_length_comes_out_whole(length: int) -> None:
    limiter, whole = Limiter(RATE), np.full(length, -1.5, np.float32)
    samples = np.concatenate([limiter.push(whole), limiter.finish()])
    assert len(samples) == length and np.abs(samples).max(initial=0.0) <= 1.0
