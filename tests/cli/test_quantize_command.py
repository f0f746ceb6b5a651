"""`marstts quantize`, `bundle upgrade`, and exports in int8."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

from marstts.bundle import load_bundle
from marstts.cli.main import app
from marstts.config import write_config
from marstts.mars6.export.quantize import is_int8
from marstts.mars6.model import Mars6
from marstts.models import load_for_training
from marstts.precision import WeightFormat
from marstts.training.loop import LoopConfig
from marstts.training.mars6.config import PretrainConfig

pytestmark = pytest.mark.slow


def marstts(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_bundle_becomes_int8_and_no_further(toy_bundle: Path, tmp_path: Path):
    result = marstts("quantize", toy_bundle, "--output", tmp_path / "int8")
    assert result.exit_code == 0 and result.stdout.startswith(f"{tmp_path / 'int8'}: int8, "), result.output
    assert is_int8(tmp_path / "int8" / "mars6") and load_bundle(tmp_path / "int8").name == "toy"
    again = marstts("quantize", tmp_path / "int8", "--output", tmp_path / "again")
    assert again.exit_code == 2 and "int8 already" in again.stderr and again.stderr.count("\n") == 1
    assert not (tmp_path / "again").exists()


def test_a_codec_that_is_missing_stays_as_it_was(toy_bundle: Path, tmp_path: Path):
    copy = Path(shutil.copytree(toy_bundle, tmp_path / "copy"))
    info = json.loads((copy / "bundle.json").read_text())
    (copy / "bundle.json").write_text(json.dumps(info | {"codec": {"kind": "snac", "source": str(tmp_path / "gone")}}))
    result = marstts("bundle", "upgrade", copy, "--output", tmp_path / "new")
    assert result.exit_code == 0 and "warning: the codec stays as it was" in result.stderr and "gone" in result.stderr
    assert not is_int8(tmp_path / "new" / "mars6")


def run_folder(toy_bundle: Path, folder: Path) -> Path:
    """A run folder like that of a training of the toy model."""
    run, model = folder / "run", load_for_training(toy_bundle)
    (run / "step-00000007").mkdir(parents=True)
    (run / "step-00000007/state.json").write_text('{"step": 7}')
    save_file(model.state_dict(), run / "step-00000007/ema.safetensors")
    write_config(PretrainConfig(model=model.config, loop=LoopConfig(steps=7)), run / "config.json")
    shutil.copy(toy_bundle / "tokenizer.json", run / "tokenizer.json")
    return run


def test_an_export_can_be_int8(toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def graphs_at_hand(model: Mars6, folder: Path, storage: WeightFormat) -> None:
        shutil.copytree(toy_bundle / "mars6", folder)

    monkeypatch.setattr("marstts.mars6.export.graphs.export_mars6", graphs_at_hand)
    export = ["export", str(run_folder(toy_bundle, tmp_path)), "--output", str(tmp_path / "bundle"), "--name", "narrow"]
    parts = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7", "--weights", "int8"]
    result = CliRunner().invoke(app, [*export, *parts])
    assert result.exit_code == 0, result.output
    assert is_int8(tmp_path / "bundle" / "mars6") and load_bundle(tmp_path / "bundle").name == "narrow"
