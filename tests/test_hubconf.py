"""The entry points of PyTorch's hub in this repository."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import marstts

ROOT = Path(__file__).parents[1]


def test_the_hub_loads_the_models_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(marstts, "load", asked.append, raising=False)
    torch.hub.load(str(ROOT), "mars6_turbo", source="local")
    torch.hub.load(str(ROOT), "mini", source="local")
    assert asked == ["mars6-turbo", "mini"]
