"""EARS, the test set of MARS6 (arXiv:2501.05787), Sec. V: 43 speakers in several styles; none of its texts are here.

Upstream: a folder with the dataset (Richter et al., Interspeech 2024; CC BY-NC 4.0).
Downstream: `metrics.trial.Trial`.

Of the 107 speakers 43 are for tests and 64 for validation. Non-verbal sounds and free speech (which have no
transcripts) and the slow style are left out. Of each speaker's samples in a style one half is synthesized, each in the
voice of one of the other half. Texts and recordings are read from the dataset's files. Deviations: the paper does not
name its speakers, so the split is ours, by a hash of their names. Every emotion has one transcribed sample per speaker,
which cannot be paired within its emotion: the 23 of them are one style, "emotional".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from marstts.errors import DataError
from marstts.io.hash_order import hash_order
from marstts.io.reading import parse_object, printable_name, read_text
from marstts_lab.metrics.trial import Trial

SPEAKERS = tuple(f"p{number:03d}" for number in range(1, 108))
NUM_TEST = 43
TEST, VALIDATION = "test", "validation"
TRANSCRIPTS = "transcripts.json"
MAX_TRANSCRIPTS_BYTES = 64 * 2**20

STYLES = {
    "regular": (15, 16, 17, 18, 19, 20, 21, 22, 23, 24),
    "loud": (5, 6),
    "whisper": (3, 4),
    "highpitch": (11, 12),
    "lowpitch": (13, 14),
    "fast": (9, 10),
}
"""Reading styles, and the numbered sentences that are read in one style only; numbers 1 and 2 are read in all."""

COMMON_SENTENCES = (1, 2)
RAINBOW_PARTS = 8

EMOTIONAL = "emotional"
EMOTIONS = (
    "adoration", "amazement", "amusement", "anger", "confusion", "contentment", "cuteness", "desire",
    "disappointment", "disgust", "distress", "embarassment", "extasy", "fear", "guilt", "interest", "neutral", "pain",
    "pride", "realization", "relief", "sadness", "serenity",
)  # fmt: skip
"""Spelled as in the dataset's file names."""


@dataclass(frozen=True)
class SamplePair:
    """A sample to synthesize, the reference to clone, and another recording, which listeners compare the take with.

    All are names of recordings of one speaker in one style.
    """

    speaker: str
    sample: str
    reference: str
    compared_with: str

    @property
    def style(self) -> str:
        """The style of both."""
        return style_of(self.sample)


def split_speakers() -> dict[str, list[str]]:
    """The speakers of each split, sorted."""
    shuffled = sorted(SPEAKERS, key=lambda speaker: hash_order(f"ears {speaker}"))
    return {TEST: sorted(shuffled[:NUM_TEST]), VALIDATION: sorted(shuffled[NUM_TEST:])}


def samples_by_style() -> dict[str, list[str]]:
    """Names of all transcribed recordings of a speaker except the slow ones."""
    reading = {
        style: [
            *(f"rainbow_{part:02d}_{style}" for part in range(1, RAINBOW_PARTS + 1)),
            *(f"sentences_{number:02d}_{style}" for number in (*COMMON_SENTENCES, *own)),
        ]
        for style, own in STYLES.items()
    }
    return {**reading, EMOTIONAL: [f"emo_{emotion}_sentences" for emotion in EMOTIONS]}


def style_of(sample: str) -> str:
    """The style in the name of a recording."""
    return EMOTIONAL if sample.startswith("emo_") else sample.rpartition("_")[2]


def pair_samples(speakers: Sequence[str]) -> Iterator[SamplePair]:
    """Pairs of the speakers: half of the samples of each style, each with one of the other half as reference.

    Similarity is judged against a random other utterance of the speaker and style (Sec. V-B).
    """
    for speaker in speakers:
        for samples in samples_by_style().values():
            shuffled = sorted(samples, key=lambda sample: hash_order(f"{speaker} {sample}"))  # used at once
            half = len(shuffled) // 2
            for sample, reference in zip(sorted(shuffled[:half]), shuffled[half : 2 * half], strict=True):
                others = [name for name in samples if name not in (sample, reference)]
                compared = min(others, key=lambda name: hash_order(f"{speaker} {sample} {name}"))
                yield SamplePair(speaker, sample, reference, compared)


def read_ears(root: Path, split: str = TEST) -> list[Trial]:
    """A split, from a folder that holds p001/*.wav … and transcripts.json; DataError naming what is missing."""
    transcripts = read_transcripts(root / TRANSCRIPTS)
    pairs = list(pair_samples(split_speakers()[split]))
    missing = sorted({pair.speaker for pair in pairs if not (root / pair.speaker).is_dir()})
    if missing:
        raise DataError(
            f"{root}: the {split} split of EARS needs the folders of {len({pair.speaker for pair in pairs})} speakers, "
            f"but {len(missing)} of them are missing, the first is {missing[0]}; unpack the release's archives here"
        )
    return [make_trial(pair, root, transcripts) for pair in pairs]


def read_transcripts(path: Path) -> dict[str, str]:
    """The dataset's transcripts by name of recording; DataError where one is missing."""
    text = read_text(path, MAX_TRANSCRIPTS_BYTES, DataError)
    transcripts = parse_object(text, printable_name(path), DataError)
    samples = [sample for of_style in samples_by_style().values() for sample in of_style]
    missing = [sample for sample in samples if not isinstance(transcripts.get(sample), str)]
    if missing:
        raise DataError(
            f"{printable_name(path)}: expected the transcripts.json of EARS's repository, but {missing[0]} and "
            f"{len(missing) - 1} other samples have no transcript"
        )
    return {sample: transcripts[sample] for sample in samples}


def make_trial(pair: SamplePair, root: Path, transcripts: dict[str, str]) -> Trial:
    """A pair with its files; DataError where one of them is missing."""
    folder = root / pair.speaker
    for name in (pair.sample, pair.reference, pair.compared_with):
        if not (folder / f"{name}.wav").is_file():
            raise DataError(f"{folder / name}.wav: missing; the EARS archive of {pair.speaker} is not complete")
    return Trial(
        id=f"{pair.speaker}-{pair.sample}",
        text=transcripts[pair.sample],
        speaker=pair.speaker,
        style=pair.style,
        reference=folder / f"{pair.reference}.wav",
        reference_transcript=transcripts[pair.reference],
        ground_truth=folder / f"{pair.sample}.wav",
        compared_with=folder / f"{pair.compared_with}.wav",
    )
