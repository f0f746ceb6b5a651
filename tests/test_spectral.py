"""Spectra in NumPy equal PyTorch's, and overlap-add inverts them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marstts.audio import spectral
from marstts.synthesis.loading import load

FFT, HOP, MELS, RATE = 256, 64, 20, 8000


@pytest.fixture
def samples() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(HOP * 31).astype(np.float32)


def test_magnitudes_match_the_torch_transform(samples: np.ndarray) -> None:
    ours = spectral.magnitude_spectrogram(samples, FFT, HOP)
    theirs = torch.stft(
        torch.from_numpy(samples), FFT, HOP, window=torch.hann_window(FFT), return_complex=True, pad_mode="reflect"
    ).abs()
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-3)


def test_a_sine_peaks_in_the_mel_band_around_its_frequency() -> None:
    sine = np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE).astype(np.float32)
    mels = spectral.log_mel(sine, RATE, fft_size=FFT, hop=HOP, num_mels=MELS)
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    centers = 700 * (10 ** (np.linspace(0, top, MELS + 2)[1:-1] / 2595) - 1)
    assert abs(centers[mels[:, 20].argmax()] - 1000) < 150


def test_half_frame_padding_gives_one_frame_per_hop(samples: np.ndarray) -> None:
    padding = (FFT - HOP) // 2
    assert spectral.magnitude_spectrogram(samples, FFT, HOP, padding).shape == (FFT // 2 + 1, len(samples) // HOP)


@pytest.mark.parametrize("padding", [FFT // 2, (FFT - HOP) // 2])
def test_overlap_add_inverts_the_transform(samples: np.ndarray, padding: int) -> None:
    padded = np.pad(samples, padding, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP]
    spectra = np.fft.rfft(frames * spectral.hann(FFT), axis=-1).T
    np.testing.assert_allclose(spectral.overlap_add(spectra, FFT, HOP, padding), samples, atol=1e-4)


def test_audio_shorter_than_a_window_still_has_a_spectrum() -> None:
    assert np.isfinite(spectral.log_mel(np.ones(10, np.float32), RATE, fft_size=FFT, hop=HOP, num_mels=MELS)).all()


@pytest.mark.slow
def test_clones_are_equal_for_any_number_of_blas_threads() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    synthesizer, recording = load("mini"), Path(__file__).parents[1] / "examples" / "reference.flac"
    clones = []
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads, user_api="blas"):
            used = [library["num_threads"] for library in threadpoolctl.threadpool_info()]
            voice = synthesizer.clone(recording, transcript="The ship left the harbor at dawn.")
        assert threads in used
        clones.append([array.tobytes() for array in (*voice.embeddings.values(), *voice.prefix.codes)])
    assert clones[0] == clones[1]
