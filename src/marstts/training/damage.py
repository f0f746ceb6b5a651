"""Recordings that turn out to be unusable while something learns from them: left out, and named; too many stop the run.

Upstream: manifests, which promise recordings that may have been moved, cut short or overwritten since.
Downstream: `training.codec`, which meets its recordings step by step, and `training.speaker`, which reads them first.
"""

from __future__ import annotations

import json
from pathlib import Path

from marstts.data.manifest import Utterance
from marstts.errors import AudioError, DataError

DAMAGED_FILE = "damaged.jsonl"
"""Of a run folder: what was left out, and why."""


class Damage:
    """What has been left out so far."""

    def __init__(self, total: int, max_share: float, file: Path | None = None) -> None:
        """`total` recordings are known, of which `max_share` may be unusable; they are named in `file`, where one is
        given, once however often a run is started.
        """
        self.total, self.max_share, self.file = total, max_share, file
        self.reasons: dict[str, str] = {}
        """By the utterance's id."""

    def leave_out(self, utterance: Utterance, error: AudioError) -> None:
        """Remember that this recording cannot be used; DataError where that makes too many."""
        if utterance.id in self.reasons:
            return
        self.reasons[utterance.id] = str(error)
        if self.file is not None:
            line = json.dumps({"id": utterance.id, "reason": str(error)}, ensure_ascii=False) + "\n"
            named = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
            if line not in named:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self.file.write_text(named + line, encoding="utf-8")
        if len(self.reasons) > self.max_share * self.total:
            where = "" if self.file is None else f"; all are named in {self.file}"
            raise DataError(
                f"{len(self.reasons)} of {self.total} recordings cannot be used, more than the share {self.max_share} "
                f"that may be, the last one because {error}{where}: take them out of the manifest, or make them anew"
            ) from error
