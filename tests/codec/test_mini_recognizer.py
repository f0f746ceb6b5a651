"""The features of a frozen recognizer: Whisper's spectra, equal in NumPy and PyTorch, in windows of long recordings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from marstts.codec import mini_recognizer
from marstts.codec.mini_whisper import WhisperEncoder
from marstts.errors import CheckpointError
from marstts.io.stored_tensors import stored_tensors
from marstts.onnx.export import dequantized, integers
from marstts_lab.training.checkpoint import read_tensors


def noise(seconds: float, rate: int) -> np.ndarray:
    return (0.1 * np.random.default_rng(0).standard_normal(round(seconds * rate))).astype(np.float32)


def test_filters_are_whispers() -> None:
    extractor = pytest.importorskip("faster_whisper.feature_extractor").FeatureExtractor
    np.testing.assert_allclose(mini_recognizer.mel_filters(), extractor.get_mel_filters(16000, 400, 80), atol=1e-7)


@pytest.mark.parametrize("patches", [1, 9, 15])
def test_numpy_and_pytorch_compute_the_same_features(patches: int) -> None:
    torch.manual_seed(0)
    whisper = WhisperEncoder(width=64, num_layers=3, sample_rate=24000)
    samples = noise(patches * 2048 / 24000, 24000)
    resampled = mini_recognizer.resample(samples, 24000)
    features = mini_recognizer.read_features(
        resampled, lambda mels: whisper.features(torch.from_numpy(mels)[None])[0].numpy()
    )
    expected = whisper.features_at_latents(torch.from_numpy(samples)[None], 4 * patches)[0].numpy()
    at_latents = mini_recognizer.at_latents(features, 4 * patches, 512 / 24000)
    assert expected.shape == (4 * patches, 128)
    np.testing.assert_allclose(at_latents, expected, atol=2e-4)


def test_long_recordings_are_read_in_windows_that_whisper_can_read_and_join_without_seams() -> None:
    frames = []

    def local(mels: np.ndarray) -> np.ndarray:
        frames.append(mels.shape[1])
        return mels[:, : mels.shape[1] // 2 * 2].reshape(80, -1, 2).mean(axis=2).T

    samples = noise(61.0, 16000)
    features = mini_recognizer.read_features(samples, local)
    assert len(frames) == 3 and max(frames) <= 3000 and features.shape == (3050, 80)
    np.testing.assert_allclose(features, local(mini_recognizer.log_mel(samples)), atol=1e-5)


def test_weights_in_int8_are_within_half_a_step_and_are_not_rounded_again() -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 3, 7) * torch.tensor([1e-3, 1.0, 30.0, 0.0, 0.5])[:, None, None]
    stored = integers("a.weight", weight)
    assert {str(tensor.dtype) for tensor in stored.values()} == {"torch.int8", "torch.float32"}
    loaded = dequantized(stored)["a.weight"]
    step = stored["a.weight.scale"]
    assert ((loaded - weight).abs() <= 0.5001 * step).all() and (loaded[3] == 0).all()
    torch.testing.assert_close(dequantized(integers("a.weight", loaded))["a.weight"], loaded)


@pytest.mark.parametrize("scale", [None, (5, 1), (1, 1, 1), (5, 3, 7)])
def test_int8_without_its_scales_is_refused(scale: tuple[int, ...] | None, tmp_path) -> None:
    stored = integers("a.weight", torch.randn(5, 3, 7))
    stored.pop("a.weight.scale")
    path = tmp_path / "codec.safetensors"
    save_file(stored | ({} if scale is None else {"a.weight.scale": torch.ones(scale)}), path)
    assert stored_tensors(path)["a.weight"].dtype == "I8"
    with pytest.raises(CheckpointError, match=r"a\.weight is missing"):
        read_tensors(path, {"a.weight": torch.zeros(5, 3, 7)})
