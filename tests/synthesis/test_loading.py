"""From a folder to a speaking synthesizer, with a tiny untrained model: noise, but the whole way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import marstts
from marstts.audio import Waveform
from marstts.engine.onnx import OnnxEngine
from marstts.engine.torch import TorchEngine
from marstts.errors import CheckpointError, ConfigError
from marstts.synthesis.backoff import BackoffConfig


@pytest.fixture
def copy(toy_bundle: Path, tmp_path: Path) -> Path:
    """A bundle that the test may change."""
    return Path(shutil.copytree(toy_bundle, tmp_path / "copy"))


def test_a_bundle_speaks_with_the_settings_it_came_with(copy: Path, reference: Waveform):
    info = json.loads((copy / "bundle.json").read_text())
    (copy / "bundle.json").write_text(
        json.dumps({**info, "name": "noise", "quality": 8_000, "sampling": {**info["sampling"], "top_p": 0.35}})
    )
    tts = replace(marstts.load(copy), backoff=BackoffConfig(attempts=1))
    speech = tts.speak("The cat sat.", tts.clone(reference))
    assert (tts.quality, speech.model, speech.takes[0].top_p) == (8_000, "noise", 0.35)


def test_without_graphs_a_bundle_runs_in_pytorch(copy: Path):
    assert isinstance(marstts.load(copy).stepper, OnnxEngine)
    for graph in copy.rglob("*.onnx"):
        graph.unlink()
    assert isinstance(marstts.load(copy).stepper, TorchEngine)
    with pytest.raises(CheckpointError, match="ONNX graph"):
        marstts.load(copy, engine="onnx")


def test_unknown_models_and_engines_are_refused(toy_bundle: Path):
    with pytest.raises(CheckpointError, match="nobody"):
        marstts.load("nobody")
    with pytest.raises(ConfigError, match="auto, onnx, torch"):
        marstts.load(toy_bundle, engine="steam")


WITHOUT_EXTRAS = """
import sys

class NotInstalled:
    def find_spec(self, name, path, target=None):
        package = name.partition(".")[0]
        if package in ("torch", "transformers", "snac", "onnx", "tensorboard", "pyworld", "pocketsphinx", "jiwer"):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

sys.meta_path.insert(0, NotInstalled())
from marstts.cli.main import app
app()
"""
"""The program in an interpreter that has only the light install."""


def test_the_command_speaks_on_a_machine_without_pytorch(toy_bundle: Path, reference_file: Path, tmp_path: Path):
    output = tmp_path / "out.wav"
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "speak", "The cat sat.", "--model", toy_bundle, "--json"]
    run = subprocess.run(
        [*command, "--reference", reference_file, "--output", output], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["model"] == "toy" and len(report["takes"]) == 1
    assert output.stat().st_size > 44
