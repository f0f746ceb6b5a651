"""Golden data of MARS5, where the folder given by `--fixtures` holds some: itself, or its subfolder `mars5`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from marstts.mars5.ar import CodecLM
from marstts.mars5.checkpoint import Models, load_released

DEFAULT = Path(__file__).parents[1] / "golden" / "mars5"


@dataclass(frozen=True, eq=False)
class Golden:
    """All that a folder records."""

    folder: Path
    record: dict[str, Any]
    tensors: dict[str, Tensor]
    models: Models

    def close(self, ours: Tensor, name: str, atol: float = 1e-4) -> None:
        """Raise unless `ours` is the recorded tensor, within 1e-4."""
        torch.testing.assert_close(ours, self.tensors[name], atol=atol, rtol=1e-5)

    def numbered(self, pattern: str) -> list[tuple[str, int]]:
        """Names of recorded tensors that match, at least one, each with the number in it."""
        matches = [match for match in (re.fullmatch(pattern, name) for name in self.tensors) if match]
        assert matches, pattern
        return [(match[0], int(match[1])) for match in matches]


def find_golden(config: pytest.Config) -> Path | None:
    """The folder with MARS5's data, if there is one."""
    given = config.getoption("golden_folder", None)
    candidates = [Path(given), Path(given) / "mars5"] if given else [DEFAULT]
    return next((folder for folder in candidates if (folder / "nar.pt").is_file()), None)


def read_record(config: pytest.Config) -> dict[str, Any] | None:
    """io.json, if there is one."""
    folder = find_golden(config)
    return None if folder is None else json.loads((folder / "io.json").read_text("utf-8"))


def open_golden(config: pytest.Config) -> Golden:
    """The golden data; skips the test where there is none."""
    folder = find_golden(config)
    if folder is None:
        pytest.skip("no golden data of MARS5: name their folder with --fixtures")
    return _open(folder)


@lru_cache
def _open(folder: Path) -> Golden:
    record = json.loads((folder / "io.json").read_text("utf-8"))
    sizes = record["config"]
    models = load_released(
        folder / "ar.pt", folder / "nar.pt", ar_heads=sizes["ar"]["nhead"], nar_heads=sizes["nar"]["nhead"]
    )
    return Golden(folder, record, load_file(folder / "io.safetensors"), models)


def with_window(model: CodecLM, window: int) -> CodecLM:
    """A copy of the AR that attends to fewer places."""
    copy = CodecLM(model.config.model_copy(update={"window": window})).eval()
    copy.load_state_dict(model.state_dict())
    return copy
