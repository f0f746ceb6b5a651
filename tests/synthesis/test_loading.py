"""Loading a bundle into a synthesizer, with a tiny untrained model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import marstts
from light_install import WITHOUT_EXTRAS
from marstts import models
from marstts.audio import Waveform
from marstts.bundle import PUBLISHED, find_bundle, read_info
from marstts.codec import registry as codecs
from marstts.errors import CheckpointError, ConfigError
from marstts.speaker import registry as encoders
from marstts.synthesis import loading
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.loading import EngineKind, choose_engine
from scripted import with_parts

pytestmark = pytest.mark.slow


@pytest.fixture
def copy(toy_bundle: Path, tmp_path: Path) -> Path:
    """A bundle that the test may change."""
    return Path(shutil.copytree(toy_bundle, tmp_path / "copy"))


def test_a_bundle_speaks_with_the_settings_it_came_with(copy: Path, reference: Waveform):
    info = json.loads((copy / "bundle.json").read_text())
    (copy / "bundle.json").write_text(
        json.dumps(
            {
                **info,
                "name": "noise",
                "settings": {"quality_prefix_hz": 8_000},
                "sampling": {**info["sampling"], "top_p": 0.35},
            }
        )
    )
    tts = with_parts(marstts.load(copy), backoff=BackoffConfig(attempts=1))
    speech = tts.speak("The cat sat.", tts.clone(reference))
    assert (tts.session.model.quality_prefix_hz, speech.model, speech.takes[0].top_p) == (
        8_000, f"noise@{info['revision']}", 0.35,
    )  # fmt: skip


def test_a_style_offset_moves_the_style_of_every_voice(copy: Path, reference: Waveform):
    info = json.loads((copy / "bundle.json").read_text())
    plain = marstts.load(copy)
    voice = plain.clone(reference)
    offset = [0.5, 0.0, 0.0, -0.25, 0.0, 0.0, 0.0]
    (copy / "bundle.json").write_text(json.dumps({**info, "settings": {**info["settings"], "style_offset": offset}}))
    style, moved = (tts.session.model.prompt("The cat sat.", voice).style for tts in (plain, marstts.load(copy)))
    expected = style + np.float32(offset)
    np.testing.assert_allclose(moved, expected * np.linalg.norm(style) / np.linalg.norm(expected), rtol=1e-5)
    (copy / "bundle.json").write_text(json.dumps({**info, "settings": {**info["settings"], "style_offset": [1.0]}}))
    with pytest.raises(CheckpointError, match="style_offset has 1 numbers"):
        marstts.load(copy)


def test_the_spelling_of_a_bundle_decides_how_capitals_are_read(copy: Path, reference: Waveform):
    info = json.loads((copy / "bundle.json").read_text())
    voice = marstts.load(copy).clone(reference)
    read = {}
    for spelling in ("as written", "simple"):
        settings = {**info["settings"], "spelling": spelling}
        (copy / "bundle.json").write_text(json.dumps({**info, "settings": settings}))
        model = marstts.load(copy).session.model
        read[spelling] = model.tokenizer.decode(model.prompt("SIT, C D.", voice).text_ids.tolist())
    assert "SIT, C D." in read["as written"] and "Sit, see dee." in read["simple"]
    settings = {**info["settings"], "spelling": "loud"}
    (copy / "bundle.json").write_text(json.dumps({**info, "settings": settings}))
    with pytest.raises(ConfigError, match="spelling: Input should be"):
        marstts.load(copy)


def test_mini_reads_capitals_in_small_letters():
    assert read_info(find_bundle("mini")).settings["spelling"] == "simple"


def test_without_graphs_a_bundle_runs_in_pytorch(copy: Path):
    assert type(marstts.load(copy).session.engine).__name__ == "OnnxEngine"
    for graph in copy.rglob("*.onnx"):
        graph.unlink()
    assert type(marstts.load(copy).session.engine).__name__ == "TorchEngine"
    with pytest.raises(CheckpointError, match="ONNX graph"):
        marstts.load(copy, engine="onnx")


def test_unknown_models_and_engines_are_refused(toy_bundle: Path):
    with pytest.raises(CheckpointError, match="unknown"):
        marstts.load("unknown")
    with pytest.raises(ConfigError, match="auto, onnx, torch, cuda"):
        marstts.load(toy_bundle, engine="steam")


def test_a_gpu_is_used_where_pytorch_is_needed_anyway(copy: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "has_gpu", lambda: True)
    assert choose_engine(EngineKind.AUTO, copy) is EngineKind.ONNX
    info = json.loads((copy / "bundle.json").read_text())
    (copy / "bundle.json").write_text(json.dumps({**info, "codec": {"kind": "snac"}}))
    assert choose_engine(EngineKind.AUTO, copy) is EngineKind.CUDA
    assert choose_engine(EngineKind.TORCH, copy) is EngineKind.TORCH
    monkeypatch.setattr(loading, "has_gpu", lambda: False)
    assert choose_engine(EngineKind.AUTO, copy) is EngineKind.ONNX
    with pytest.raises(ConfigError, match="no GPU"):
        choose_engine(EngineKind.CUDA, copy)


@pytest.mark.parametrize("gpu", [True, False])
def test_the_published_model_has_graphs_without_a_gpu(gpu: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "has_gpu", lambda: gpu)
    monkeypatch.setattr(models, "published_bundle", lambda name, *, onnx: Path("graphs" if onnx else "weights"))
    assert loading.published_bundle(PUBLISHED[0], EngineKind.AUTO).name == ("weights" if gpu else "graphs")
    assert loading.published_bundle(PUBLISHED[0], EngineKind.ONNX).name == "graphs"
    assert loading.published_bundle(PUBLISHED[0], EngineKind.TORCH).name == "weights"


def test_published_components_are_opened_on_the_models_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    opened: list[tuple[str, str]] = []
    for name in ("codec.snac.SnacCodec", "speaker.wavlm.WavLmEncoder", "speaker.clap.ClapEncoder"):
        monkeypatch.setattr(f"marstts.{name}", lambda source, *, sha256, device: opened.append((source, device)))
    codecs.open_codec(codecs.SnacPart(source="a"), tmp_path, "cuda")
    encoders.open_encoder(encoders.WavLmPart(source="b"), "identity", tmp_path, "cuda")
    encoders.open_encoder(encoders.ClapPart(source="c"), "style", tmp_path, "cuda")
    assert opened == [("a", "cuda"), ("b", "cuda"), ("c", "cuda")]


def test_a_gpu_speaks_the_same_tokens(toy_bundle: Path, reference: Waveform):
    if not loading.has_gpu():
        pytest.skip("there is no CUDA device here")
    on_cpu, on_gpu = (marstts.load(toy_bundle, engine=engine) for engine in ("torch", "cuda"))
    voice = on_cpu.clone(reference)
    for ours, theirs in zip(on_cpu.speak("Hi.", voice).takes, on_gpu.speak("Hi.", voice).takes, strict=True):
        assert [level.tolist() for level in ours.codes] == [level.tolist() for level in theirs.codes]


def test_the_command_speaks_on_a_machine_without_pytorch(toy_bundle: Path, reference_file: Path, tmp_path: Path):
    output = tmp_path / "out.wav"
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "speak", "The cat sat.", "--model", toy_bundle, "--json"]
    run = subprocess.run(
        [*command, "--reference", reference_file, "--output", output], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["model"].startswith("toy@") and len(report["takes"]) == 1
    assert output.stat().st_size > 44
