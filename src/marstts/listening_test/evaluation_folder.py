"""The folder of an evaluation as the input of a listening test.

Upstream: `marstts evaluate`, which writes `trials.jsonl`, `references/<trial>.wav` and `takes/<system>/<trial>.wav`.
Downstream: `config`, `stimuli`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from marstts.errors import DataError
from marstts.io.file_errors import os_errors, printable_name
from marstts.io.jsonl import read_rows

TRIALS_FILE, REFERENCES_FOLDER, TAKES_FOLDER = "trials.jsonl", "references", "takes"


class TrialId(BaseModel):
    """The only field of an evaluation's trial that a listening test needs."""

    id: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^/]+$")]


@dataclass(frozen=True)
class EvaluationFolder:
    """Sentences, references and takes of an evaluation."""

    sentences: frozenset[str]
    """Identifiers of its trials: the names of all takes and references without suffix."""

    references: Path
    systems: dict[str, Path]
    """Folders of takes by the system's name, in alphabetical order."""


def open_evaluation(folder: Path) -> EvaluationFolder:
    """Find trials, references and takes of an evaluation; DataError where one of them is missing."""
    name = printable_name(folder)
    trials, references, takes = (folder / part for part in (TRIALS_FILE, REFERENCES_FOLDER, TAKES_FOLDER))
    if not (trials.is_file() and references.is_dir() and takes.is_dir()):
        raise DataError(
            f"{name}: expected the folder of an evaluation, with {TRIALS_FILE}, {REFERENCES_FOLDER}/ and "
            f"{TAKES_FOLDER}/; `marstts evaluate --output {name}` writes one"
        )
    with os_errors(takes, "be read", DataError):
        systems = {path.name: path for path in sorted(takes.iterdir()) if path.is_dir() and path.name[0] != "."}
    if not systems:
        raise DataError(f"{printable_name(takes)}: holds no takes; `marstts evaluate` writes a folder for each system")
    sentences = frozenset(row.id for row in read_rows(TrialId, trials, unique=("id",)))
    return EvaluationFolder(sentences, references, systems)
