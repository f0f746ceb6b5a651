"""EARS, as MARS6 (arXiv:2501.05787), Sec. V, is judged on it: 43 speakers, their own styles, no text of theirs shipped.

Upstream: a folder with the dataset (Richter et al., Interspeech 2024; CC BY-NC 4.0), and the committed `ears.tsv` and
`ears-validation.tsv`.
Downstream: `testset.Trial`.

Of the 107 speakers 43 are for tests and 64 for validation. Non-verbal sounds and free speech (which have no
transcripts) and the slow style are left out. Of each speaker's samples in a style one half is spoken, each in the
voice of one of the other half. Texts and recordings come from the dataset's own files; the manifests hold only
names of files, which `plan` computes and a test compares. Deviations: the paper does not name its speakers, so the
split is ours, by a hash of their names. Every emotion has one transcribed sample per speaker, which has no partner of
its own emotion: the 23 of them are one style, "emotional".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from marstts.errors import DataError
from marstts.evaluation.ordering import stable_order
from marstts.evaluation.testset import Trial

SPEAKERS = tuple(f"p{number:03d}" for number in range(1, 108))
NUM_TEST = 43
TEST, VALIDATION = "test", "validation"
MANIFESTS = {TEST: "ears.tsv", VALIDATION: "ears-validation.tsv"}
TRANSCRIPTS = "transcripts.json"

STYLES = {
    "regular": (15, 16, 17, 18, 19, 20, 21, 22, 23, 24),
    "loud": (5, 6),
    "whisper": (3, 4),
    "highpitch": (11, 12),
    "lowpitch": (13, 14),
    "fast": (9, 10),
}
"""Reading styles, and the numbered sentences that are read in that one only; all read numbers 1 and 2 besides."""

EVERYBODYS_SENTENCES = (1, 2)
RAINBOW_PARTS = 8

EMOTIONAL = "emotional"
EMOTIONS = (
    "adoration", "amazement", "amusement", "anger", "confusion", "contentment", "cuteness", "desire",
    "disappointment", "disgust", "distress", "embarassment", "extasy", "fear", "guilt", "interest", "neutral", "pain",
    "pride", "realization", "relief", "sadness", "serenity",
)  # fmt: skip
"""As the dataset spells them in its file names."""


@dataclass(frozen=True)
class Pair:
    """What is spoken and what it is cloned from, as names of recordings of one speaker."""

    speaker: str
    sample: str
    reference: str

    @property
    def style(self) -> str:
        return style_of(self.sample)


def split_speakers() -> dict[str, list[str]]:
    """The speakers of each split, sorted."""
    shuffled = sorted(SPEAKERS, key=lambda speaker: stable_order(f"ears {speaker}"))
    return {TEST: sorted(shuffled[:NUM_TEST]), VALIDATION: sorted(shuffled[NUM_TEST:])}


def samples_by_style() -> dict[str, list[str]]:
    """Names of all transcribed recordings of a speaker but the slow ones."""
    reading = {
        style: [
            *(f"rainbow_{part:02d}_{style}" for part in range(1, RAINBOW_PARTS + 1)),
            *(f"sentences_{number:02d}_{style}" for number in (*EVERYBODYS_SENTENCES, *own)),
        ]
        for style, own in STYLES.items()
    }
    return {**reading, EMOTIONAL: [f"emo_{emotion}_sentences" for emotion in EMOTIONS]}


def style_of(sample: str) -> str:
    return EMOTIONAL if sample.startswith("emo_") else sample.rpartition("_")[2]


def plan(speakers: Sequence[str]) -> Iterator[Pair]:
    """Pairs of the speakers: half of the samples of each style, with one of the other half each as reference."""
    for speaker in speakers:
        for samples in samples_by_style().values():
            shuffled = sorted(samples, key=lambda sample: stable_order(f"{speaker} {sample}"))  # used at once
            half = len(shuffled) // 2
            for sample, reference in zip(sorted(shuffled[:half]), shuffled[half : 2 * half], strict=True):
                yield Pair(speaker, sample, reference)


def manifest_lines(pairs: Sequence[Pair]) -> list[str]:
    """The lines of a split's manifest."""
    return ["speaker\tsample\treference", *(f"{pair.speaker}\t{pair.sample}\t{pair.reference}" for pair in pairs)]


def committed_pairs(split: str) -> list[Pair]:
    """A split as it was committed."""
    lines = (files(__package__) / MANIFESTS[split]).read_text(encoding="utf-8").splitlines()
    return [Pair(*line.split("\t")) for line in lines[1:]]


def read_ears(root: Path, split: str = TEST) -> list[Trial]:
    """A split, from a folder that holds p001/*.wav … and transcripts.json; DataError naming what is missing."""
    transcripts = read_transcripts(root / TRANSCRIPTS)
    pairs = committed_pairs(split)
    missing = sorted({pair.speaker for pair in pairs if not (root / pair.speaker).is_dir()})
    if missing:
        raise DataError(
            f"{root}: the {split} split of EARS needs the folders of {len({pair.speaker for pair in pairs})} speakers, "
            f"but {len(missing)} of them are missing, the first is {missing[0]}; unpack the release's archives here"
        )
    return [make_trial(pair, root, transcripts) for pair in pairs]


def read_transcripts(path: Path) -> dict[str, str]:
    """The dataset's transcripts by name of recording."""
    try:
        transcripts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: expected EARS's transcripts.json, from the dataset's repository, but {error}"
        ) from error
    wanted = [sample for samples in samples_by_style().values() for sample in samples]
    missing = [sample for sample in wanted if not isinstance(transcripts.get(sample), str)]
    if missing:
        raise DataError(f"{path}: has no transcript of {missing[0]} (and {len(missing) - 1} others); is it EARS's?")
    return {sample: transcripts[sample] for sample in wanted}


def make_trial(pair: Pair, root: Path, transcripts: dict[str, str]) -> Trial:
    """A pair with its files; DataError where one of them is missing."""
    folder = root / pair.speaker
    for name in (pair.sample, pair.reference):
        if not (folder / f"{name}.wav").is_file():
            raise DataError(f"{folder / name}.wav: missing; the EARS archive of {pair.speaker} is not complete")
    return Trial(
        id=f"{pair.speaker}-{pair.sample}",
        text=transcripts[pair.sample],
        speaker=pair.speaker,
        style=pair.style,
        reference=folder / f"{pair.reference}.wav",
        reference_transcript=transcripts[pair.reference],
        source=folder / f"{pair.sample}.wav",
    )
