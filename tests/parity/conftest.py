"""`pytest tests/parity --fixtures DIR`: which folder of golden data to compare with (default: tests/golden/mars6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

from marstts.mars6.model import Mars6
from marstts.mars6.released import load_released
from marstts.text.tokenizers.bpe import BPE
from marstts.text.tokenizers.minbpe import read_minbpe

DEFAULT = Path(__file__).parents[1] / "golden" / "mars6"
OPTION = "--fixtures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Here the name means golden data; pytest's own listing is still there as --funcargs."""
    parser._anonymous._arggroup.conflict_handler = "resolve"
    parser.addoption(OPTION, dest="golden_folder", default=None, metavar="DIR", help="folder of golden data")


def folder_of(config: pytest.Config) -> Path:
    return Path(config.getoption("golden_folder", None) or DEFAULT)


def read_record(folder: Path) -> dict[str, Any]:
    """io.json of a folder with MARS6's data; empty where it holds another model's."""
    if not (folder / "checkpoint.pt").is_file():
        return {}
    return json.loads((folder / "io.json").read_text(encoding="utf-8"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`name` is every recorded model, `run_name` each of its runs."""
    names, record = metafunc.fixturenames, read_record(folder_of(metafunc.config))
    recorded = [name for name, entry in record.items() if isinstance(entry, dict) and "generation" in entry]
    if "run_name" in names:
        pairs = [(name, run["name"]) for name in recorded for run in record[name]["generation"]]
        metafunc.parametrize(("name", "run_name"), pairs)
    elif "name" in names:
        metafunc.parametrize("name", recorded)


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Path:
    folder = folder_of(request.config)
    if not (folder / "checkpoint.pt").is_file():
        pytest.skip(f"{folder}: no golden data of MARS6")
    return folder


@pytest.fixture(scope="session")
def record(golden: Path) -> dict[str, Any]:
    return json.loads((golden / "io.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def tensors(golden: Path) -> dict[str, Tensor]:
    return load_file(golden / "io.safetensors")


@pytest.fixture(scope="session")
def tokenizer(golden: Path) -> BPE:
    return read_minbpe(golden / "tokenizer.model")


@pytest.fixture(scope="session")
def models(golden: Path) -> dict[str, Mars6]:
    """`checkpoint.pt` is called main, others after their files."""
    return {
        "main" if path.stem == "checkpoint" else path.stem: load_released(path).model
        for path in sorted(golden.glob("*.pt"))
    }
