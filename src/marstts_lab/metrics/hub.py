"""Weights and packages of metrics: from the hub's cache or the hub, and their versions.

Upstream: names of models, or folders.  Downstream: `recognition`, `quality`, `panel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from marstts.weights.pretrained import find_file

Alternatives = Sequence[str]
"""File names of which one is enough, best first."""


def fetch_model(source: str, files: Sequence[Alternatives]) -> Path:
    """The folder with one of each of the `files`: `source` itself if it is a folder, else the hub's model of that name.

    Raises CheckpointError where a file is missing or cannot be downloaded.
    """
    paths = [find_file(source, names) for names in files]
    return paths[0].parent


def package_version(package: str) -> str:
    """The installed version of a distribution, or "unknown": scores of two versions are not comparable."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
