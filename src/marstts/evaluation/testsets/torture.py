"""Texts that break models: one word and sixty, repeats, numbers, odd punctuation, capitals, characters nobody speaks.

Upstream: the committed `torture.tsv`, and the voices of the studio test set.  Downstream: `testset.Trial`.

Each of the 125 texts is spoken in the regular voice of each of the eight studio people: 1,000 trials, whose style is
the kind of their text. There are no real recordings; what counts is whether a take is there, as long as reading takes,
and free of loops and skips.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from marstts.errors import DataError
from marstts.evaluation.testset import Trial
from marstts.evaluation.testsets.studio import read_studio

LIST = "torture.tsv"
VOICES_STYLE = "regular"


def read_torture(root: Path, tell: Callable[[str], None]) -> list[Trial]:
    """All trials, with the studio test set's recordings in `root`, rendered into it where they are not there yet."""
    voices = [trial for trial in read_studio(root, tell) if trial.style == VOICES_STYLE]
    return [
        Trial(
            id=f"{kind}-{number:03d}-{voice.speaker}", text=text, spoken=spoken or None, speaker=voice.speaker,
            style=kind, reference=voice.reference, reference_transcript=voice.reference_transcript,
        )
        for number, (kind, text, spoken) in enumerate(committed_texts(), 1)
        for voice in voices
    ]  # fmt: skip


def committed_texts() -> list[tuple[str, str, str]]:
    """Kind, text, and how it is read aloud where the judges' normaliser would read it another way, else ""."""
    rows = (files(__package__) / LIST).read_text(encoding="utf-8").split("\n")  # a text may hold other line separators
    cells = [row.split("\t") for row in rows[1:] if row]
    for row in cells:
        if len(row) != 3:
            raise DataError(f"{LIST}: expected three columns, got {row}")
    return [(kind, text, spoken) for kind, text, spoken in cells]
