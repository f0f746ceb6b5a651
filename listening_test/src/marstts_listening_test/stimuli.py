"""The recordings of a listening test, checked before it starts, and the anchors made of them.

Upstream: `config`, `audio.read`.  Downstream: `design` (the names), `service` (the audio).

Everything wrong with the recordings is reported at once, by name; nothing is dropped silently. All are brought to one
loudness. The degraded anchor is speech times noise at 0 dB, the reference unit of ITU-T P.810 (MNRU); the middling one
is at 20 dB. The other voice is the reference played faster by a factor, which raises F0 and formants together.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import AudioError, DataError
from marstts.io.reading import os_errors, printable_name, read_regular_file
from marstts_listening_test.config import ListeningTestConfig, Question, open_evaluation
from marstts_listening_test.design import Anchor, ListeningTrial, other_side

SUFFIXES = (".wav", ".flac")
MAX_COMPLAINTS = 12
"""A wrong folder breaks every file in it; a message shows a few."""

MAX_SAMPLE_RATE = 48_000
MAX_FILE_BYTES = 2**28
"""Largest recording; a minute at 48 kHz in eight channels of 64 bits has 184 MB."""

NOISE_DB = {Anchor.MIDDLING: 20.0, Anchor.DEGRADED: 0.0}
"""Ratio of signal to modulated noise: P.810's Q."""

OTHER_VOICE_FACTOR = 1.45
"""Larger than the ratio of average vocal-tract lengths of men and women; the ratio of their F0 is larger still."""


class Role(str, Enum):
    """Role of a recording in a trial."""

    STIMULUS = "stimulus"
    REFERENCE = "reference"
    """The voice that the stimulus should have."""
    FIRST = "first"
    SECOND = "second"
    """The sides of a preference."""


ROLES = {
    Question.NATURALNESS: (Role.STIMULUS,),
    Question.SIMILARITY: (Role.REFERENCE, Role.STIMULUS),
    Question.PREFERENCE: (Role.FIRST, Role.SECOND),
}
"""The recordings of a trial in the order in which they are played."""


Folder = Mapping[str, Path]
"""Recordings by the name of their sentence."""


@dataclass(frozen=True)
class Stimuli:
    """All recordings of a test, checked."""

    systems: Mapping[str, Folder]
    recordings: Folder
    references: Folder
    seconds: Mapping[Path, float]
    sample_rate: int
    loudness_lufs: float
    digest: str
    """SHA-256 of names and contents."""

    @property
    def sentences(self) -> list[str]:
        """Names of the sentences, sorted."""
        return sorted(next(iter(self.systems.values())))

    def path(self, trial: ListeningTrial, role: Role) -> Path:
        """The file behind a trial's recording."""
        if role in (Role.FIRST, Role.SECOND):
            side = trial.system if role is Role.FIRST else other_side(trial.system)
            return self.systems[side][trial.sentence]
        if role is Role.REFERENCE or trial.system in (Anchor.SAME, Anchor.OTHER):
            return self.references[trial.sentence]
        if trial.system in (Anchor.CLEAN, Anchor.MIDDLING, Anchor.DEGRADED):
            return self.recordings[trial.sentence]
        return self.systems[trial.system][trial.sentence]

    def trial_seconds(self, trial: ListeningTrial) -> float:
        """Duration of all recordings of a trial together."""
        factors = {Role.STIMULUS: OTHER_VOICE_FACTOR} if trial.system == Anchor.OTHER else {}
        return sum(self.seconds[self.path(trial, role)] / factors.get(role, 1.0) for role in ROLES[trial.question])

    def encode(self, trial: ListeningTrial, role: Role) -> bytes:
        """A trial's recording as a WAV file."""
        system = trial.system if role is Role.STIMULUS else ""
        return self.encode_file(self.path(trial, role), system)

    def encode_file(self, path: Path, system: str = "") -> bytes:
        """A recording as a WAV file at the test's sample rate and loudness, made an anchor where `system` is one."""
        waveform = audio.resample(apply_anchor(audio.read(path), system), self.sample_rate)
        return audio.encode(audio.normalize_loudness(waveform, self.loudness_lufs))


def apply_anchor(waveform: Waveform, system: str) -> Waveform:
    """The recording of an anchor; a system's takes stay as they are."""
    if system in (Anchor.MIDDLING, Anchor.DEGRADED):
        return add_modulated_noise(waveform, NOISE_DB[Anchor(system)])
    if system == Anchor.OTHER:
        faster = Waveform(waveform.samples, round(waveform.sample_rate * OTHER_VOICE_FACTOR))
        return audio.resample(faster, waveform.sample_rate)
    return waveform


def add_modulated_noise(waveform: Waveform, ratio_db: float) -> Waveform:
    """Speech times (1 + noise), ITU-T P.810; the noise is the same each time."""
    noise = np.random.default_rng(0).standard_normal(len(waveform.samples))
    samples = waveform.samples * (1 + 10 ** (-ratio_db / 20) * noise)
    return Waveform(samples.astype(np.float32), waveform.sample_rate)


@dataclass(frozen=True)
class AudioRequirements:
    """Requirements on recordings, and the format they are converted to."""

    sample_rate: int | None
    """Rate in Hz; None: the rate that all files share."""
    max_seconds: float
    loudness_lufs: float
    resamples: bool = False
    """Whether files of several rates are resampled to the highest one, where `sample_rate` is None."""


def open_stimuli(config: ListeningTestConfig) -> Stimuli:
    """Find and check every recording of a test; DataError naming everything that is wrong."""
    is_evaluation = config.evaluation is not None  # its systems, such as espeak-ng, differ in rate
    requirements = AudioRequirements(config.sample_rate, config.max_seconds, config.loudness_lufs, is_evaluation)
    references = config.references if Question.SIMILARITY in config.questions else None
    recordings = config.recordings if Question.NATURALNESS in config.questions else None
    sentences = None if config.evaluation is None else open_evaluation(config.evaluation).sentences
    return find_stimuli(config.systems, recordings, references, requirements, sentences)


def find_stimuli(
    folders: Mapping[str, Path],
    recordings_folder: Path | None,
    references_folder: Path | None,
    requirements: AudioRequirements,
    sentences: Set[str] | None = None,
) -> Stimuli:
    """Find and check every recording in these folders; DataError naming everything that is wrong.

    `sentences`: those that every system must have, other files being ignored; None: all files are sentences.
    """
    complaints: list[str] = []
    systems = {name: list_folder(folder, name, complaints, sentences) for name, folder in folders.items()}
    recordings = {} if recordings_folder is None else list_folder(recordings_folder, "recordings", complaints)
    references = (
        {} if references_folder is None else list_folder(references_folder, "references", complaints, sentences)
    )
    complete = {**systems, **({"references": references} if references else {})}
    complaints += missing_sentences(complete, sentences or frozenset())
    raise_complaints(complaints)
    named = [*systems.items(), ("recordings", recordings), ("references", references)]
    seconds, rate, digest = check_audio(named, requirements, complaints)
    raise_complaints(complaints)
    return Stimuli(systems, recordings, references, seconds, rate, requirements.loudness_lufs, digest)


def raise_complaints(complaints: Sequence[str]) -> None:
    """Raise DataError with the first of the complaints and the number of the others, if there are any."""
    if complaints:
        more = len(complaints) - MAX_COMPLAINTS
        rest = [f"and {more} more"] if more > 0 else []
        raise DataError("; ".join([*complaints[:MAX_COMPLAINTS], *rest]))


def list_folder(folder: Path, name: str, complaints: list[str], sentences: Set[str] | None = None) -> dict[str, Path]:
    """Recordings of a folder by their names without suffix; complains about a name that occurs twice."""
    if not folder.is_dir():
        complaints.append(f"{name}: expected a folder of recordings at {printable_name(folder)}, but there is none")
        return {}
    found: dict[str, Path] = {}
    with os_errors(folder, "be read", DataError):
        paths = sorted(folder.iterdir())
    for path in paths:
        if path.suffix.lower() not in SUFFIXES or path.name.startswith("."):
            continue
        if sentences is not None and path.stem not in sentences:
            continue
        if not is_text(path.stem):
            complaints.append(f"{name}: expected file names in UTF-8, but found {printable_name(path)}")
            continue
        if path.stem in found:
            names = f"{printable_name(found[path.stem].name)} and {printable_name(path.name)}"
            complaints.append(f"{name}: {printable_name(path.stem)} is there twice, {names}")
        found[path.stem] = path
    if not found:
        complaints.append(f"{name}: {printable_name(folder)} holds no {' or '.join(SUFFIXES)} files of this test")
    return found


def is_text(name: str) -> bool:
    """Whether a file name can be written as UTF-8."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def missing_sentences(folders: Mapping[str, Folder], expected: Set[str]) -> list[str]:
    """Complaints about sentences that one folder lacks and another one, or `expected`, has."""
    every = sorted({sentence for folder in folders.values() for sentence in folder} | expected)
    complaints = []
    for name, folder in folders.items():
        missing = [printable_name(sentence) for sentence in every if sentence not in folder]
        if folder and missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            complaints.append(
                f"{name}: {len(missing)} of {len(every)} sentences are missing ({shown}); systems are compared on the "
                "same sentences"
            )
    return complaints


def check_audio(
    folders: Sequence[tuple[str, Folder]], requirements: AudioRequirements, complaints: list[str]
) -> tuple[dict[Path, float], int, str]:
    """Durations of all recordings, their sample rate, and a digest of their contents."""
    seconds: dict[Path, float] = {}
    rates: dict[int, list[str]] = defaultdict(list)
    digest = hashlib.sha256()
    for name, folder in folders:
        for sentence, path in folder.items():
            try:
                content = read_regular_file(path, MAX_FILE_BYTES, AudioError)
                waveform = audio.read(path, max_seconds=requirements.max_seconds)
            except AudioError as error:
                complaints.append(f"{name}: {error}")
                continue
            if not waveform.samples.any():
                complaints.append(f"{name}: {printable_name(path)}: expected speech, but it is digital silence")
            seconds[path] = waveform.seconds
            rates[waveform.sample_rate].append(f"{name}/{sentence}")
            digest.update(f"{name}/{sentence}\n".encode())
            digest.update(hashlib.sha256(content).digest())
    rate = requirements.sample_rate or min(max(rates, default=0), MAX_SAMPLE_RATE)
    if requirements.sample_rate is None and len(rates) > 1 and not requirements.resamples:
        shown = ", ".join(
            f"{rate} Hz in {len(names)} ({printable_name(names[0])}, …)" for rate, names in sorted(rates.items())
        )
        complaints.append(f"expected recordings of one sample rate, but found {shown}; set sample_rate to resample all")
    return seconds, rate, digest.hexdigest()
