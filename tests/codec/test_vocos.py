"""Vocos with random weights of the published shapes, against its formulas written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from marstts.codec.encodec import EncodecVocos
from marstts.codec.vocos import WINDOW, Vocos, VocosConfig, VocosVocoder
from marstts.errors import CheckpointError, DataError

SMALL = VocosConfig(levels=9, width=12, inner_width=20, code_width=6, blocks=2)


def published_tensors(model: Vocos) -> dict[str, Tensor]:
    """The model's tensors by their published names."""
    names = {
        "codebooks": "feature_extractor.codebook_weights",
        "out.weight": "head.out.weight",
        "out.bias": "head.out.bias",
    }
    return {names.get(name, f"backbone.{name}"): tensor for name, tensor in model.state_dict().items()}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A small Vocos whose norms depend on the bandwidth, in a published file."""
    torch.manual_seed(0)
    tensors = published_tensors(Vocos(SMALL))
    for name, tensor in tensors.items():
        if "codebook" not in name:
            torch.nn.init.normal_(tensor, std=0.3)
    save_file(tensors | {WINDOW: torch.hann_window(1280)}, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def codes(frames: int, levels: int = 8) -> np.ndarray:
    return np.random.default_rng(frames).integers(0, 1024, (frames, levels))


def test_samples_follow_the_formulas(weights: Path) -> None:
    vocoder, given = VocosVocoder(weights, bandwidth=2), codes(5)
    tensors = published_tensors(vocoder.model)

    def norm(x: Tensor, name: str) -> Tensor:
        centered = x - x.mean(dim=1, keepdim=True)
        normed = centered / torch.sqrt(centered.square().mean(dim=1, keepdim=True) + 1e-6)
        return normed * tensors[f"{name}.scale.weight"][2] + tensors[f"{name}.shift.weight"][2]

    def conv(x: Tensor, name: str, groups: int) -> Tensor:
        return F.conv1d(x.T[None], tensors[f"{name}.weight"], tensors[f"{name}.bias"], padding=3, groups=groups)[0].T

    with torch.inference_mode():
        table = tensors["feature_extractor.codebook_weights"]
        x = torch.stack([sum(table[int(code) + 1024 * level] for level, code in enumerate(frame)) for frame in given])
        x = norm(conv(x, "backbone.embed", 1), "backbone.norm")
        for block in ("backbone.convnext.0", "backbone.convnext.1"):
            inner = norm(conv(x, f"{block}.dwconv", 12), f"{block}.norm")
            inner = F.gelu(inner @ tensors[f"{block}.pwconv1.weight"].T + tensors[f"{block}.pwconv1.bias"])
            inner = inner @ tensors[f"{block}.pwconv2.weight"].T + tensors[f"{block}.pwconv2.bias"]
            x = x + tensors[f"{block}.gamma"] * inner
        final = (tensors["backbone.final_layer_norm.weight"], tensors["backbone.final_layer_norm.bias"])
        x = F.layer_norm(x, (12,), *final, eps=1e-6)
        x = x @ tensors["head.out.weight"].T + tensors["head.out.bias"]
        spectrum = x[:, :641].exp().clamp(max=100) * torch.exp(1j * x[:, 641:])
        expected = slow_synthesis(spectrum.numpy())
    np.testing.assert_allclose(vocoder.decode(given), expected, atol=1e-3 * np.abs(expected).max())


def slow_synthesis(spectrum: np.ndarray) -> np.ndarray:
    """(T, 641) -> (320 T,): windowed frames added one after the other."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1280) / 1280)
    samples, weights = np.zeros(320 * len(spectrum) + 960), np.zeros(320 * len(spectrum) + 960)
    for frame, bins in enumerate(spectrum):
        samples[320 * frame : 320 * frame + 1280] += np.fft.irfft(bins, 1280) * window
        weights[320 * frame : 320 * frame + 1280] += window**2
    return (samples / np.maximum(weights, 1e-30))[480:-480]


def test_the_bandwidth_matters_and_must_be_known(weights: Path) -> None:
    smooth, clear = (VocosVocoder(weights, bandwidth=bandwidth).decode(codes(4)) for bandwidth in (1, 2))
    assert np.abs(smooth - clear).max() > 1e-3
    with pytest.raises(CheckpointError, match="has 0 to 3"):
        VocosVocoder(weights, bandwidth=4)


def test_codes_out_of_range_are_refused(weights: Path) -> None:
    wrong = codes(3)
    wrong[1, 1] = 1024
    with pytest.raises(DataError, match="to 1024; expected 0 to 1023"):
        VocosVocoder(weights).decode(wrong)
    for bad in (wrong - 1025, codes(3, 10), codes(3)[0]):
        with pytest.raises(DataError, match="Vocos was given codes"):
            VocosVocoder(weights).decode(bad)


def test_other_weights_are_refused(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="SHA-256"):
        VocosVocoder(weights, sha256="0" * 64)
    save_file({"some.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="expected the weights of Vocos"):
        VocosVocoder(tmp_path / "other.safetensors")
    tensors = published_tensors(Vocos(SMALL)) | {"extra": torch.zeros(1)}
    save_file(tensors, tmp_path / "extra.safetensors")
    with pytest.raises(CheckpointError, match="belong to another model"):
        VocosVocoder(tmp_path / "extra.safetensors")


def test_windows_of_codes_fit_together_within_the_reach(weights: Path) -> None:
    """A codec decodes windows; EnCodec itself is not needed for that."""

    class NoEncoder:
        name = "none"

    codec = EncodecVocos(NoEncoder(), VocosVocoder(weights))  # type: ignore[arg-type]
    utterance = codes(100)
    whole = codec.decode(utterance.T).samples
    window = codec.decode(utterance[10:90].T, first=10).samples
    reach = codec.lookahead_patches * 320
    inside = whole[10 * 320 + reach : 90 * 320 - reach]
    np.testing.assert_allclose(window[reach:-reach], inside, atol=1e-4 * np.abs(whole).max())
    assert codec.spec.patch_layout == (1,) * 8 and codec.spec.patch_rate == 75
