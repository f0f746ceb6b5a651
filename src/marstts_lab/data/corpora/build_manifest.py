"""Manifest building: every recording that a corpus lists is checked, and every reject is written down.

Upstream: the recipes of this package, iterators of `RawUtterance` (or `RejectedItem`) in the corpus's order.
Downstream: `utterances.jsonl` and `rejects.jsonl`, see `data.manifest`.
MARS6 (arXiv:2501.05787), Sec. V-A, keeps at most 80,000 utterances of a speaker.  Deviations: which ones is not stated;
here it is the first ones in the corpus's order.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import soundfile
from pydantic import Field

from marstts import audio
from marstts.errors import AudioError, DataError
from marstts.io.config import Config
from marstts.io.files import atomic_path, atomic_write, lock_folder
from marstts.io.hash_order import hash_number
from marstts.io.jsonl import dump_row, parse_row
from marstts.io.reading import printable_name
from marstts.text.normalize import normalize
from marstts_lab.data.manifest import Utterance, as_row, safe_name
from marstts_lab.data.workers import Progress

log = logging.getLogger(__name__)

MANIFEST, REJECTS = "utterances.jsonl", "rejects.jsonl"

HELD_OUT_EVERY = 100
"""Held-out fraction: without splits, one text in this many is for validation and another one for tests."""

ENGLISH_LETTERS = 0.9
"""Least fraction of a to z, accents aside, among the letters of an English text."""

HAS_LETTER = re.compile("[A-Za-z]")


class RejectKind(str, Enum):
    """Reason why an item is not in the manifest."""

    ERROR = "error"
    """The item is invalid. Too many of these stop the run."""

    FILTERED = "filtered"
    """The item is valid but excluded by the configuration: its length, language or speaker's limit."""


class Audio(str, Enum):
    """Location of the recordings of a manifest."""

    IN_PLACE = "in-place"
    """The files of the corpus. Segments of longer files stay segments."""

    FLAC = "flac"
    """Each in a FLAC file below the output folder, which every command reads."""


class ManifestConfig(Config):
    """Selection of the utterances of a corpus."""

    min_seconds: float = Field(0.5, ge=0.0, allow_inf_nan=False)
    """Shorter recordings are left out."""

    max_seconds: float = Field(30.0, gt=0.0, allow_inf_nan=False)
    """Longer recordings are left out."""

    max_characters: int = Field(600, gt=0)
    """Longer texts are left out."""

    max_per_speaker: int = Field(80_000, gt=0)
    """Most utterances of one speaker; the first ones are kept."""

    language: str = "en"
    """Recordings that their corpus labels with another language are left out, and for `en` texts in other letters."""

    max_reject_ratio: float = Field(0.05, ge=0.0, le=1.0)
    """The run stops when a larger fraction of the recordings is invalid."""

    audio: Audio = Audio.IN_PLACE
    """Location of the recordings."""


@dataclass(frozen=True, kw_only=True)
class RawUtterance:
    """An utterance as its corpus describes it, before any check."""

    id: str

    audio: Path | bytes
    """A file, or the content of one that is stored in another file."""

    text: str
    speaker: str
    split: str
    license: str

    start: float | None = None
    seconds: float | None = None
    """Position in a longer file."""

    source_rate: int | None = None
    """Bandwidth as a sample rate, where the corpus states that it is less than the file's rate."""

    language: str | None = None
    """Two-letter code, where the corpus labels it."""


@dataclass(frozen=True, kw_only=True)
class RejectedItem:
    """An item that a corpus lists but does not contain, or not in a usable form."""

    id: str
    reason: str
    text: str = ""
    kind: RejectKind = RejectKind.ERROR


class Reject(Exception):
    """The reason why a recording is left out; ends in rejects.jsonl."""

    def __init__(self, kind: RejectKind, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason


@dataclass
class ManifestReport:
    """The outcome for a corpus."""

    utterances: int = 0
    seconds: float = 0.0
    errors: int = 0
    filtered: int = 0
    speakers: Counter[str] = field(default_factory=Counter)

    @property
    def reject_ratio(self) -> float:
        """The fraction of invalid items."""
        return self.errors / max(1, self.utterances + self.errors + self.filtered)

    @property
    def summary(self) -> str:
        """The report in a line."""
        return (
            f"{self.utterances} utterances, {self.seconds / 3600:.2f} h, {len(self.speakers)} speakers; left out: "
            f"{self.errors} invalid, {self.filtered} filtered"
        )


def build_manifest(
    recordings: Iterable[RawUtterance | RejectedItem], output: Path, config: ManifestConfig
) -> ManifestReport:
    """Write the manifest of a corpus, and the rejects with their reasons, both atomically.

    DataError where no utterance is left, too many are invalid (the rejects are written), or another process works in
    `output`.
    """
    report, ids = ManifestReport(), set[str]()
    progress = Progress(log, "recordings checked", None)
    with lock_folder(output, DataError), atomic_write(output / MANIFEST, DataError) as kept:
        with atomic_write(output / REJECTS, DataError) as rejects:
            for recording in recordings:
                try:
                    if isinstance(recording, RejectedItem):
                        raise Reject(recording.kind, recording.reason)
                    utterance = make_utterance(recording, output, config, ids, report.speakers)
                except Reject as reject:
                    write_reject(rejects, recording, reject, report)
                else:
                    ids.add(utterance.id)
                    report.speakers[utterance.speaker] += 1
                    report.utterances += 1
                    report.seconds += utterance.seconds
                    kept.write(dump_row(as_row(utterance)))
                progress.advance(f"{report.errors} invalid, {report.filtered} filtered")
        check_ratio(report, output, config)
    return report


def write_reject(
    file: BinaryIO, recording: RawUtterance | RejectedItem, reject: Reject, report: ManifestReport
) -> None:
    """Write down and count a reject."""
    text = recording.text.encode("utf-8", "replace").decode("utf-8")
    row = {"id": printable_name(recording.id), "text": text, "reason": reject.reason, "kind": reject.kind.value}
    file.write(dump_row(row | {"reason": reject.reason.encode("utf-8", "backslashreplace").decode("utf-8")}))
    report.errors += reject.kind is RejectKind.ERROR
    report.filtered += reject.kind is RejectKind.FILTERED


def check_ratio(report: ManifestReport, output: Path, config: ManifestConfig) -> None:
    """DataError where no utterance is left, or too many items are invalid."""
    if report.reject_ratio > config.max_reject_ratio:
        raise DataError(
            f"{report.errors} recordings are invalid, {report.reject_ratio:.1%} of all; allowed are "
            f"{config.max_reject_ratio:.1%}. {output / REJECTS} names them; repair the corpus, or allow more rejects"
        )
    if not report.utterances:
        raise DataError(f"no utterance of this corpus is left; {output / REJECTS} lists the reasons")


def make_utterance(
    raw: RawUtterance, output: Path, config: ManifestConfig, ids: set[str], speakers: Counter[str]
) -> Utterance:
    """The utterance of a recording, its file written where the configuration asks for one; Reject with the reason."""
    if raw.id in ids:
        raise Reject(RejectKind.ERROR, "its id was used before")
    check_text(raw, config)
    if speakers[raw.speaker] >= config.max_per_speaker:
        raise Reject(RejectKind.FILTERED, f"{raw.speaker} has {config.max_per_speaker} utterances already")
    try:
        sample_rate, seconds = measure(raw)
        if not config.min_seconds <= seconds <= config.max_seconds:
            raise Reject(
                RejectKind.FILTERED,
                f"{seconds:.2f} s of audio; kept are {config.min_seconds} to {config.max_seconds} s",
            )
        path, is_segment = store_audio(raw, seconds, output, config.audio)
        utterance = Utterance(
            id=raw.id, audio=str(path), text=raw.text.strip(), speaker=raw.speaker, style="regular",
            seconds=round(seconds, 3), source_rate=min(raw.source_rate or sample_rate, sample_rate), split=raw.split,
            license=raw.license, start=raw.start if is_segment else None,
        )  # fmt: skip
        return parse_row(Utterance, dump_row(as_row(utterance)))  # within the bounds of a manifest, and UTF-8
    except (AudioError, DataError) as error:
        raise Reject(RejectKind.ERROR, str(error)) from error


def check_text(raw: RawUtterance, config: ManifestConfig) -> None:
    """Reject an utterance without text, or with text in another language."""
    text = raw.text.strip()
    if not text:
        raise Reject(RejectKind.ERROR, "the transcript is empty")
    if raw.language is not None and raw.language != config.language:
        raise Reject(RejectKind.FILTERED, f"its language is {raw.language}; kept is {config.language}")
    if len(text) > config.max_characters:
        raise Reject(RejectKind.FILTERED, f"{len(text)} characters of text; kept are at most {config.max_characters}")
    if config.language == "en" and not could_be_english(text):
        raise Reject(RejectKind.ERROR, "the transcript is not English: its letters are not")
    if not (HAS_LETTER.search(text) or normalize(text).strip()):  # normalizing is slow, and letters are always spoken
        raise Reject(RejectKind.ERROR, "nothing in the transcript can be spoken")


def could_be_english(text: str) -> bool:
    """Return True where nearly all letters are Latin; this distinguishes alphabets, not languages that share one."""
    letters = [letter for letter in unicodedata.normalize("NFD", text) if letter.isalpha()]
    return sum(letter.isascii() for letter in letters) >= ENGLISH_LETTERS * len(letters)


def measure(raw: RawUtterance) -> tuple[int, float]:
    """Sample rate of the file and seconds of the recording, by the file's header; AudioError if it has none."""
    if isinstance(raw.audio, bytes):
        waveform = audio.read(raw.audio)
        return waveform.sample_rate, waveform.seconds
    sample_rate, frames = read_header(raw.audio)
    if raw.start is None:
        return sample_rate, frames / sample_rate
    seconds = raw.seconds or 0.0
    if not (raw.start >= 0 and seconds > 0):
        raise AudioError(f"a segment from {raw.start} s of {seconds} s does not exist")
    if raw.start + seconds > frames / sample_rate + audio.SPAN_TOLERANCE_SECONDS:
        raise AudioError(f"{raw.audio}: ends before the recording does, after {frames / sample_rate:.2f} s")
    return sample_rate, seconds


@lru_cache(maxsize=64)
def read_header(path: Path) -> tuple[int, int]:
    """Sample rate and frames of a file; segments of a file follow one another, so the last few are cached."""
    name = printable_name(path)
    try:
        if not is_file(path):
            raise AudioError(f"{name}: no such audio file")
        info = soundfile.info(str(path))
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        raise AudioError(f"{name}: expected an audio file, but it cannot be decoded as one") from error
    if not info.frames:
        raise AudioError(f"{name}: expected a recording, but the file holds no samples")
    return info.samplerate, info.frames


def is_file(path: Path) -> bool:
    """Return True where there is a file; False for names that no file system takes."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def store_audio(raw: RawUtterance, seconds: float, output: Path, where: Audio) -> tuple[Path, bool]:
    """Path for the manifest, and True for a segment of that file; writes the file where the recording has none."""
    if where is Audio.IN_PLACE and isinstance(raw.audio, Path):
        return raw.audio.absolute(), raw.start is not None
    path = Path("audio") / safe_name(raw.speaker) / f"{safe_name(raw.id)}.flac"
    if not (output / path).exists():
        if raw.start is None or isinstance(raw.audio, bytes):
            waveform = audio.read(raw.audio)
        else:
            waveform = audio.read_span(raw.audio, raw.start, seconds)
        with atomic_path(output / path, DataError) as temporary:
            audio.write(waveform, temporary)
    return path, False


def held_out(text: str) -> str:
    """The split of a text in a corpus without splits: by its letters, so that no reader of it is trained on."""
    letters = re.sub(r"[^a-z]", "", text.lower())
    number = hash_number(letters) % HELD_OUT_EVERY
    return {0: "validation", 1: "test"}.get(number, "train")
