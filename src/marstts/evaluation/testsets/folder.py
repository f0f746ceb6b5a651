"""Any folder of recordings with transcripts, as a test set: each text in the voice of another recording beside it.

Upstream: `recordings`.  Downstream: `testset.Trial`. All are of one style, whatever it is: it is called regular.
"""

from __future__ import annotations

from pathlib import Path

from marstts.data.manifest import Utterance
from marstts.errors import DataError
from marstts.evaluation.recordings import AUDIO_SUFFIXES, LISTS, Recording, find_recordings
from marstts.evaluation.testset import Trial, make_trials


def read_folder(folder: Path) -> list[Trial]:
    """All recordings that have a transcript and a partner; DataError where there are none."""
    utterances = [as_utterance(one, folder) for one in find_recordings(folder) if one.text]
    if not utterances:
        raise DataError(
            f"{folder}: expected recordings ({' or '.join(AUDIO_SUFFIXES)}) with their words in {', '.join(LISTS)}, "
            "or a .txt file beside each"
        )
    return make_trials(utterances, folder, folder)


def as_utterance(recording: Recording, root: Path) -> Utterance:
    path = recording.path.relative_to(root)
    return Utterance(
        id=path.with_suffix("").as_posix(), audio=path.as_posix(), text=recording.text, speaker=recording.speaker,
        style="regular", seconds=recording.seconds, source_rate=recording.sample_rate, split="test", licence="unknown",
    )  # fmt: skip
