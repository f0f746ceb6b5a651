"""Hard texts: one word and sixty, repetitions, numbers, odd punctuation, capitals, unknown characters.

Upstream: the committed `hard-texts.tsv`, and the voices of the synthetic test set.
Downstream: `metrics.trial.Trial`.

Each of the 125 texts is synthesized in the regular voice of each of the eight synthetic speakers: 1,000 trials, whose
style is the kind of their text. There is no ground truth. The failure rate is what counts: takes without speech, too
long, with repetitions or truncations.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from marstts.errors import DataError
from marstts_lab.evaluation.testsets.synthetic import read_synthetic
from marstts_lab.metrics.trial import Trial

LIST = "hard-texts.tsv"
VOICES_STYLE = "regular"


def read_hard_texts(root: Path) -> list[Trial]:
    """All trials, with the recordings of the synthetic test set in `root`; missing ones are rendered into it."""
    voices = [trial for trial in read_synthetic(root) if trial.style == VOICES_STYLE]
    return [
        Trial(
            id=f"{kind}-{number:03d}-{voice.speaker}", text=text, spoken=spoken or None, speaker=voice.speaker,
            style=kind, reference=voice.reference, reference_transcript=voice.reference_transcript,
        )
        for number, (kind, text, spoken) in enumerate(committed_texts(), 1)
        for voice in voices
    ]  # fmt: skip


def committed_texts() -> list[tuple[str, str, str]]:
    """Kind, text, and its reading where the metrics' normalizer would read it differently, else ""."""
    rows = (files(__package__) / LIST).read_text(encoding="utf-8").split("\n")  # texts may have other line separators
    cells = [row.split("\t") for row in rows[1:] if row]
    for row in cells:
        if len(row) != 3:
            raise DataError(f"{LIST}: expected three columns, got {row}")
    return [(kind, text, spoken) for kind, text, spoken in cells]
