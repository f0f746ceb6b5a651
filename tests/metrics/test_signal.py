"""Distances between a recording and its reconstruction, and the use of codebooks."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import AudioError
from marstts.metrics.quality import codebook_use, log_mel_distance, pesq_wideband, stoi


def noise(seconds: float, rate: int, seed: int = 0) -> Waveform:
    return Waveform((0.2 * np.random.default_rng(seed).standard_normal(int(seconds * rate))).astype(np.float32), rate)


def test_mel_distance_of_a_gain_is_the_gain_in_decibels():
    original = noise(0.5, 24000)
    doubled = Waveform(2 * original.samples, 24000)
    assert log_mel_distance(original, original) == 0.0
    assert log_mel_distance(original, doubled) == pytest.approx(20 * np.log10(2), abs=1e-3)


def test_mel_distance_ignores_levels_below_the_floor():
    silence, whisper = (Waveform((gain * noise(0.5, 24000).samples).astype(np.float32), 24000) for gain in (0, 1e-6))
    assert log_mel_distance(silence, whisper) == 0.0


def test_padding_to_whole_patches_is_not_compared():
    original = noise(0.5, 24000)
    padded = Waveform(np.pad(original.samples, (0, 777)), 24000)
    assert log_mel_distance(original, padded) == 0.0


def test_different_rates_are_refused():
    pytest.importorskip("pystoi")
    with pytest.raises(AudioError, match="one sample rate"):
        stoi(noise(1.0, 24000), noise(1.0, 16000))


def test_stoi_is_one_for_a_copy_and_falls_with_noise(amiable: Waveform):
    pytest.importorskip("pystoi")
    hiss = noise(amiable.seconds + 0.1, amiable.sample_rate).samples[: len(amiable.samples)]
    for extended in (False, True):
        light, heavy = (
            stoi(amiable, Waveform(amiable.samples + gain * hiss, amiable.sample_rate), extended=extended)
            for gain in (0.02, 0.5)
        )
        assert stoi(amiable, amiable, extended=extended) == pytest.approx(1.0, abs=1e-6)
        assert 1.0 > light > heavy


def test_pesq_is_at_its_top_for_a_copy_and_none_without_speech(amiable: Waveform):
    pytest.importorskip("pesq")
    assert pesq_wideband(amiable, amiable) == pytest.approx(4.644, abs=1e-3)
    silence = Waveform(np.zeros(16000, np.float32), 16000)
    assert pesq_wideband(silence, silence) is None


def test_perplexity_counts_equally_frequent_entries():
    use = codebook_use(np.array([3, 5, 3, 5, 9, 9]), codebook_size=16)
    assert (use.codes, use.used) == (6, 3)
    assert use.perplexity == pytest.approx(3.0)


def test_perplexity_by_hand_for_unequal_entries():
    # shares 1/2, 1/4, 1/4: entropy 1.5 bits
    assert codebook_use(np.array([0, 0, 1, 2]), codebook_size=4).perplexity == pytest.approx(2**1.5)
