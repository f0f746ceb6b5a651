"""Real speakers of no training set: sentences of the synthetic test set in the voices of any folder of recordings.

Upstream: `recordings`, and the committed texts of `synthetic`.  Downstream: `metrics.trial.Trial`.

One recording of each speaker, of 3 to 12 s if there is one, is the reference of eight sentences. There is no ground
truth. In a folder with an `utterances.jsonl`, the speakers are those of its validation and test splits that are in no
training split. What counts is the similarity to the speaker, and the word errors compared with those of the same
sentences in synthetic voices.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marstts.errors import DataError
from marstts.io.hash_order import hash_order
from marstts.io.reading import printable_name
from marstts_lab.data.manifest import read_manifest
from marstts_lab.evaluation.recordings import Recording, find_recordings
from marstts_lab.evaluation.testset import GOOD_REFERENCE_SECONDS, MIN_REFERENCE_SECONDS, trial_id
from marstts_lab.evaluation.testsets.synthetic import committed_lines
from marstts_lab.metrics.trial import Trial

SENTENCES_PER_SPEAKER = 8
MIN_SPEAKERS = 10
MIN_WORDS = 5
"""Least length; shorter sentences contain too little of the speaker's voice."""

MAX_REFERENCE_SECONDS = 12.0
STYLE = "real"
MANIFEST = "utterances.jsonl"


def read_real_speakers(root: Path) -> list[Trial]:
    """Eight trials for every speaker in the folder; DataError with fewer than ten speakers."""
    by_speaker: dict[str, list[Recording]] = {}
    for recording in held_out_recordings(root / MANIFEST) if (root / MANIFEST).is_file() else find_recordings(root):
        if recording.seconds >= MIN_REFERENCE_SECONDS:
            by_speaker.setdefault(recording.speaker, []).append(recording)
    if len(by_speaker) < MIN_SPEAKERS:
        raise DataError(
            f"{printable_name(root)}: expected recordings of at least {MIN_SPEAKERS} speakers, but there are "
            f"{len(by_speaker)}; each folder is a speaker, unless its list of recordings has a column `speaker`"
        )
    texts = [line.text for line in committed_lines() if line.reference and len(line.text.split()) >= MIN_WORDS]
    return [
        Trial(
            id=trial_id(f"{speaker}-{number}"), text=texts[(SENTENCES_PER_SPEAKER * position + number) % len(texts)],
            speaker=speaker, style=STYLE, reference=reference.path, reference_transcript=reference.transcript,
        )
        for position, speaker in enumerate(sorted(by_speaker))
        for reference in [choose_reference(by_speaker[speaker])]
        for number in range(SENTENCES_PER_SPEAKER)
    ]  # fmt: skip


def held_out_recordings(manifest: Path) -> list[Recording]:
    """The recordings of a manifest by speakers without training utterances."""
    utterances = read_manifest(manifest)
    known = {utterance.speaker for utterance in utterances if utterance.split == "train"}
    return [
        Recording(manifest.parent / u.audio, u.speaker, u.text, u.seconds, u.source_rate)
        for u in utterances
        if u.speaker not in known and u.start is None
    ]


def choose_reference(recordings: Sequence[Recording]) -> Recording:
    """A recording of good length, drawn by a hash of its name, else the one whose length is nearest to good."""
    good = [r for r in recordings if GOOD_REFERENCE_SECONDS <= r.seconds <= MAX_REFERENCE_SECONDS]
    if good:
        return min(good, key=lambda recording: hash_order(recording.path.stem))
    return min(recordings, key=lambda r: (abs(r.seconds - GOOD_REFERENCE_SECONDS), r.path))
