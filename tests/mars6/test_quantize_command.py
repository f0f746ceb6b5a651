"""`marstts quantize`, `bundle upgrade`, and exports in int8."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_mars6 import export_by_copying, write_toy_run
from typer.testing import CliRunner, Result

from marstts.bundle import load_bundle
from marstts.cli.main import app
from marstts.mars6.export.quantize import is_int8

pytestmark = pytest.mark.slow


def marstts(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_bundle_becomes_int8_and_no_further(toy_bundle: Path, tmp_path: Path):
    result = marstts("quantize", toy_bundle, "--output", tmp_path / "int8")
    assert result.exit_code == 0 and result.stdout.startswith(f"{tmp_path / 'int8'}: toy@"), result.output
    assert is_int8(tmp_path / "int8" / "mars6") and load_bundle(tmp_path / "int8").name == "toy"
    again = marstts("quantize", tmp_path / "int8", "--output", tmp_path / "again")
    assert again.exit_code == 2 and "int8 already" in again.stderr and again.stderr.count("\n") == 1
    assert not (tmp_path / "again").exists()


def test_an_export_can_be_int8(toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    export_by_copying(toy_bundle, monkeypatch)
    export = ["export", str(write_toy_run(tmp_path / "run")), "--output", str(tmp_path / "bundle"), "--name", "narrow"]
    parts = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7", "--weights", "int8"]
    result = CliRunner().invoke(app, [*export, *parts])
    assert result.exit_code == 0, result.output
    assert is_int8(tmp_path / "bundle" / "mars6") and load_bundle(tmp_path / "bundle").name == "narrow"
