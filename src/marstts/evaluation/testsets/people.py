"""Real people no model here has heard: sentences of the studio test set in the voices of any folder of recordings.

Upstream: `recordings`, and the committed texts of `studio`.  Downstream: `testset.Trial`.

Each person lends one recording, of 3 to 12 s if there is one, and speaks two sentences. There are no recordings of
these by these people: what counts is whose voice is heard (*first of ten*), and how the words fare beside the same
ones in studio voices.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marstts.errors import DataError
from marstts.evaluation.ordering import stable_order
from marstts.evaluation.recordings import Recording, find_recordings
from marstts.evaluation.testset import GOOD_REFERENCE_SECONDS, MIN_REFERENCE_SECONDS, Trial
from marstts.evaluation.testsets.studio import committed_lines

SENTENCES_EACH = 2
MIN_PEOPLE = 10
MIN_WORDS = 5
"""A voice needs some words to be known by."""

MAX_REFERENCE_SECONDS = 12.0


def read_people(root: Path) -> list[Trial]:
    """Two trials for everyone who is recorded in the folder; DataError where they are fewer than ten."""
    by_speaker: dict[str, list[Recording]] = {}
    for recording in find_recordings(root):
        if recording.seconds >= MIN_REFERENCE_SECONDS:
            by_speaker.setdefault(recording.speaker, []).append(recording)
    if len(by_speaker) < MIN_PEOPLE:
        raise DataError(
            f"{root}: recordings of at least {MIN_PEOPLE} people are wanted, but there are {len(by_speaker)}; a folder "
            "is a person, unless a list beside the recordings has a column `speaker`"
        )
    texts = [line.text for line in committed_lines() if line.reference and len(line.text.split()) >= MIN_WORDS]
    return [
        Trial(
            id=f"{speaker}-{number}".replace(" ", "_"), text=texts[(SENTENCES_EACH * place + number) % len(texts)],
            speaker=speaker, style="people", reference=reference.path, reference_transcript=reference.text,
        )
        for place, speaker in enumerate(sorted(by_speaker))
        for reference in [choose_reference(by_speaker[speaker])]
        for number in range(SENTENCES_EACH)
    ]  # fmt: skip


def choose_reference(recordings: Sequence[Recording]) -> Recording:
    """One of good length, drawn by a hash of its name, else the longest of the short or the shortest of the long."""
    good = [r for r in recordings if GOOD_REFERENCE_SECONDS <= r.seconds <= MAX_REFERENCE_SECONDS]
    if good:
        return min(good, key=lambda recording: stable_order(recording.path.stem))
    return min(recordings, key=lambda r: (abs(r.seconds - GOOD_REFERENCE_SECONDS), r.path))
