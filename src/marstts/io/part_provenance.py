"""How a part of a model came about: what it was made with, from what, and by which command.

Upstream: trainings, which write it into their run folder, and exports, which pass it on.  Downstream: `bundle.json`.
A record says what is known; a field that nobody recorded is empty. It changes nothing in how a model is run.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from marstts.errors import ConfigError
from marstts.io.config import Config, read_config, write_config

PART_FILE = "part_provenance.json"
"""In the folder of a run, or of an exported part that is in no bundle yet."""

MAX_TEXT = 4000


class PartProvenance(Config):
    """One part: a model, a codec or a speaker encoder."""

    command: str = Field("", max_length=MAX_TEXT)
    """The command that made the weights."""

    commit: str = Field("", max_length=80)
    """Commit of the code, with "+" if files were changed; `marstts VERSION` where it was installed."""

    configuration: dict[str, Any] = Field(default_factory=dict)
    """The resolved configuration of the training."""

    data: dict[str, str] = Field(default_factory=dict)
    """Digests of the manifests or shards that it was trained on, by name."""

    parent: str = Field("", max_length=400)
    """The model or run that the training began with, with its revision; empty: with random weights, or unknown."""

    date: str = Field("", max_length=40)
    """Day on which the training began."""

    note: str = Field("", max_length=MAX_TEXT)
    """What the other fields do not say, such as what is unknown."""


def read_part(folder: Path) -> PartProvenance | None:
    """The record in the folder of a run or of a part; None without one."""
    path = folder / PART_FILE
    return read_config(PartProvenance, path, ConfigError) if path.is_file() else None


def write_part(record: PartProvenance, folder: Path) -> None:
    """Write the record of a folder that exists."""
    write_config(record, folder / PART_FILE)


def pass_on(source: Path, target: Path) -> None:
    """Give an exported part the record of the run that it is of, if that has one."""
    if (record := read_part(source)) is not None:
        write_part(record, target)


def command_line() -> str:
    """The command of this process, by the name of its program: `python -m marstts` is `marstts`."""
    program = Path(sys.argv[0])
    return shlex.join([program.parent.name if program.name == "__main__.py" else program.name, *sys.argv[1:]])


def commit() -> str:
    """Commit of the checkout that this package runs from, with "+" if it was changed; "unknown" if it is installed."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")
