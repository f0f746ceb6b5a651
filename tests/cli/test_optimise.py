"""`marstts optimise`, and exports in int8."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

from marstts.checkpoint import load_bundle, load_mars6
from marstts.cli.main import app
from marstts.config import write_config
from marstts.mars6.model import Mars6
from marstts.mars6.quantise import is_int8
from marstts.onnx_export import Storage
from marstts.training.loop import LoopConfig
from marstts.training.pretrain import PretrainConfig


def optimise(model: Path, output: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["optimise", str(model), "--output", str(output), *options])


def test_a_bundle_becomes_int8_and_no_further(toy_bundle: Path, tmp_path: Path):
    result = optimise(toy_bundle, tmp_path / "int8")
    assert result.exit_code == 0 and result.stdout.startswith(f"{tmp_path / 'int8'}: int8, "), result.output
    assert is_int8(tmp_path / "int8" / "mars6") and load_bundle(tmp_path / "int8").name == "toy"
    again = optimise(tmp_path / "int8", tmp_path / "again")
    assert again.exit_code == 2 and "int8 already" in again.stderr and again.stderr.count("\n") == 1
    assert not (tmp_path / "again").exists()


def test_a_codec_that_is_not_at_hand_stays_as_it_was(toy_bundle: Path, tmp_path: Path):
    copy = Path(shutil.copytree(toy_bundle, tmp_path / "copy"))
    info = json.loads((copy / "bundle.json").read_text())
    (copy / "bundle.json").write_text(json.dumps(info | {"codec": {"kind": "snac", "source": str(tmp_path / "gone")}}))
    result = optimise(copy, tmp_path / "new", "--precision", "float32")
    assert result.exit_code == 0 and "warning: the codec stays as it was" in result.stderr and "gone" in result.stderr
    assert not is_int8(tmp_path / "new" / "mars6")


def run_folder(toy_bundle: Path, folder: Path) -> Path:
    """What a training of the toy model would have left behind."""
    run, model = folder / "run", load_mars6(toy_bundle)
    (run / "step-00000007").mkdir(parents=True)
    (run / "step-00000007/state.json").write_text('{"step": 7}')
    save_file(model.state_dict(), run / "step-00000007/average.safetensors")
    write_config(PretrainConfig(model=model.config, loop=LoopConfig(steps=7)), run / "config.json")
    load_bundle(toy_bundle).tokenizer.save(run / "tokenizer.json")
    return run


def test_an_export_can_be_int8(toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def graphs_at_hand(model: Mars6, folder: Path, storage: Storage) -> None:
        shutil.copytree(toy_bundle / "mars6", folder)

    monkeypatch.setattr("marstts.mars6.graphs.export_mars6", graphs_at_hand)
    export = ["export", str(run_folder(toy_bundle, tmp_path)), "--output", str(tmp_path / "bundle"), "--name", "narrow"]
    parts = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7", "--precision", "int8"]
    result = CliRunner().invoke(app, [*export, *parts])
    assert result.exit_code == 0, result.output
    assert is_int8(tmp_path / "bundle" / "mars6") and load_bundle(tmp_path / "bundle").name == "narrow"
