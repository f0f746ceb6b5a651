"""The entry points of PyTorch's hub in this repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import marstts
from marstts.errors import ConfigError

ROOT = Path(__file__).parents[1]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(marstts, "load", lambda name, engine="auto": calls.append((name, engine)), raising=False)
    return calls


def test_the_hub_loads_the_models_by_name(asked: list[Any]) -> None:
    torch.hub.load(str(ROOT), "mars6_turbo", source="local")
    torch.hub.load(str(ROOT), "mini", source="local")
    assert asked == [("mars6-turbo", "auto"), ("mini", "auto")]


def test_the_arguments_of_the_release_are_taken(asked: list[Any]) -> None:
    for device in ("cpu", "cuda:0", torch.device("cuda")):
        torch.hub.load(str(ROOT), "mars6_turbo", True, False, device, torch.half, "safetensors", source="local")
    assert [engine for _, engine in asked] == ["onnx", "cuda", "cuda"]
    for other in ({"pretrained": False}, {"ckpt_format": "gguf"}, {"checkpoint_url": "https://name.invalid/a.pt"}):
        with pytest.raises(ConfigError, match="marstts convert"):
            torch.hub.load(str(ROOT), "mars6_turbo", source="local", **other)
