"""The log of a training: `log.jsonl` in the run folder, one line per report, and the same numbers in TensorBoard.

Upstream: `loop`, which reports means over steps.  Downstream: early stopping, plots, people.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from marstts.errors import AudioError, CheckpointError, DataError
from marstts.io.config import Config
from marstts.io.jsonl import Torn, append_rows, read_rows, scan_rows, write_rows
from marstts_lab.data.manifest import Utterance

LOG_FILE = "log.jsonl"

logger = logging.getLogger(__name__)


class LogLine(Config):
    """One report: its step, its split, and a number by name. Numbers that are not finite are null."""

    model_config = ConfigDict(extra="allow", frozen=True)

    step: int
    split: str
    time: int
    """Seconds since 1970."""


def report(
    folder: Path,
    writer: Any,
    step: int,
    split: str,
    scores: Mapping[str, float],
    note: str = "",
    shown: Sequence[str] = (),
) -> None:
    """Write numbers to TensorBoard, to `log.jsonl` and to the logger, there with a note on the progress.

    shown: names of those that the logger gets, in their order; empty: all.
    """
    for name, value in scores.items():
        writer.add_scalar(f"{split}/{name}", value, step)
    finite = {name: float(value) if math.isfinite(value) else None for name, value in scores.items()}
    line = {"step": step, "split": split, "time": round(time.time()), **finite}
    append_rows(folder / LOG_FILE, [line], kind=CheckpointError)
    chosen = {name: scores[name] for name in shown if name in scores} or scores
    numbers = " ".join(f"{name} {value:.4g}" for name, value in chosen.items())
    logger.info("step %d %s: %s%s", step, split, numbers, f"; {note}" if note else "")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All reports of a run in order, without a torn last line; CheckpointError if the log is malformed."""
    path = folder / LOG_FILE
    if not path.exists():
        return []
    return [line.model_dump() for line in read_rows(LogLine, path, kind=CheckpointError, torn=Torn.DROP)]


def drop_log_after(folder: Path, step: int) -> None:
    """Remove the reports of steps that are about to be taken again."""
    if (folder / LOG_FILE).exists():
        kept = [line for line in read_log(folder) if line["step"] <= step]
        write_rows(folder / LOG_FILE, kept, kind=CheckpointError)


def validations_since_best(folder: Path) -> int:
    """The number of validations after the one with the lowest loss; 0 if there was none."""
    losses = [line["loss"] for line in read_log(folder) if line["split"] == "validation" and "loss" in line]
    finite = [math.inf if loss is None else float(loss) for loss in losses]
    return len(finite) - 1 - finite.index(min(finite)) if finite else 0


def is_stalled(folder: Path, patience: int) -> bool:
    """True after `patience` validations in a row (0 = any number) without a lower loss."""
    return bool(patience) and validations_since_best(folder) >= patience


# Recordings that cannot be read during a training: skipped and listed; too many stop the run.

CORRUPT_FILE = "corrupt.jsonl"
"""File of a run folder: what was skipped, and why."""


class CorruptFileLog:
    """The recordings that have been skipped so far."""

    def __init__(self, total: int, max_ratio: float, file: Path | None = None) -> None:
        """`total` recordings are known, of which `max_ratio` may be corrupt; `file` lists each once."""
        self.total, self.max_ratio, self.file = total, max_ratio, file
        self.reasons: dict[str, str] = {}
        """Reason by utterance id."""

    def skip(self, utterance: Utterance, error: AudioError) -> None:
        """Record that a recording cannot be used; DataError if those are too many now."""
        if utterance.id in self.reasons:
            return
        self.reasons[utterance.id] = str(error)
        row = {"id": utterance.id, "reason": str(error)}
        if self.file is not None and row not in listed(self.file):
            append_rows(self.file, [row])
        if len(self.reasons) > self.max_ratio * self.total:
            where = "" if self.file is None else f"; all are listed in {self.file}"
            raise DataError(
                f"{len(self.reasons)} of {self.total} recordings cannot be used, more than the ratio {self.max_ratio} "
                f"that is allowed, the last one because {error}{where}: remove them from the manifest, or replace them"
            ) from error


def listed(file: Path) -> list[dict[str, Any]]:
    """The valid rows of a list of skipped recordings; empty if there is none."""
    if not file.exists():
        return []
    return [line.row for line in scan_rows(dict[str, Any], file, torn=Torn.DROP) if line.row is not None]


def check_data_folders(folders: Sequence[Path]) -> None:
    """DataError if one of the folders with data does not exist, or is a file."""
    for folder in folders:
        if not folder.exists():
            raise DataError(f"{folder}: no such folder; --data takes a folder of shards, see `marstts tokenize`")
        if not folder.is_dir():
            raise DataError(f"{folder}: expected a folder of shards, but this is a file")
