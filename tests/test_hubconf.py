"""The entry points of PyTorch's hub in this repository."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import marstts
from mars5_published import AR, NAR, ar_content, nar_content, save

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden" / "mars6"


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def load(name: str, **options: Any) -> Any:
    return torch.hub.load(str(ROOT), name, source="local", **options)


def test_mars6_turbo_is_a_model_and_its_tokenizer_in_the_type_that_was_asked_for() -> None:
    files = {"checkpoint_url": str(GOLDEN / "checkpoint.pt"), "tokenizer_url": str(GOLDEN / "tokenizer.model")}
    model, tokenizer = load("mars6_turbo", ckpt_format="pt", device="cpu", dtype=torch.float64, **files)
    ids = torch.tensor(tokenizer.encode("<|startoftext|>[48000]Hi.<|endoftext|>", allowed_special="all"))[None]
    speaker = torch.zeros(1, 1024), torch.zeros(1, 512)
    tokens = model.inference(ids, torch.tensor([ids.shape[1]]), *speaker, torch.tensor([0]), max_len=2)
    assert tokens.shape[1] == 7 and next(model.parameters()).dtype == torch.float64


def test_mars5_english_is_a_model_and_the_class_of_its_settings(tmp_path: Path) -> None:
    ar = AR.model_copy(update={"width": 128, "speaker_heads": 2})
    nar = NAR.model_copy(update={"width": 192, "heads": 3})
    paths = {"ar_path": save(ar_content(ar), tmp_path / "a.pt"), "nar_path": save(nar_content(nar), tmp_path / "n.pt")}
    mars5, config_class = load("mars5_english", device="cpu", **paths)
    assert mars5.sr == 24_000 and config_class(top_k=100).top_k == 100


def test_the_arguments_of_the_releases_have_their_names_order_and_defaults() -> None:
    sys.path.insert(0, str(ROOT))
    import hubconf

    turbo = {
        "pretrained": True, "progress": True, "device": None, "dtype": torch.half, "ckpt_format": "pt",
        "checkpoint_url": None, "tokenizer_url": None,
    }  # fmt: skip
    english = {
        "pretrained": True, "progress": True, "device": None, "ckpt_format": "safetensors", "ar_path": None,
        "nar_path": None,
    }  # fmt: skip
    for entry, expected in ((hubconf.mars6_turbo, turbo), (hubconf.mars5_english, english)):
        found = {name: parameter.default for name, parameter in inspect.signature(entry).parameters.items()}
        assert list(found.items()) == list(expected.items())


def test_mini_is_a_synthesizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marstts, "load", lambda name: f"opened {name}", raising=False)
    assert load("mini") == "opened mini"
