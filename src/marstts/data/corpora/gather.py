"""From what a corpus says it holds to a manifest: every recording checked, every refusal written down.

Upstream: the recipes beside this module, each an iterator of `Found` (or `Refused`) in its corpus's own order.
Downstream: `utterances.jsonl` and `rejects.jsonl`, see `data.manifest`.
MARS6 (arXiv:2501.05787), Sec. V-A, keeps at most 80,000 utterances of a speaker.  Deviations: which ones is not stated;
here it is the first ones in the corpus's order.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import soundfile
from pydantic import Field

from marstts import audio
from marstts.config import Config
from marstts.data.manifest import Utterance, utterance_line
from marstts.errors import AudioError, DataError
from marstts.text.normalize import normalize

MANIFEST, REJECTS = "utterances.jsonl", "rejects.jsonl"

HELD_OUT_EVERY = 100
"""Where a corpus has no splits of its own, one text in so many is for validation and another one for tests."""

ENGLISH_LETTERS = 0.9
"""Share of a text's letters that are a to z, accents aside, in anything that could be English."""

HAS_LETTER = re.compile("[A-Za-z]")
SAFE_NAME = re.compile(r"[^\w.-]+")


class Kind(str, Enum):
    """Why something is not in the manifest."""

    FAULT = "fault"
    """Something is wrong with it. Too many of these stop the run."""

    CHOICE = "choice"
    """It is in order but not wanted: its length, language or speaker's share."""


class Audio(str, Enum):
    """Where the recordings of a manifest lie."""

    IN_PLACE = "in-place"
    """Where the corpus has them. Parts of longer files stay parts, which only tokenising can read."""

    FLAC = "flac"
    """Each in a FLAC file of its own below the output folder, which every command can read."""


class GatherConfig(Config):
    """What is taken of a corpus."""

    min_seconds: float = Field(0.5, ge=0.0)
    """Shorter recordings are left out."""

    max_seconds: float = Field(30.0, gt=0.0)
    """Longer recordings are left out."""

    max_characters: int = Field(600, gt=0)
    """Longer texts are left out."""

    max_per_speaker: int = Field(80_000, gt=0)
    """Utterances of one speaker; the first so many are kept."""

    language: str = "en"
    """Recordings that their corpus marks with another language are left out, and for `en` texts in other letters."""

    max_fault_share: float = Field(0.05, ge=0.0, le=1.0)
    """The run stops when a larger share of the recordings is faulty."""

    audio: Audio = Audio.IN_PLACE
    """Where the recordings lie afterwards."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A recording as its corpus tells of it, before anything is checked."""

    id: str

    audio: Path | bytes
    """A file, or the content of one that is stored inside something else."""

    text: str
    speaker: str
    split: str
    licence: str
    style: str = "regular"

    start: float | None = None
    seconds: float | None = None
    """Where it lies in a longer file."""

    source_rate: int | None = None
    """Bandwidth as a sample rate, where the corpus knows it to be less than the file's rate."""

    language: str | None = None
    """Its two letters, where the corpus marks it."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Something a corpus names but does not hold, or holds in no usable form."""

    id: str
    reason: str
    text: str = ""
    kind: Kind = Kind.FAULT


class Reject(Exception):
    """Why a recording is not taken; ends in rejects.jsonl."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason


@dataclass
class GatherReport:
    """What came of a corpus."""

    utterances: int = 0
    seconds: float = 0.0
    faults: int = 0
    choices: int = 0
    speakers: Counter[str] = field(default_factory=Counter)

    @property
    def faulty_share(self) -> float:
        """Faults among everything that was looked at."""
        return self.faults / max(1, self.utterances + self.faults + self.choices)

    @property
    def summary(self) -> str:
        """The report in a line."""
        return (
            f"{self.utterances} utterances, {self.seconds / 3600:.2f} h, {len(self.speakers)} speakers; left out: "
            f"{self.faults} faulty, {self.choices} by choice"
        )


def gather(recordings: Iterable[Found | Refused], output: Path, config: GatherConfig) -> GatherReport:
    """Write the manifest of a corpus, and beside it what was left out and why.

    Both take their names when complete. DataError where nothing is left, or more is faulty than may be.
    """
    output.mkdir(parents=True, exist_ok=True)
    report, ids = GatherReport(), set[str]()
    temporary = {name: output / f".{name}.tmp" for name in (MANIFEST, REJECTS)}
    with temporary[MANIFEST].open("w", encoding="utf-8") as kept, temporary[REJECTS].open("w", encoding="utf-8") as out:
        for recording in recordings:
            try:
                if isinstance(recording, Refused):
                    raise Reject(recording.kind, recording.reason)
                utterance = take(recording, output, config, ids, report.speakers)
            except Reject as reject:
                refuse(out, recording, reject, report)
                continue
            ids.add(utterance.id)
            report.speakers[utterance.speaker] += 1
            report.utterances += 1
            report.seconds += utterance.seconds
            kept.write(utterance_line(utterance) + "\n")
    os.replace(temporary[REJECTS], output / REJECTS)
    check_shares(report, output, config)
    os.replace(temporary[MANIFEST], output / MANIFEST)
    return report


def refuse(out: TextIO, recording: Found | Refused, reject: Reject, report: GatherReport) -> None:
    """Write down and count what is left out."""
    row = {"id": recording.id, "text": recording.text, "reason": reject.reason, "kind": reject.kind.value}
    out.write(json.dumps(row, ensure_ascii=False) + "\n")
    report.faults += reject.kind is Kind.FAULT
    report.choices += reject.kind is Kind.CHOICE


def check_shares(report: GatherReport, output: Path, config: GatherConfig) -> None:
    """DataError where nothing is left, or too much is faulty."""
    if report.faulty_share > config.max_fault_share:
        raise DataError(
            f"{report.faults} recordings are faulty, {report.faulty_share:.1%} of all; allowed are "
            f"{config.max_fault_share:.1%}. {output / REJECTS} names them; mend the corpus, or allow more faults"
        )
    if not report.utterances:
        raise DataError(f"nothing of this corpus is left; {output / REJECTS} says why")


def take(found: Found, output: Path, config: GatherConfig, ids: set[str], speakers: Counter[str]) -> Utterance:
    """The utterance of a recording, its file written where one is wanted; Reject says why it is not taken."""
    if found.id in ids:
        raise Reject(Kind.FAULT, "its id was used before")
    check_text(found, config)
    if speakers[found.speaker] >= config.max_per_speaker:
        raise Reject(Kind.CHOICE, f"{found.speaker} has {config.max_per_speaker} utterances already")
    try:
        sample_rate, seconds = measure(found)
        if not config.min_seconds <= seconds <= config.max_seconds:
            raise Reject(
                Kind.CHOICE, f"{seconds:.2f} s of audio; kept are {config.min_seconds} to {config.max_seconds} s"
            )
        path, is_part = place(found, seconds, output, config.audio)
    except AudioError as error:
        raise Reject(Kind.FAULT, str(error)) from error
    return Utterance(
        id=found.id, audio=str(path), text=found.text.strip(), speaker=found.speaker, style=found.style,
        seconds=round(seconds, 3), source_rate=min(found.source_rate or sample_rate, sample_rate), split=found.split,
        licence=found.licence, start=found.start if is_part else None,
    )  # fmt: skip


def check_text(found: Found, config: GatherConfig) -> None:
    """Reject what has no text, or none in the language wanted."""
    text = found.text.strip()
    if not text:
        raise Reject(Kind.FAULT, "the transcript is empty")
    if found.language is not None and found.language != config.language:
        raise Reject(Kind.CHOICE, f"its language is {found.language}; wanted is {config.language}")
    if len(text) > config.max_characters:
        raise Reject(Kind.CHOICE, f"{len(text)} characters of text; kept are at most {config.max_characters}")
    if config.language == "en" and not could_be_english(text):
        raise Reject(Kind.FAULT, "the transcript is not English: its letters are not")
    if not (HAS_LETTER.search(text) or normalize(text).strip()):  # normalising is dear, and letters are always spoken
        raise Reject(Kind.FAULT, "nothing in the transcript can be spoken")


def could_be_english(text: str) -> bool:
    """Whether nearly all letters are Latin; it tells alphabets apart, not languages that share one."""
    letters = [letter for letter in unicodedata.normalize("NFD", text) if letter.isalpha()]
    return sum(letter.isascii() for letter in letters) >= ENGLISH_LETTERS * len(letters)


def measure(found: Found) -> tuple[int, float]:
    """(sample rate of the file, seconds of the recording), by the file's header; AudioError if it has none."""
    if isinstance(found.audio, bytes):
        waveform = audio.read(found.audio)
        return waveform.sample_rate, waveform.seconds
    sample_rate, frames = read_header(found.audio)
    if found.start is None:
        return sample_rate, frames / sample_rate
    seconds = found.seconds or 0.0
    if found.start + seconds > frames / sample_rate + audio.SPAN_TOLERANCE_SECONDS:
        raise AudioError(f"{found.audio}: ends before the recording does, after {frames / sample_rate:.2f} s")
    return sample_rate, seconds


@lru_cache(maxsize=64)
def read_header(path: Path) -> tuple[int, int]:
    """(sample rate, frames) of a file; parts of a file follow one another, so the last few are remembered."""
    if not path.is_file():
        raise AudioError(f"{path}: no such audio file")
    try:
        info = soundfile.info(str(path))
    except soundfile.SoundFileError as error:
        raise AudioError(f"{path}: expected an audio file, but it cannot be decoded as one") from error
    if not info.frames:
        raise AudioError(f"{path}: expected a recording, but the file holds no samples")
    return info.samplerate, info.frames


def place(found: Found, seconds: float, output: Path, where: Audio) -> tuple[Path, bool]:
    """(path for the manifest, whether it is part of that file); writes the file where the recording has none."""
    if where is Audio.IN_PLACE and isinstance(found.audio, Path):
        return found.audio.absolute(), found.start is not None
    path = Path("audio") / safe(found.speaker) / f"{safe(found.id)}.flac"
    if not (output / path).exists():
        if found.start is None or isinstance(found.audio, bytes):
            waveform = audio.read(found.audio)
        else:
            waveform = audio.read_span(found.audio, found.start, seconds)
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        temporary = output / path.with_name(f".{path.name}.tmp.flac")
        audio.write(waveform, temporary)
        os.replace(temporary, output / path)
    return path, False


def safe(name: str) -> str:
    """A name as part of a path; different names stay different."""
    plain = SAFE_NAME.sub("_", name).strip(".")
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def held_out(text: str) -> str:
    """The split of a text where its corpus has none: by its letters, so that no reader of it is trained on."""
    letters = re.sub(r"[^a-z]", "", text.lower())
    number = int.from_bytes(hashlib.sha256(letters.encode()).digest()[:4], "little") % HELD_OUT_EVERY
    return {0: "validation", 1: "test"}.get(number, "train")
