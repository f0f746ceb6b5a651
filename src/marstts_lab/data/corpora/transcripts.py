"""LibriTTS, LJSpeech and VCTK: corpora with a transcript for each recording.

Upstream: the corpora as they are downloaded.  Downstream: `build_manifest`, which rejects recordings that are missing
or corrupt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from marstts.errors import DataError
from marstts.io.reading import read_text
from marstts_lab.data.corpora.build_manifest import RawUtterance, held_out
from marstts_lab.data.held_out_people import split_for

LIBRITTS_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""Splits by the first word of a part's name: train-clean-100, dev-other, …"""

MAX_TABLE_BYTES = 2**30

MICROPHONE = "mic2"
"""The microphone, of the two in VCTK, that most models use."""


def libritts(root: Path) -> Iterator[RawUtterance]:
    """Every `train-clean-100/84/121123/84_121123_000007_000001.wav`; transcripts are in `84_121123.trans.tsv` there.

    A line has the recording's name, the original and the normalized text.
    """
    tables = sorted(root.glob("*/*/*/*.trans.tsv"))
    if not tables:
        raise DataError(f"{root}: expected LibriTTS's parts (train-clean-100, dev-clean, …) in this folder")
    for table in tables:
        part = table.relative_to(root).parts[0].partition("-")[0]
        for line in read_text(table, MAX_TABLE_BYTES, DataError).splitlines():
            name, _, texts = line.partition("\t")
            speaker = f"libritts-{name.partition('_')[0]}"
            yield RawUtterance(
                id=name, audio=table.parent / f"{name}.wav", text=texts.rpartition("\t")[2],
                speaker=speaker, split=split_for(speaker, LIBRITTS_SPLITS.get(part, "train")),
                license="CC BY 4.0 (LibriTTS, LibriTTS-R; LibriVox recordings)",
            )  # fmt: skip


def ljspeech(root: Path) -> Iterator[RawUtterance]:
    """Every line of `metadata.csv` (id|text|text in words), with `wavs/LJ001-0001.wav`."""
    table = root / "metadata.csv"
    if not table.is_file():
        raise DataError(f"{root}: expected LJSpeech's metadata.csv in this folder")
    for line in read_text(table, MAX_TABLE_BYTES, DataError).splitlines():
        name, text, in_words, *_ = [*line.split("|"), "", ""]
        text = in_words or text
        yield RawUtterance(
            id=name, audio=root / "wavs" / f"{name}.wav", text=text, speaker="ljspeech", split=held_out(text),
            license="public domain (LJSpeech; LibriVox recordings)",
        )  # fmt: skip


def vctk(root: Path) -> Iterator[RawUtterance]:
    """Every utterance of version 0.92: `wav48_silence_trimmed/p225/p225_001_mic2.flac`, `txt/p225/p225_001.txt`."""
    audio = root / "wav48_silence_trimmed"
    if not audio.is_dir() or not (root / "txt").is_dir():
        raise DataError(f"{root}: expected VCTK 0.92: wav48_silence_trimmed and txt in this folder")
    for path in sorted((root / "txt").glob("*/*.txt")):
        text, speaker = read_text(path, MAX_TABLE_BYTES, DataError).strip(), f"vctk-{path.parent.name}"
        yield RawUtterance(
            id=path.stem, audio=audio / path.parent.name / f"{path.stem}_{MICROPHONE}.flac", text=text,
            speaker=speaker, split=split_for(speaker, held_out(text)), license="CC BY 4.0 (VCTK 0.92)",
        )  # fmt: skip
