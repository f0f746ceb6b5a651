"""Recordings that cannot be read during a training: skipped and listed; too many stop the run.

Upstream: manifests, whose recordings may have been moved, truncated or overwritten.  Downstream: `codec.segments`,
which reads recordings step by step, and `speaker.clips`, which reads all of them first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marstts.data.manifest import Utterance
from marstts.errors import AudioError, DataError
from marstts.io.jsonl import Torn, append_rows, scan_rows

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
