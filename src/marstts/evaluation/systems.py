"""What can be judged: models, and the bounds they are read against.

Upstream: `testset.Trial`.  Downstream: `score`.

`source` is the real recording, `codec` the same after encoding and decoding: what the words and the speaker score there
is the most a model on this codec can reach. Any other system is a model, or a folder of `<trial id>.wav` that anyone
made in any way.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec, Codes
from marstts.errors import AudioError, DataError
from marstts.evaluation.testset import Trial

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer


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

    def speak(self, trial: Trial) -> Waveform:
        """The take; raises a MarsError, in one sentence, where there is none."""
        ...


class SourceRecordings:
    """The real recordings themselves."""

    name = "source"
    version = "source"

    def speak(self, trial: Trial) -> Waveform:
        return audio.read(trial.source)


class CodecResynthesis:
    """The real recordings through a codec, cut to their length."""

    name = "codec"

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.version = codec.spec.name

    def speak(self, trial: Trial) -> Waveform:
        return resynthesize(self._codec, audio.read(trial.source))


class Model:
    """A synthesizer that clones each trial's reference, shallow or (with its transcript) deep."""

    def __init__(self, synthesizer: Synthesizer, name: str, version: str, *, deep: bool, seed: int) -> None:
        kind = "deep" if deep else "shallow"
        self.name = f"{name} ({kind})"
        self.version = f"{version} {kind} seed {seed}"
        self._synthesizer = synthesizer
        self._deep = deep
        self._seed = seed

    def speak(self, trial: Trial) -> Waveform:
        transcript = trial.reference_transcript if self._deep else None
        voice = self._synthesizer.clone(trial.reference, transcript)
        return self._synthesizer.speak(trial.text, voice=voice, seed=take_seed(self._seed, trial.id)).waveform


class TakesFolder:
    """Takes that lie in a folder already, as `<trial id>.wav` or `.flac`."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DataError(f"{folder}: expected a model, or a folder with one <trial id>.wav per trial")
        self.name = folder.name
        self.version = folder_digest(folder, (".wav", ".flac"))
        self._folder = folder

    def speak(self, trial: Trial) -> Waveform:
        for suffix in (".wav", ".flac"):
            if (self._folder / f"{trial.id}{suffix}").is_file():
                return audio.read(self._folder / f"{trial.id}{suffix}")
        raise AudioError(f"{self._folder / trial.id}.wav: no such take")


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
