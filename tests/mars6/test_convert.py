"""`marstts convert`, and the model it makes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from toy_mars6 import export_by_copying
from typer.testing import CliRunner, Result

import marstts
from light_install import WITHOUT_EXTRAS
from marstts.cli.main import app
from marstts.errors import CheckpointError
from marstts.io.precision import WeightFormat
from marstts.mars6 import aligned_heads, published
from marstts.mars6.examined import Recorded
from marstts.mars6.export.quantize import is_int8
from marstts.models import load_for_training
from marstts.weights import pretrained

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "mars6"
PARTS = ["--codec", "toy:4096", "--identity", "toy:512", "--style", "toy:1024"]


@pytest.fixture(scope="module", autouse=True)
def one_calibration_text() -> Iterator[None]:
    """Find aligned heads by one text instead of several; random weights have none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aligned_heads, "CALIBRATION_TEXTS", ("It rained.",))
        yield


def convert(checkpoint: Path, output: Path, *options: str, tokenizer: Path = GOLDEN / "tokenizer.model") -> Result:
    arguments = ["convert", str(checkpoint), "--tokenizer", str(tokenizer), "--output", str(output), *options]
    return CliRunner().invoke(app, arguments)


def test_a_converted_model_speaks(tmp_path: Path, reference_file: Path) -> None:
    result = convert(GOLDEN / "checkpoint.pt", tmp_path / "turbo", *PARTS)
    assert result.exit_code == 0, result.stderr
    assert hashlib.sha256((GOLDEN / "checkpoint.pt").read_bytes()).hexdigest() in result.stdout
    speech = ["--reference", str(reference_file), "--output", str(tmp_path / "a.wav")]
    result = CliRunner().invoke(app, ["speak", "Hi.", *speech, "--model", str(tmp_path / "turbo")])
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "a.wav").stat().st_size > 44


@pytest.fixture(scope="module")
def light_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture checkpoint, converted for the light install."""
    folder = tmp_path_factory.mktemp("converted") / "turbo"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # users see no warnings of libraries
        result = convert(GOLDEN / "checkpoint.pt", folder, "--onnx", *PARTS)
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.mark.end_to_end
def test_a_model_converted_for_the_light_install_speaks_without_pytorch(
    light_bundle: Path, tmp_path: Path, reference_file: Path
) -> None:
    arguments = ["--model", light_bundle, "--reference", reference_file, "--output", tmp_path / "a.wav", "--json"]
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "speak", "Hi.", *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    [take] = json.loads(run.stdout)["takes"]
    assert take["text"] == "Hi."
    assert (tmp_path / "a.wav").stat().st_size > 44


@pytest.fixture
def graphs_at_hand(light_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares ten seconds of tracing: the fixture checkpoint was exported before."""

    export_by_copying(light_bundle, monkeypatch)


def test_graphs_can_be_int8(graphs_at_hand: None, light_bundle: Path, tmp_path: Path, reference_file: Path) -> None:
    folder = tmp_path / "int8"
    result = convert(GOLDEN / "checkpoint.pt", folder, "--onnx", "--weights", "int8", *PARTS)
    assert result.exit_code == 0, result.stderr
    assert is_int8(folder / "mars6") and not is_int8(light_bundle / "mars6")
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in light_bundle.iterdir())
    speech = ["--reference", str(reference_file), "--output", str(tmp_path / "a.wav")]
    result = CliRunner().invoke(app, ["speak", "Hi.", *speech, "--model", str(folder)])
    assert result.exit_code == 0, result.stderr
    refused = convert(GOLDEN / "checkpoint.pt", tmp_path / "no", "--weights", "int8", *PARTS)
    assert refused.exit_code == 2 and "give it with --onnx" in refused.stderr and refused.stderr.count("\n") == 1


class Harmful:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.witness,)


def write_broken(kind: str, folder: Path) -> tuple[Path, Path]:
    """A checkpoint and a tokenizer, one of which is broken."""
    tensors, checkpoint = load_file(GOLDEN / "checkpoint.safetensors"), folder / "broken.pt"
    match kind:
        case "cut":
            checkpoint.write_bytes((GOLDEN / "checkpoint.pt").read_bytes()[:100_000])
        case "shape":
            tensors["out_proj.weight"] = tensors["out_proj.weight"][:, :8].clone()
            torch.save({"model": tensors, "cfg": {}}, checkpoint)
        case "extra":
            torch.save({"model": tensors | {"extra.weight": torch.zeros(2)}, "cfg": {}}, checkpoint)
        case "code":
            torch.save({"model": tensors | {"inp_emb.weight": Harmful(folder / "witness")}, "cfg": {}}, checkpoint)
        case "bomb":
            with zipfile.ZipFile(checkpoint, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("bomb/data.pkl", bytes(2**24))
        case "cycle":
            tokenizer = folder / "cyclic.model"
            tokenizer.write_text("minbpe v1\npattern\n0\n257 104\n256 101\n", encoding="utf-8")
            return GOLDEN / "checkpoint.pt", tokenizer
    return checkpoint, GOLDEN / "tokenizer.model"


@pytest.mark.parametrize("kind", ["cut", "shape", "extra", "code", "bomb", "cycle", "hash", "codec"])
def test_a_refused_checkpoint_writes_nothing(kind: str, tmp_path: Path) -> None:
    checkpoint, tokenizer = write_broken(kind, tmp_path)
    output = tmp_path / "output" / "turbo"
    options = {"hash": ["--sha256", "0" * 64], "codec": ["--codec", str(tmp_path / "nowhere")]}.get(kind, [])
    result = convert(GOLDEN / "checkpoint.pt" if options else checkpoint, output, *options, tokenizer=tokenizer)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("marstts: ") and result.stderr.count("\n") == 1
    assert not (tmp_path / "witness").exists()
    assert not output.exists() and not list(tmp_path.glob("output/*"))


def test_a_refused_download_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path))
    monkeypatch.setattr(pretrained, "connection_problem", lambda address: None)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(CheckpointError, match="marstts convert") as caught:
        marstts.load("mars6-turbo")
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_published_model_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def answer(url: str, timeout: float) -> object:
        name = url.rpartition("/")[2]
        fetched.append(name)
        return (GOLDEN / {"eng-tok-512.model": "tokenizer.model"}.get(name, "checkpoint.pt")).open("rb")

    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path))
    monkeypatch.setattr(pretrained, "connection_problem", lambda address: None)
    monkeypatch.setattr(urllib.request, "urlopen", answer)
    with pytest.raises(CheckpointError, match=r"width: expected 512, found 16.*`marstts doctor` lists all of it"):
        published.cached_bundle(onnx=False)
    monkeypatch.setattr(published, "RECORDED", Recorded({"width": 16}, text_rows=None))
    folder = published.cached_bundle(onnx=False)
    assert load_for_training(folder).config.width == 16
    assert published.cached_bundle(onnx=False) == folder
    assert fetched == ["model-2000100.pt", "eng-tok-512.model"]


def test_without_a_gpu_the_published_model_is_int8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool, WeightFormat | None]] = []

    def note(
        checkpoint: Path, tokenizer: Path, folder: Path, *, onnx: bool, weights: WeightFormat | None, as_release: bool
    ) -> None:
        asked.append((folder.name, onnx, weights))
        assert as_release, "differences count under the release's name"

    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path))
    monkeypatch.setattr(published, "download", lambda name, folder: folder / name)
    monkeypatch.setattr(published, "convert", note)
    assert published.cached_bundle(onnx=True) == tmp_path / "mars6-turbo-int8"
    assert published.cached_bundle(onnx=False) == tmp_path / "mars6-turbo"
    assert asked == [("mars6-turbo-int8", True, WeightFormat.INT8), ("mars6-turbo", False, None)]
