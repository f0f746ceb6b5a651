"""What can be judged: models, and the bounds they are read against.

Upstream: `testset.Trial`.  Downstream: `score`.

`source` is the real recording, `codec` the same after encoding and decoding: what the words and the speaker score there
is the most a model on this codec can reach; `espeak-ng` is the floor. Any other system is a model, a rival (`rivals`),
or a folder of `<trial id>.wav` that anyone made in any way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec, Codes
from marstts.data.corpora import engines
from marstts.errors import AudioError, DataError
from marstts.evaluation.testset import Trial

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer

TAKE_SUFFIXES = (".wav", ".flac")
FLOOR_VOICE = "espeak-klatt4"
"""Its clearest voice, by the word test."""


class System(Protocol):
    """Something that speaks a trial."""

    @property
    def name(self) -> str:
        """Names the row of the table and the folder of the takes."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the takes might."""
        ...

    @property
    def timed(self) -> bool:
        """Whether `speak` makes the take, so that its time says something about the system."""
        ...

    def speak(self, trial: Trial) -> Waveform:
        """The take; raises a MarsError, in one sentence, where there is none."""
        ...


class SourceRecordings:
    """The real recordings themselves."""

    name = "source"
    version = "source"
    timed = False

    def speak(self, trial: Trial) -> Waveform:
        return audio.read(source_of(trial))


class CodecResynthesis:
    """The real recordings through a codec, cut to their length."""

    name = "codec"
    timed = False

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.version = codec.spec.name

    def speak(self, trial: Trial) -> Waveform:
        return resynthesize(self._codec, audio.read(source_of(trial)))


class Clone(str, Enum):
    """How a model takes up a reference."""

    SHALLOW = "shallow"
    """By its embeddings alone."""

    DEEP = "deep"
    """Going on from the recording and its transcript."""


class Variant(str, Enum):
    """A model with one thing taken away, as in the ablations of the paper's Table I."""

    NO_RAS = "no-ras"
    """Without repetition-aware sampling (Sec. IV-B1): no pick is ever drawn again."""

    NO_QUALITY_PREFIX = "no-quality-prefix"
    """Without the quality prefix (Sec. IV-B2)."""


def take_away(synthesizer: Synthesizer, variant: Variant) -> Synthesizer:
    """The synthesizer without what the variant names."""
    if variant is Variant.NO_RAS:
        return replace(synthesizer, sampling=synthesizer.sampling.model_copy(update={"ras_max_ratio": 1.0}))
    return replace(synthesizer, quality=None)


class Model:
    """A synthesizer that clones each trial's reference. `name` and `version` are without the kind of clone."""

    timed = True

    def __init__(self, synthesizer: Synthesizer, name: str, version: str, *, clone: Clone, seed: int) -> None:
        self.name = f"{name} ({clone.value})"
        self.version = f"{version} {clone.value} seed {seed}"
        self._synthesizer = synthesizer
        self._clone = clone
        self._seed = seed

    def speak(self, trial: Trial) -> Waveform:
        transcript = trial.reference_transcript if self._clone is Clone.DEEP else None
        if transcript == "":
            raise DataError(f"{trial.reference.name}: nobody wrote down its words, which a deep clone goes on from")
        voice = self._synthesizer.clone(trial.reference, transcript)
        return self._synthesizer.speak(trial.text, voice=voice, seed=take_seed(self._seed, trial.id)).waveform


class EspeakNg:
    """The floor: espeak-ng reads every text in one voice of its own, whosever the reference is."""

    name = "espeak-ng"
    version = "espeak-ng, en-us+klatt4"
    timed = True

    def __init__(self) -> None:
        engines.check_installed((FLOOR_VOICE,))

    def speak(self, trial: Trial) -> Waveform:
        return engines.espeak(trial.text, engines.BASE_VOICES[FLOOR_VOICE], 1.0, 1.0)


class TakesFolder:
    """Takes that lie in a folder already, as `<trial id>.wav` or `.flac`."""

    timed = False

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DataError(f"{folder}: expected a model, or a folder with one <trial id>.wav per trial")
        self.name = folder.resolve().name
        self.version = folder_digest(folder, TAKE_SUFFIXES)
        self._folder = folder

    def speak(self, trial: Trial) -> Waveform:
        for suffix in TAKE_SUFFIXES:
            if (self._folder / f"{trial.id}{suffix}").is_file():
                return audio.read(self._folder / f"{trial.id}{suffix}")
        raise AudioError(f"{self._folder / trial.id}.wav: no such take")

    def remarks(self, trials: Sequence[Trial]) -> list[str]:
        """Takes nobody asked for, and takes that are there twice, counted and named; empty if all is well."""
        files = sorted(path.name for path in self._folder.iterdir() if path.suffix in TAKE_SUFFIXES)
        wanted = {trial.id for trial in trials}
        extra = [name for name in files if Path(name).stem not in wanted]
        stems = [Path(name).stem for name in files]
        twice = sorted({f"{stem}.wav, {stem}.flac" for stem in stems if stem in wanted and stems.count(stem) > 1})
        found = []
        if extra:
            found.append(f"{len(extra)} takes belong to no trial and were left alone: {shown(extra)}")
        if twice:
            found.append(f"{len(twice)} takes are there twice; the .wav was judged: {shown(twice)}")
        return found


def shown(names: Sequence[str], most: int = 10) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def source_of(trial: Trial) -> Path:
    """The real recording of a trial; DataError where there is none."""
    if trial.source is None:
        raise DataError(f"{trial.id}: the test set has no real recording of this text, only a reference")
    return trial.source


def resynthesize(codec: Codec, waveform: Waveform) -> Waveform:
    """Encoded and decoded, at the codec's rate, without the padding to whole patches."""
    original = audio.resample(waveform, codec.spec.sample_rate)
    return decode_to_length(codec, codec.encode(original), len(original.samples))


def decode_to_length(codec: Codec, codes: Codes, num_samples: int) -> Waveform:
    """Decoded, without the padding to whole patches."""
    decoded = codec.decode(codes)
    return Waveform(decoded.samples[:num_samples], decoded.sample_rate)


def take_seed(seed: int, trial_id: str) -> int:
    """A seed for one trial: takes do not depend on which others were spoken before, or at all."""
    return int.from_bytes(hashlib.sha256(f"{seed} {trial_id}".encode()).digest()[:4], "little")


def folder_digest(folder: Path, suffixes: tuple[str, ...] = ()) -> str:
    """Hash of the names and bytes of the files in a folder, all or those with one of the suffixes."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (not suffixes or path.suffix in suffixes):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
