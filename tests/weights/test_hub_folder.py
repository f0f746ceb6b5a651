"""Models on the Hugging Face hub, by `hf://OWNER/NAME`: safe files, once, and from the cache without a network."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from marstts.bundle import find_bundle
from marstts.errors import CheckpointError
from marstts.weights import pretrained


class Hub:
    """The hub's client with one model, `ann/voice`, whose folder it copies."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, list[Any]()
        self.is_reachable = True

    def snapshot_download(self, model: str, revision: str | None, local_dir: str, allow_patterns: list[str]) -> None:
        self.asked.append((model, revision))
        assert not {"*.py", "*.bin", "*.pt", "*"} & set(allow_patterns)
        if model != "ann/voice":
            raise ValueError("404: no such model\nsecond line")
        shutil.copytree(self.folder, local_dir, dirs_exist_ok=True)

    def problem(self, *_: object) -> Exception | None:
        return None if self.is_reachable else ConnectionError("no network")


@pytest.fixture
def hub(toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    client = Hub(toy_bundle)
    package, constants = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.constants")
    package.snapshot_download = client.snapshot_download  # type: ignore[attr-defined]
    package.constants, constants.ENDPOINT = constants, "https://hub.invalid"  # type: ignore[attr-defined]
    package.__spec__ = constants.__spec__ = SimpleNamespace(name="huggingface_hub")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
    monkeypatch.setattr(pretrained, "connection_problem", client.problem)
    monkeypatch.setattr(pretrained, "answer_problem", client.problem)
    monkeypatch.setenv("MARSTTS_CACHE", str(tmp_path / "cache"))
    return client


@pytest.mark.parametrize(
    ("address", "revision"),
    [("hf://ann/voice", None), ("hf://ann/voice@v2", "v2"), ("hf://ann/voice@../../up", "../../up")],
)
def test_a_model_on_the_hub_becomes_a_bundle_in_the_cache(
    address: str, revision: str | None, hub: Hub, tmp_path: Path
) -> None:
    folder = find_bundle(address)
    assert (folder / "bundle.json").is_file() and folder.is_relative_to(tmp_path / "cache")
    assert hub.asked == [("ann/voice", revision)]
    hub.is_reachable = False
    assert find_bundle(address) == folder and len(hub.asked) == 1


@pytest.mark.parametrize("address", ["hf://voice", "hf://ann/voice/more", "hf://", "hf://../../etc"])
def test_other_addresses_are_refused(address: str, hub: Hub) -> None:
    with pytest.raises(CheckpointError, match="expected hf://OWNER/NAME"):
        find_bundle(address)
    assert hub.asked == []


def test_without_a_network_and_a_copy_the_reason_is_one_sentence(hub: Hub) -> None:
    with pytest.raises(CheckpointError, match=r"hf://ann/other: the download failed \(404: no such model\); connect"):
        find_bundle("hf://ann/other")
    hub.is_reachable = False
    with pytest.raises(CheckpointError, match="no network"):
        find_bundle("hf://ann/voice")
