"""What is heard in a listening test: folders of recordings, checked before anybody listens, and anchors made of them.

Upstream: `config`, `audio.read`.  Downstream: `design` (the names), `host` and `turk` (the sounds).

Everything wrong with the recordings is said at once, by name; nothing is left out in silence. All are brought to one
loudness. The ruined anchor is speech times noise at 0 dB, the reference unit of ITU-T P.810 (MNRU), the middling one at
20 dB; the other voice is the reference played faster by a factor, which moves pitch and throat together.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import AudioError, DataError
from marstts.evaluation.listening.config import ListeningTestConfig, Question
from marstts.evaluation.listening.design import Anchor, Trial

SUFFIXES = (".wav", ".flac")
MAX_COMPLAINTS = 12
"""A wrong folder breaks every file in it; a person needs to read a few."""

NOISE_DB = {Anchor.MIDDLING: 20.0, Anchor.DEGRADED: 0.0}
"""Signal to modulated noise: P.810's Q."""

OTHER_VOICE_FACTOR = 1.45
"""Between a man's voice and a woman's lies less than this in the length of the throat, and more in pitch."""


class Role(str, Enum):
    """Which of a trial's sounds."""

    STIMULUS = "stimulus"
    REFERENCE = "reference"
    """Whose voice it should be."""
    FIRST = "first"
    SECOND = "second"
    """The sides of a preference."""


ROLES = {
    Question.NATURALNESS: (Role.STIMULUS,),
    Question.SIMILARITY: (Role.REFERENCE, Role.STIMULUS),
    Question.PREFERENCE: (Role.FIRST, Role.SECOND),
}
"""The sounds of a trial in the order they are heard."""


Folder = Mapping[str, Path]
"""Recordings by the name of their sentence."""


@dataclass(frozen=True)
class Stimuli:
    """All recordings of a test, found good."""

    systems: Mapping[str, Folder]
    recordings: Folder
    references: Folder
    seconds: Mapping[Path, float]
    sample_rate: int
    loudness_lufs: float
    digest: str
    """Of names and contents."""

    @property
    def sentences(self) -> list[str]:
        return sorted(next(iter(self.systems.values())))

    def path(self, trial: Trial, role: Role) -> Path:
        """The file behind a trial's sound."""
        if role is Role.REFERENCE or trial.system in (Anchor.SAME, Anchor.OTHER):
            return self.references[trial.sentence]
        if trial.system in (Anchor.CLEAN, Anchor.MIDDLING, Anchor.DEGRADED):
            return self.recordings[trial.sentence]
        return self.systems[trial.system][trial.sentence]

    def trial_seconds(self, trial: Trial) -> float:
        """How long one has to listen before one has heard everything."""
        factor = OTHER_VOICE_FACTOR if trial.system == Anchor.OTHER else 1.0
        seconds = {role: self.seconds[self.path(trial, role)] for role in ROLES[trial.question]}
        return seconds[Role.STIMULUS] / factor + seconds.get(Role.REFERENCE, 0.0)

    def encode(self, trial: Trial, role: Role) -> bytes:
        """The sound as a WAV file."""
        system = trial.system if role is Role.STIMULUS else ""
        return self.encode_file(self.path(trial, role), system)

    def encode_file(self, path: Path, system: str = "") -> bytes:
        """A recording as it is heard, after what the anchor of that name does to it."""
        waveform = audio.resample(treat(audio.read(path), system), self.sample_rate)
        return audio.encode(audio.normalize_loudness(waveform, self.loudness_lufs))


def treat(waveform: Waveform, system: str) -> Waveform:
    """What an anchor makes of a recording; a system's takes stay as they are."""
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
class Terms:
    """What recordings have to be, and are brought to."""

    sample_rate: int | None
    """Hz; None: whatever they have, if it is one."""
    max_seconds: float
    loudness_lufs: float


def open_stimuli(config: ListeningTestConfig) -> Stimuli:
    """Find and check every recording of a test; DataError naming all that is wrong."""
    terms = Terms(config.sample_rate, config.max_seconds, config.loudness_lufs)
    references = config.references if Question.SIMILARITY in config.questions else None
    recordings = config.recordings if Question.NATURALNESS in config.questions else None
    return find_stimuli(config.systems, recordings, references, terms)


def find_stimuli(
    folders: Mapping[str, Path], recordings_folder: Path | None, references_folder: Path | None, terms: Terms
) -> Stimuli:
    """Find and check every recording in these folders; DataError naming all that is wrong."""
    complaints: list[str] = []
    systems = {name: list_folder(folder, name, complaints) for name, folder in folders.items()}
    recordings = {} if recordings_folder is None else list_folder(recordings_folder, "recordings", complaints)
    references = {} if references_folder is None else list_folder(references_folder, "references", complaints)
    complaints += unlike_sentences({**systems, **({"references": references} if references else {})})
    refuse(complaints)
    rooms = [*systems.items(), ("recordings", recordings), ("references", references)]
    seconds, rate, digest = check_audio(rooms, terms, complaints)
    refuse(complaints)
    return Stimuli(systems, recordings, references, seconds, rate, terms.loudness_lufs, digest)


def refuse(complaints: Sequence[str]) -> None:
    """Raise DataError with the first of the complaints, and the number of the others."""
    if complaints:
        more = len(complaints) - MAX_COMPLAINTS
        rest = [f"and {more} more"] if more > 0 else []
        raise DataError("; ".join([*complaints[:MAX_COMPLAINTS], *rest]))


def list_folder(folder: Path, name: str, complaints: list[str]) -> dict[str, Path]:
    """Recordings of a folder by their names without suffix; a name that occurs twice is complained of."""
    if not folder.is_dir():
        complaints.append(f"{name}: expected a folder of recordings at {folder}, but there is none")
        return {}
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in SUFFIXES or path.name.startswith("."):
            continue
        if path.stem in found:
            complaints.append(f"{name}: {path.stem} is there twice, {found[path.stem].name} and {path.name}")
        found[path.stem] = path
    if not found:
        complaints.append(f"{name}: {folder} holds no {' or '.join(SUFFIXES)} files")
    return found


def unlike_sentences(folders: Mapping[str, Folder]) -> list[str]:
    """What is missing where, compared with all sentences of all folders."""
    every = sorted({sentence for folder in folders.values() for sentence in folder})
    complaints = []
    for name, folder in folders.items():
        missing = [sentence for sentence in every if sentence not in folder]
        if folder and missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            complaints.append(
                f"{name}: {len(missing)} of {len(every)} sentences are missing ({shown}); systems are compared on the "
                "same sentences"
            )
    return complaints


def check_audio(
    rooms: Sequence[tuple[str, Folder]], terms: Terms, complaints: list[str]
) -> tuple[dict[Path, float], int, str]:
    """Lengths of all recordings, the rate they are heard at, and a digest of their contents."""
    seconds: dict[Path, float] = {}
    rates: dict[int, list[str]] = defaultdict(list)
    digest = hashlib.sha256()
    for name, folder in rooms:
        for sentence, path in folder.items():
            try:
                waveform = audio.read(path, max_seconds=terms.max_seconds)
            except AudioError as error:
                complaints.append(f"{name}: {error}")
                continue
            if not waveform.samples.any():
                complaints.append(f"{name}: {path}: expected speech, but it is digital silence")
            seconds[path] = waveform.seconds
            rates[waveform.sample_rate].append(f"{name}/{sentence}")
            digest.update(f"{name}/{sentence}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    rate = terms.sample_rate or next(iter(rates), 0)
    if terms.sample_rate is None and len(rates) > 1:
        shown = ", ".join(f"{rate} Hz in {len(names)} ({names[0]}, …)" for rate, names in sorted(rates.items()))
        complaints.append(f"expected recordings of one sample rate, but found {shown}; set sample_rate to resample all")
    return seconds, rate, digest.hexdigest()
