"""Weights of metrics from the Hugging Face hub: from its cache if they are there, else one attempt with a time limit.

Upstream: names of models, or folders.  Downstream: `recognition`, `quality`, `panel`. The hub's client retries every
file for tens of seconds without a network; here the list of files is asked for once, and a failure is one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from marstts.errors import CheckpointError, require
from marstts.weights.pretrained import NETWORK_SECONDS, problem_in_time

EXTRA = "eval-models"
Alternatives = Sequence[str]
"""File names of which one is enough, best first."""


def fetch_model(source: str, files: Sequence[Alternatives]) -> Path:
    """The folder with one of each of the `files`: `source` itself if it is a folder, else the hub's model of that name.

    Raises CheckpointError where a file is missing or cannot be downloaded.
    """
    folder = Path(source)
    if folder.is_dir():
        for names in files:
            if not any((folder / name).is_file() for name in names):
                raise CheckpointError(f"{source}: expected {' or '.join(names)} in this folder; it is incomplete")
        return folder
    return _find_cached(source, files) or _download(source, files)


def _find_cached(model: str, files: Sequence[Alternatives]) -> Path | None:
    """The snapshot in the hub's cache that has one of each of the files; None where one is missing."""
    hub = require("huggingface_hub", EXTRA)
    folders = set()
    for names in files:
        found = [path for name in names if isinstance(path := _cached_file(hub, model, name), str)]
        if not found:
            return None
        folders.add(Path(found[0]).parent)
    return folders.pop() if len(folders) == 1 else None


def _cached_file(hub: object, model: str, name: str) -> object:
    """Path of a cached file as the hub's client returns it; None where the name is not one of a hub model."""
    try:
        return hub.try_to_load_from_cache(model, name)  # type: ignore[attr-defined]
    except ValueError:  # its validation of repository names
        return None


def _download(model: str, files: Sequence[Alternatives]) -> Path:
    """Download one of each of the files; CheckpointError with the reason where that fails."""
    hub = require("huggingface_hub", EXTRA)
    listed: set[str] = set()

    def ask() -> None:
        listed.update(file.rfilename for file in hub.HfApi().model_info(model, timeout=NETWORK_SECONDS).siblings)

    try:
        if (problem := problem_in_time("the hub", ask)) is not None:
            raise problem
        chosen = [next((name for name in names if name in listed), None) for names in files]
        missing = [" or ".join(names) for names, name in zip(files, chosen, strict=True) if name is None]
        if missing:
            raise FileNotFoundError(f"the hub's model has no {', no '.join(missing)}")
        paths = [Path(hub.hf_hub_download(model, name)) for name in chosen]
        return paths[0].parent
    except Exception as error:  # the client's HTTP library, and so its exceptions, differ between versions
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(
            f"{model}: these weights are not on this machine and cannot be downloaded ({reason}); connect to the "
            "network, or name a folder that holds them"
        ) from error


# Versions of the packages that compute metrics: scores of two versions are not comparable.


def package_version(package: str) -> str:
    """The installed version of a distribution, or "unknown"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
