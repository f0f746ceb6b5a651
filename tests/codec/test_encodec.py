"""EnCodec with random weights of the published shape."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from marstts.audio import Waveform
from marstts.codec.encodec import EncodecEncoder
from marstts.errors import AudioError, CheckpointError

pytestmark = pytest.mark.slow  # transformers takes seconds to import

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`transformers` writes random weights as the hub has the published ones."""
    folder = tmp_path_factory.mktemp("encodec")
    torch.manual_seed(0)
    model = transformers.EncodecModel(transformers.EncodecConfig())
    for layer in model.quantizer.layers:
        torch.nn.init.normal_(layer.codebook.embed)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(folder: Path) -> EncodecEncoder:
    return EncodecEncoder(folder)


def noise(samples: int, rate: int = 24_000) -> Waveform:
    return Waveform(np.random.default_rng(0).standard_normal(samples).astype(np.float32) * 0.1, rate)


@pytest.mark.parametrize(("samples", "frames"), [(1, 1), (320, 1), (321, 2), (24_000, 75), (24_001, 76)])
def test_frames_are_320_samples_rounded_up(samples: int, frames: int, encoder: EncodecEncoder) -> None:
    codes = encoder.encode(noise(samples))
    assert codes.shape == (frames, 8) and codes.dtype == np.int64
    assert codes.min() >= 0 and codes.max() < 1024


def test_codes_are_those_of_the_library(folder: Path, encoder: EncodecEncoder) -> None:
    model, waveform = transformers.EncodecModel.from_pretrained(folder).eval(), noise(5000)
    with torch.inference_mode():
        theirs = model.encode(torch.from_numpy(waveform.samples)[None, None], bandwidth=6.0).audio_codes[0, 0]
    assert np.array_equal(encoder.encode(waveform), theirs.numpy().T)


def test_other_rates_are_resampled_first(encoder: EncodecEncoder) -> None:
    assert len(encoder.encode(noise(16_000, 16_000))) == 75


def test_no_samples_and_other_weights_are_refused(folder: Path, tmp_path: Path, encoder: EncodecEncoder) -> None:
    with pytest.raises(AudioError, match="no samples"):
        encoder.encode(noise(0))
    with pytest.raises(CheckpointError, match="SHA-256"):
        EncodecEncoder(folder, sha256="0" * 64)
    with pytest.raises(CheckpointError, match="incomplete"):
        EncodecEncoder(tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"sampling_rate": 48_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="EnCodec at 24 kHz"):
        EncodecEncoder(tmp_path)
