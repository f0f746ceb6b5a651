"""Augmentation of mel magnitudes, each part measured against what it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from marstts.audio import Waveform
from marstts.audio.spectral import log_mel, magnitude_spectrogram
from marstts.speaker.mini import MiniEncoderConfig
from marstts_lab.training.speaker import augmentation
from marstts_lab.training.speaker.augmentation import AugmentationConfig

RATE = 24_000
MODEL = MiniEncoderConfig(size=9, width=12, blocks=2, num_mels=20)
NO_AUGMENTATION = AugmentationConfig(
    eq_std_db=0.0, noise_probability=0.0, reverb_probability=0.0, band_limit_probability=0.0
)


def buzz(hertz: float, seconds: float = 0.7, seed: int = 0, resonance: float = 2500.0) -> Waveform:
    """A pitched signal: harmonics up to 5 kHz, strongest at the resonance, and weak noise."""
    time = np.arange(int(seconds * RATE)) / RATE
    places = [k * hertz for k in range(1, int(5000 / hertz))]
    tones = sum(
        np.exp(-(((f - resonance) / 2500) ** 2)) * np.sin(2 * np.pi * f * time + (f / hertz) ** 2) for f in places
    )
    noise = 0.01 * np.random.default_rng(seed).standard_normal(len(time))
    return Waveform((0.02 * tones + noise).astype(np.float32), RATE)


def test_vtlp_resembles_a_voice_of_higher_f0_and_formants() -> None:
    magnitudes = magnitude_spectrogram(buzz(200.0).samples, MODEL.fft_size, MODEL.hop)
    warped = np.log(augmentation.vtlp_filterbank(MODEL, 1.25) @ magnitudes).mean(axis=1)
    higher, same = (
        log_mel(buzz(hertz).samples, RATE, fft_size=MODEL.fft_size, hop=MODEL.hop, num_mels=MODEL.num_mels).mean(axis=1)
        for hertz in (250.0, 200.0)
    )
    audible = slice(0, 12)  # up to 4 kHz, where both have harmonics
    nearer = np.abs(warped[audible] - higher[audible]).mean()
    assert nearer < 0.5 * np.abs(warped[audible] - same[audible]).mean()


def test_augmentation_can_be_off_and_is_a_function_of_the_generator() -> None:
    mels = torch.randn(5, 20, 31, generator=torch.Generator().manual_seed(0)).clamp(min=-3)
    torch.testing.assert_close(
        augmentation.augment_mel(mels, MODEL, NO_AUGMENTATION, torch.Generator()), mels, rtol=0, atol=2e-3
    )
    first, again, other = (
        augmentation.augment_mel(mels, MODEL, AugmentationConfig(), torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.allclose(first, other)
    assert not torch.allclose(first, mels, atol=1e-2)


def test_noise_has_the_configured_snr() -> None:
    mels = torch.ones(64, 20, 200)
    noisy = augmentation.add_noise(
        mels, AugmentationConfig(noise_probability=1.0, snr_db=(20.0, 20.0)), torch.Generator()
    )
    ratio = 10 * torch.log10(1.0 / ((noisy**2).mean() - 1.0))
    assert float(ratio) == pytest.approx(20.0, abs=0.6)  # the noise's own fluctuation adds 9 %


def test_reverberation_decays_by_sixty_decibels_in_rt60() -> None:
    impulse = torch.zeros(3, 20, 100)
    impulse[:, :, 10] = 1.0
    reverb = AugmentationConfig(reverb_probability=1.0, rt60_seconds=(0.5, 0.5))
    output = augmentation.add_reverb(impulse, 100.0, reverb, torch.Generator())
    assert float(output[:, :, :10].abs().max()) < 1e-3
    torch.testing.assert_close(output[:, :, 10], torch.ones(3, 20), rtol=1e-3, atol=1e-3)
    fall = 20 * torch.log10(output[:, 0, 12] / output[:, 0, 22])  # 0.1 s of 0.5 s
    torch.testing.assert_close(fall, torch.full((3,), 12.0), rtol=0.02, atol=0.2)


def test_band_limit_removes_what_lies_above_it() -> None:
    mels = torch.ones(6, 80, 3)
    narrow = AugmentationConfig(band_limit_probability=1.0, band_limit_hz=(4000.0, 4000.0))
    gains = augmentation.band_limit(mels, MODEL, narrow, torch.Generator())[:, :, 0]
    edge = int(80 * math.log1p(4000 / 700) / math.log1p(12000 / 700))
    assert float(gains[:, : edge - 5].min()) > 0.99
    assert float(gains[:, edge + 8 :].max()) < 1e-3
