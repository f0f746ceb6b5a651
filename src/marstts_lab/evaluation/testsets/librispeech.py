"""LibriSpeech test-clean in pairs: recordings of 4 to 10 s, each with another one of its reader as reference.

Upstream: the corpus as OpenSLR 12 unpacks (`test-clean/READER/CHAPTER/*.flac` and `*.trans.txt`; CC BY 4.0).
Downstream: `metrics.trial.Trial`. The lengths are those of VALL-E's test (arXiv:2301.02111); references are drawn by
a hash of names, from another chapter where the reader has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from marstts.errors import DataError
from marstts.io.hash_order import hash_order
from marstts.io.reading import printable_name, read_text
from marstts_lab.evaluation.recordings import audio_info
from marstts_lab.metrics.trial import Trial

MIN_SECONDS, MAX_SECONDS = 4.0, 10.0
MAX_LIST_BYTES = 2**24


@dataclass(frozen=True)
class ReaderRecording:
    """One recording of a reader."""

    id: str
    path: Path
    text: str

    @property
    def reader(self) -> str:
        """Number of the reader."""
        return self.id.split("-")[0]

    @property
    def chapter(self) -> str:
        """Number of the chapter."""
        return self.id.split("-")[1]


def read_librispeech(root: Path) -> list[Trial]:
    """All pairs, from the folder that holds `test-clean` or from that folder itself; DataError where there are none."""
    folder = root / "test-clean" if (root / "test-clean").is_dir() else root
    recordings = [r for lists in sorted(folder.glob("*/*/*.trans.txt")) for r in read_chapter(lists)]
    by_reader: dict[str, list[ReaderRecording]] = {}
    for recording in recordings:
        by_reader.setdefault(recording.reader, []).append(recording)
    trials = [make_trial(r, by_reader[r.reader]) for r in recordings if len(by_reader[r.reader]) > 1]
    if not trials:
        raise DataError(
            f"{folder}: expected LibriSpeech's READER/CHAPTER/*.trans.txt with two recordings of "
            f"{MIN_SECONDS:g} to {MAX_SECONDS:g} s by some reader"
        )
    return trials


def read_chapter(transcripts: Path) -> list[ReaderRecording]:
    """The recordings of a chapter with 4 to 10 s, sorted."""
    found = []
    for line in sorted(read_text(transcripts, MAX_LIST_BYTES, DataError).splitlines()):
        name, _, text = line.partition(" ")
        path = transcripts.parent / f"{name}.flac"
        if not path.is_file():
            raise DataError(f"{printable_name(transcripts)}: lists {name}, but {path.name} does not exist")
        if MIN_SECONDS <= audio_info(path).duration <= MAX_SECONDS:
            found.append(ReaderRecording(name, path, text.capitalize() + "."))
    return found


def make_trial(recording: ReaderRecording, candidates: list[ReaderRecording]) -> Trial:
    """A recording's text in the voice of another one."""
    others = [other for other in candidates if other.text != recording.text]
    if not others:
        raise DataError(f"{recording.path}: its reader has no recording of another text")
    elsewhere = [other for other in others if other.chapter != recording.chapter]
    reference = min(elsewhere or others, key=lambda other: hash_order(f"{recording.id} {other.id}"))
    return Trial(
        id=recording.id, text=recording.text, speaker=recording.reader, style="read", reference=reference.path,
        reference_transcript=reference.text, ground_truth=recording.path,
    )  # fmt: skip
