"""Augmentation of waveforms: each part does what it promises, as a function of the generator alone."""

from __future__ import annotations

import numpy as np
import pytest

from marstts_lab.training.codec.augmentation import AugmentationConfig, augment_waveform

CLEAN = AugmentationConfig(eq_std_db=0, noise_probability=0, band_limit_probability=0, reverb_probability=0)
SAMPLES = np.random.default_rng(0).standard_normal(4800).astype(np.float32)


def augmented(seed: int = 1, **changes: object) -> np.ndarray:
    return augment_waveform(SAMPLES, 24000, CLEAN.model_copy(update=changes), np.random.default_rng(seed))


def test_without_augmentation_nothing_changes() -> None:
    np.testing.assert_allclose(augmented(), SAMPLES, atol=1e-5)


def test_noise_has_the_drawn_level() -> None:
    error = augmented(noise_probability=1, snr_db=(20.0, 20.0)) - SAMPLES
    assert 10 * np.log10((SAMPLES**2).mean() / (error**2).mean()) == pytest.approx(20, abs=0.1)


def test_a_band_limit_removes_what_is_above_it() -> None:
    power = np.abs(np.fft.rfft(augmented(band_limit_probability=1, band_limit_hz=(4000.0, 4000.0)))) ** 2
    frequencies = np.fft.rfftfreq(len(SAMPLES), 1 / 24000)
    below, above = power[frequencies < 3500], power[frequencies > 4500]
    assert above.mean() < 1e-6 * below.mean()


def test_reverberation_decays_after_the_source() -> None:
    click = np.zeros(4800, np.float32)
    click[100] = 1.0
    reverb = CLEAN.model_copy(update={"reverb_probability": 1.0, "rt60_seconds": (0.2, 0.2)})
    output = augment_waveform(click, 24000, reverb, np.random.default_rng(1))
    assert output[100] == pytest.approx(1.0, abs=1e-4) and np.abs(output[:99]).max() < 1e-4
    early, late = (output[101:1301] ** 2).sum(), (output[3601:4801] ** 2).sum()
    assert early > 100 * late > 0


def test_the_equalizer_changes_the_spectrum_smoothly() -> None:
    ratio = np.abs(np.fft.rfft(augmented(eq_std_db=6.0))) / np.abs(np.fft.rfft(SAMPLES))
    assert 1.0 < 20 * np.log10(np.percentile(ratio, 95) / np.percentile(ratio, 5)) < 60


def test_the_generator_alone_decides() -> None:
    everything = AugmentationConfig(
        noise_probability=0.5, band_limit_probability=0.5, reverb_probability=0.5
    ).model_dump()
    np.testing.assert_array_equal(augmented(3, **everything), augmented(3, **everything))
    assert not np.array_equal(augmented(3, **everything), augmented(4, **everything))
