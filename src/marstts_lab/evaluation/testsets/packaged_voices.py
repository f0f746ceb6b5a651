"""A small test set that needs nothing else: sentences in the voices of the package, cloned from their references.

Upstream: `synthesis.clone.voices`.  Downstream: `metrics.trial.Trial`. It has no ground truth and no transcripts of
the references, so clones are shallow.
"""

from __future__ import annotations

from pathlib import Path

from marstts.errors import DataError
from marstts.io.files import atomic_path
from marstts.synthesis.clone.packaged import PACKAGED_VOICES, VOICE_SUFFIX, packaged_names
from marstts.voice import Voice
from marstts_lab.metrics.trial import Trial

SENTENCES = (
    "The ferry leaves at seven, and the last bus waits for it.",
    "Did you really think that nobody would notice?",
    "She folded the letter, put it in her pocket, and walked away.",
    "Most of the old orchard was cut down to make room for the road.",
    "No, thank you.",
    "He had never seen so many people in such a small kitchen.",
    "Bring a coat, two blankets, some rope, and whatever food is left.",
    "What a strange, quiet morning it was!",
)
"""One for each voice."""


def read_packaged_voices(root: Path) -> list[Trial]:
    """The trials; their references are written into `root`."""
    root.mkdir(parents=True, exist_ok=True)
    trials = []
    for number, name in enumerate(packaged_names()):
        reference = root / f"{name}.mp3"
        if not reference.is_file():
            with atomic_path(reference, DataError) as temporary:
                temporary.write_bytes(Voice.load(PACKAGED_VOICES / f"{name}{VOICE_SUFFIX}").reference)
        trials.append(
            Trial(
                id=f"{name}-{number + 1}",
                text=SENTENCES[number % len(SENTENCES)],
                speaker=name,
                style="regular",
                reference=reference,
                reference_transcript="",
            )
        )
    return trials
