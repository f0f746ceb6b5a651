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
from marstts.text.bpe import BPE
from marstts.text.minbpe import read_minbpe

DEFAULT = Path(__file__).parents[1] / "golden" / "mars6"
OPTION = "--fixtures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Here the name means golden data; pytest's own listing is still there as --funcargs."""
    parser._anonymous._arggroup.conflict_handler = "resolve"
    parser.addoption(OPTION, dest="golden_folder", default=None, metavar="DIR", help="folder of golden data")


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.getoption("golden_folder", None) or DEFAULT)


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
    return {
        "main": load_released(golden / "checkpoint.pt").model,
        "wide": load_released(golden / "wide.pt").model,
    }
