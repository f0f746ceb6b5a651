"""Weights from the hub: the cache first, then one attempt."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from marstts.errors import CheckpointError
from marstts.metrics.hub import fetch_model
from marstts.weights.pretrained import NETWORK_SECONDS

FILES = (("model.safetensors", "model.bin"), ("config.json",))


class Hub:
    """A stand-in for `huggingface_hub` that counts what it is asked."""

    def __init__(self, cache: Path, listed: list[str] | None) -> None:
        self.cache, self.listed = cache, listed
        self.lookups: list[float] = []
        self.downloads: list[str] = []

    def HfApi(self):
        return self

    def try_to_load_from_cache(self, model: str, name: str):
        path = self.cache / name
        return str(path) if path.is_file() else None

    def model_info(self, model: str, timeout: float):
        self.lookups.append(timeout)
        if self.listed is None:
            raise ConnectionError("Name or service not known")
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in self.listed])

    def hf_hub_download(self, model: str, name: str) -> str:
        self.downloads.append(name)
        (self.cache / name).write_text("x")
        return str(self.cache / name)


def use(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> Hub:
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return hub


def test_without_a_network_there_is_one_short_attempt_and_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub = use(monkeypatch, Hub(tmp_path, None))
    with pytest.raises(CheckpointError, match=r"owner/model: .* cannot be downloaded \(Name or service not known\)"):
        fetch_model("owner/model", FILES)
    assert hub.lookups == [NETWORK_SECONDS] and hub.downloads == [] and NETWORK_SECONDS <= 5.0


def test_the_first_of_each_alternative_is_downloaded_and_then_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub = use(monkeypatch, Hub(tmp_path, ["config.json", "model.bin", "readme.md"]))
    assert fetch_model("owner/model", FILES) == tmp_path
    assert hub.downloads == ["model.bin", "config.json"]
    assert fetch_model("owner/model", FILES) == tmp_path and len(hub.lookups) == 1


def test_a_hub_model_without_the_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, Hub(tmp_path, ["config.json"]))
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors or model\.bin"):
        fetch_model("owner/model", FILES)


def test_a_folder_is_used_as_it_is_and_refused_if_incomplete(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="incomplete"):
        fetch_model(str(tmp_path), FILES)
    (tmp_path / "model.bin").write_text("x")
    assert fetch_model(str(tmp_path), FILES) == tmp_path
