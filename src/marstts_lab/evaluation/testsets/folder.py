"""Any folder of recordings with transcripts as a test set: each text in the voice of another recording of its speaker.

Upstream: `recordings`.  Downstream: `metrics.trial.Trial`. All trials have the style "regular".
"""

from __future__ import annotations

from pathlib import Path

from marstts.errors import DataError
from marstts.io.reading import printable_name
from marstts_lab.data.corpora.folder import HELPFUL
from marstts_lab.data.manifest import Utterance
from marstts_lab.evaluation.recordings import Recording, find_recordings
from marstts_lab.evaluation.testset import make_trials
from marstts_lab.metrics.trial import Trial


def read_folder(folder: Path) -> list[Trial]:
    """All recordings that have a transcript and a reference; DataError where there are none."""
    utterances = [as_utterance(one, folder) for one in find_recordings(folder) if one.transcript]
    if not utterances:
        raise DataError(f"{printable_name(folder)}: {HELPFUL}")
    return make_trials(utterances, folder, folder)


def as_utterance(recording: Recording, root: Path) -> Utterance:
    """A recording as an utterance of a test split."""
    path = recording.path.relative_to(root)
    return Utterance(
        id=path.with_suffix("").as_posix(), audio=path.as_posix(), text=recording.transcript,
        speaker=recording.speaker, style="regular", seconds=recording.seconds, source_rate=recording.sample_rate,
        split="test", license="unknown",
    )  # fmt: skip
