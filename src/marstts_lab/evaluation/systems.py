"""Systems to score: models, folders of takes, and the bounds that they are compared with.

Upstream: `metrics.trial.Trial`.  Downstream: `score`.

`ground-truth` is the recording of the test text. `codec-resynthesis` is the same recording, encoded and decoded: an
upper bound for every model with this codec. `espeak-ng` is a lower bound for speaker similarity. Every other system
is a model, or a folder of `<trial id>.wav` of any origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import TIMBRE, Codec, timbre_encoders, with_timbre
from marstts.errors import AudioError, DataError
from marstts.io.reading import printable_name
from marstts_lab.data.corpora import tts_engines as engines
from marstts_lab.evaluation.testset import folder_digest, take_seed
from marstts_lab.metrics.trial import Trial

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer

TAKE_SUFFIXES = (".wav", ".flac")
ESPEAK_VOICE = "espeak-klatt4"
"""The most intelligible voice of espeak-ng."""

GROUND_TRUTH, CODEC_RESYNTHESIS = "ground-truth", "codec-resynthesis"


class System(Protocol):
    """A speech synthesizer, or another source of takes."""

    @property
    def name(self) -> str:
        """Name of the table's row and of the takes' folder."""
        ...

    @property
    def version(self) -> str:
        """Identifies the model and its settings; another version may generate other takes."""
        ...

    @property
    def model(self) -> str:
        """`NAME@REVISION` of the model that speaks, or whose codec it is; empty where there is none."""
        ...

    @property
    def timed(self) -> bool:
        """Whether `speak` generates the take, so that its time is the system's."""
        ...

    def speak(self, trial: Trial) -> Waveform:
        """The take; raises a MarsError, in one sentence, where there is none."""
        ...


class GroundTruth:
    """The ground-truth recordings themselves."""

    name = GROUND_TRUTH
    version = GROUND_TRUTH
    model = ""
    timed = False

    def speak(self, trial: Trial) -> Waveform:
        """The recording of the trial's text."""
        return audio.read(ground_truth_of(trial))


class CodecResynthesis:
    """The ground-truth recordings encoded and decoded by a codec, cut to their length.

    A decoder that is conditioned on a timbre embedding gets that of the trial's reference, as in synthesis.
    """

    name = CODEC_RESYNTHESIS
    timed = False

    def __init__(self, codec: Codec, model: str = "") -> None:
        self.model = model
        self._codec, self._timbre_encoder = codec, timbre_encoders(codec).get(TIMBRE)
        names = [codec.spec.name] if self._timbre_encoder is None else [codec.spec.name, self._timbre_encoder.name]
        self.version = " ".join(names)

    def speak(self, trial: Trial) -> Waveform:
        """The resynthesized recording of the trial's text."""
        encoder = self._timbre_encoder
        timbre = None if encoder is None else encoder.embed(audio.read(trial.reference))
        return resynthesize(with_timbre(self._codec, timbre), audio.read(ground_truth_of(trial)))


class Clone(str, Enum):
    """Kinds of clones, as in the paper."""

    SHALLOW = "shallow"
    """Conditioned on embeddings of the reference alone."""

    DEEP = "deep"
    """Continued from the codes and the transcript of the reference."""


class Variant(str, Enum):
    """Ablations of a model, as in the paper's Table I."""

    NO_RAS = "no-ras"
    """No repetition-aware sampling (Sec. IV-B1)."""

    NO_QUALITY_PREFIX = "no-quality-prefix"
    """No quality prefix (Sec. IV-B2)."""


def ablate(synthesizer: Synthesizer, variant: Variant) -> Synthesizer:
    """The synthesizer without the part that the variant names; DataError where it has no such part."""
    session = synthesizer.session
    model: Any = session.model
    if variant is Variant.NO_RAS:
        sampling = model.sampling.model_copy(update={"ras_max_ratio": 1.0})
        return replace(synthesizer, session=replace(session, model=replace(model, sampling=sampling)))
    if not hasattr(model, "quality_prefix_hz"):
        raise DataError(f"{session.name}: models of architecture {model.architecture} have no quality prefix")
    return replace(synthesizer, session=replace(session, model=replace(model, quality_prefix_hz=None)))


class Model:
    """A synthesizer that clones each trial's reference. `name` and `version` are those of the model."""

    timed = True

    def __init__(self, synthesizer: Synthesizer, name: str, version: str, *, clone: Clone, seed: int) -> None:
        self.name = f"{name} ({clone.value})"
        self.model = synthesizer.session.label
        self.version = f"{version} {clone.value} seed {seed}"
        self._synthesizer = synthesizer
        self._clone = clone
        self._seed = seed

    def speak(self, trial: Trial) -> Waveform:
        """The trial's text in the voice of its reference; DataError for a deep clone without a transcript."""
        transcript = trial.reference_transcript if self._clone is Clone.DEEP else None
        if transcript == "":
            raise DataError(
                f"{printable_name(trial.reference.name)}: has no transcript, which a deep clone continues from"
            )
        voice = self._synthesizer.clone(trial.reference, transcript)
        return self._synthesizer.speak(trial.text, voice=voice, seed=take_seed(self._seed, trial.id)).waveform


class EspeakNg:
    """espeak-ng reads every text in one fixed voice, independent of the reference."""

    name = "espeak-ng"
    version = "espeak-ng, en-us+klatt4"
    model = ""
    timed = True

    def __init__(self) -> None:
        engines.check_installed((ESPEAK_VOICE,))

    def speak(self, trial: Trial) -> Waveform:
        """The trial's text."""
        return engines.espeak(trial.text, engines.BASE_VOICES[ESPEAK_VOICE], 1.0, 1.0)


class TakesFolder:
    """Takes in a folder, as `<trial id>.wav` or `.flac`."""

    model = ""
    timed = False

    def __init__(self, folder: Path, label: str = "") -> None:
        if not folder.is_dir():
            raise DataError(f"{printable_name(folder)}: expected a folder with one <trial id>.wav per trial")
        self.name = label or folder.resolve().name
        self.version = folder_digest(folder, TAKE_SUFFIXES)
        self._folder = folder

    def speak(self, trial: Trial) -> Waveform:
        """The take in the folder; AudioError where there is none."""
        for suffix in TAKE_SUFFIXES:
            if (self._folder / f"{trial.id}{suffix}").is_file():
                return audio.read(self._folder / f"{trial.id}{suffix}")
        raise AudioError(f"{printable_name(self._folder / trial.id)}.wav: no such take")

    def warnings(self, trials: Sequence[Trial]) -> list[str]:
        """Takes of no trial, and takes that exist twice, counted and named; empty if there are none."""
        files = sorted(path.name for path in self._folder.iterdir() if path.suffix in TAKE_SUFFIXES)
        ids = {trial.id for trial in trials}
        extra = [printable_name(name) for name in files if Path(name).stem not in ids]
        stems = [Path(name).stem for name in files]
        twice = sorted({f"{stem}.wav, {stem}.flac" for stem in stems if stem in ids and stems.count(stem) > 1})
        found = []
        if extra:
            found.append(f"{len(extra)} takes belong to no trial and were ignored: {list_names(extra)}")
        if twice:
            found.append(f"{len(twice)} takes exist twice; the .wav was scored: {list_names(twice)}")
        return found


def list_names(names: Sequence[str], most: int = 10) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def ground_truth_of(trial: Trial) -> Path:
    """The ground-truth recording of a trial; DataError where there is none."""
    if trial.ground_truth is None:
        raise DataError(f"{trial.id}: the test set has no recording of this text, only a reference")
    return trial.ground_truth


def resynthesize(codec: Codec, waveform: Waveform) -> Waveform:
    """The waveform encoded and decoded, at the codec's rate, without the padding to whole patches."""
    original = audio.resample(waveform, codec.spec.sample_rate)
    decoded = codec.decode(codec.encode(original))
    return Waveform(decoded.samples[: len(original.samples)], decoded.sample_rate)
