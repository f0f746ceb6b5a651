"""SNAC as graphs: codes, audio and name equal those of the package, without PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import safetensors.numpy
import torch
from safetensors.torch import save_file

from light_install import WITHOUT_EXTRAS
from marstts.audio import Waveform
from marstts.bundle import load_bundle
from marstts.codec import snac_onnx
from marstts.codec.base import start_decoding
from marstts.codec.snac import SnacCodec
from marstts.codec.snac_graphs import export_snac
from marstts.codec.snac_onnx import SnacOnnx, Span, receptive_field
from marstts.errors import AudioError, CheckpointError, MissingExtraError
from marstts.models import upgrade_bundle
from marstts.voice import Voice

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6"
SMALL = json.loads((GOLDEN / "io.json").read_text(encoding="utf-8"))["snac"]["config"]
SHAPES = {
    "as published": {"noise": True, "codebook_size": 64},
    "odd rates, all channels together, no noise": {
        "depthwise": False, "encoder_rates": [2, 3], "decoder_rates": [3, 2], "encoder_dim": 6,
        "vq_strides": [3, 1],
    },
}  # fmt: skip


def random_snac(folder: Path, **changes: object) -> Path:
    """Write a small SNAC as on the hub, with snake factors of all sizes and signs."""
    snac = pytest.importorskip("snac")
    torch.manual_seed(0)
    model = snac.SNAC(**SMALL | changes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("alpha"):
                parameter.copy_(torch.randn_like(parameter) * 2)
                parameter[0, 0] = 0
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(SMALL | changes))
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[SnacCodec, SnacOnnx]:
    folder = tmp_path_factory.mktemp("snac")
    random_snac(folder / "source", **SHAPES[request.param])
    export_snac(folder / "source", folder / "graphs")
    return SnacCodec(folder / "source"), SnacOnnx(folder / "graphs")


def test_codes_and_audio_match_recorded_results(tmp_path: Path):
    recorded = safetensors.numpy.load_file(GOLDEN / "snac.safetensors")
    weights = {key.removeprefix("weights."): value for key, value in recorded.items() if key.startswith("weights.")}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    export_snac(tmp_path, tmp_path / "graphs")
    codec = SnacOnnx(tmp_path / "graphs")
    codes = codec.encode(Waveform(recorded["wav"][0, 0], 24_000))
    for level, ours in enumerate(codes):
        assert ours.dtype == np.int64
        np.testing.assert_array_equal(ours, recorded[f"codes.{level}"][0])
    np.testing.assert_allclose(codec.decode(codes).samples, recorded["decoded"][0, 0], atol=1e-4)


def test_codes_audio_and_name_equal_the_packages(pair: tuple[SnacCodec, SnacOnnx]):
    package, ours = pair
    assert ours.spec == package.spec and ours.lookahead_patches == package.lookahead_patches
    rng, layout = np.random.default_rng(0), package.spec.patch_layout
    patches = 2 * snac_onnx.WINDOW_PATCHES + 3
    codes = tuple(rng.integers(0, package.spec.codebook_size, patches * count) for count in layout)
    for first in (0, 5):
        expected = package.decode(codes, first).samples
        np.testing.assert_allclose(ours.decode(codes, first).samples, expected, atol=2e-4 * np.abs(expected).max())
    waveform = Waveform(rng.normal(size=patches * package.spec.patch_samples - 3).astype(np.float32), 24_000)
    for level, expected in zip(ours.encode(waveform), package.encode(waveform), strict=True):
        assert np.mean(level == expected) > 0.99, "up to a near tie"


def test_windows_are_padded_by_their_receptive_field_and_little_else(pair: tuple[SnacCodec, SnacOnnx]):
    _, codec = pair
    config, hop, rng = codec._config, codec.spec.patch_samples, np.random.default_rng(1)
    codes = tuple(rng.integers(0, codec.spec.codebook_size, 100 * count) for count in codec.spec.patch_layout)
    whole = codec.decode(codes).samples
    decoding, decoded = start_decoding(codec), 0
    for stop in (1, 40, 57, 99, 100):
        window = decoding.decode_until(codes, stop)
        np.testing.assert_allclose(window, whole[decoded * hop : stop * hop], atol=1e-5)
        decoded = stop
    patches, spans = receptive_field(config, Span(40, 41), 100)
    assert 41 - patches.first <= 1 + codec.lookahead_patches and patches.last - 40 <= 1 + codec.lookahead_patches
    assert spans[-1] == (40 * hop - 42, 41 * hop + 42), "the costly last block adds its own receptive field only"
    assert receptive_field(config, Span(0, 100), 100)[1][-1] == (0, 100 * hop)


def test_noise_depends_on_the_seed_and_the_position(pair: tuple[SnacCodec, SnacOnnx]):
    _, codec = pair
    codes = tuple(np.arange(4 * count) % codec.spec.codebook_size for count in codec.spec.patch_layout)
    once, again, elsewhere = (codec.decode(codes, first).samples for first in (0, 0, 1))
    assert np.array_equal(once, again)
    assert np.array_equal(once, elsewhere) is (not codec._config.noise)


def test_no_codes_decode_to_nothing_and_wrong_numbers_of_codes_are_refused(pair: tuple[SnacCodec, SnacOnnx]):
    _, codec = pair
    levels = len(codec.spec.patch_layout)
    assert len(codec.decode((np.zeros(0, np.int64),) * levels).samples) == 0
    with pytest.raises(CheckpointError, match="levels of T x"):
        codec.decode((np.zeros(4, np.int64),) * levels)
    with pytest.raises(AudioError, match="no samples"):
        codec.encode(Waveform(np.zeros(0, np.float32), 24_000))


@pytest.fixture(scope="module")
def snac_bundle(toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy bundle, with a small SNAC for a codec, rewritten so that it has its graphs."""
    folder = tmp_path_factory.mktemp("bundles")
    source = random_snac(folder / "source", **SHAPES["as published"])
    copytree(toy_bundle, folder / "bare")
    info = json.loads((folder / "bare" / "bundle.json").read_text())
    info["codec"] = {"kind": "snac", "source": str(source), "sha256": None}
    (folder / "bare" / "bundle.json").write_text(json.dumps(info))
    assert upgrade_bundle(folder / "bare", folder / "bundle") is None
    return folder / "bundle"


@pytest.mark.slow
def test_a_bundle_with_graphs_speaks_without_pytorch(snac_bundle: Path, tmp_path: Path):
    bundle = load_bundle(snac_bundle)
    voice = Voice(
        name="test", embeddings={"identity": np.ones(5, np.float32), "style": np.ones(7, np.float32)}, prefix=None,
        codec=bundle.codec.spec.name, encoders={role: encoder.name for role, encoder in bundle.encoders.items()},
        source_sha256="", consent="",
    )  # fmt: skip
    voice.save(tmp_path / "test.voice")
    options = ["--model", snac_bundle, "--voice", tmp_path / "test.voice", "--output", tmp_path / "a.wav"]
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "speak", "Hello there.", *map(str, options)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "a.wav").stat().st_size > 44


@pytest.mark.slow
def test_without_the_snac_package_an_upgraded_bundle_keeps_its_graphs(
    snac_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "snac", None)
    with pytest.raises(MissingExtraError, match=r"marstts\[released\]"):
        export_snac(snac_bundle.parent / "source", tmp_path / "graphs")
    reason = upgrade_bundle(snac_bundle, tmp_path / "copy")
    assert reason is not None and "released" in reason
    assert isinstance(load_bundle(tmp_path / "copy").codec, SnacOnnx)
