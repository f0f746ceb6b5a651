"""Validation of a model in preference training: metrics of generated takes, and the rule by which the best is kept.

The rule (`best_of`): a validation counts if its speaker similarity is not below the lower end of the 95 % interval of
the initial model, and no more of its takes fail. The best of those that count has the lowest character error rate; the
initial model is one of them. So fewer word errors are never traded for the voice, and where no step is better, the
initial weights are kept.

Upstream: a test set (`evaluation.testset`), a bundle's codec and encoders.  Downstream: `training.mars6.orpo`, which
calls it.  In the run folder: `validation.jsonl` (one line per validation), and `best/`, the checkpoint to export.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from marstts.audio import Waveform
from marstts.bundle import Bundle
from marstts.codec.base import TIMBRE, with_timbre
from marstts.errors import MissingExtraError
from marstts.generation.loop import generate
from marstts.generation.request import Generated, Prompt, StopReason
from marstts.generation.speech_model import SpeechModel
from marstts.io.config import Config
from marstts.io.jsonl import read_rows, write_rows
from marstts.speaker.base import cosine
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.clone import ReferenceWarning, clone
from marstts.text.normalize import normalize
from marstts.voice import Voice
from marstts_lab.evaluation.testset import take_seed
from marstts_lab.metrics.identity import Embedding, level
from marstts_lab.metrics.intervals import Interval, ratio_interval
from marstts_lab.metrics.length import LengthStatus, check_length, expected_seconds
from marstts_lab.metrics.panel import missing_packages
from marstts_lab.metrics.recognition import check_recognizer, open_recognizer
from marstts_lab.metrics.take_metrics import NO_SIMILARITY, score_words
from marstts_lab.metrics.trial import Trial
from marstts_lab.metrics.words import plain_words
from marstts_lab.preference.scoring import IDENTITY, decode

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger(__name__)

VALIDATION_FILE = "validation.jsonl"

OpenModel = Callable[[Any], SpeechModel]
"""Makes a speech model of a module in training."""


class ValidationConfig(Config):
    """Validation of the model: always the same sentences with the same seeds, one attempt each."""

    sentences: int = Field(40, gt=0)
    """The first trials of the test set."""

    recognizer: str = "faster-whisper"

    top_p: float | None = Field(None, ge=0.0, le=1.0)
    """Top-p of all takes (default: the first attempt of the model's backoff)."""

    seed: int = Field(0, ge=0)


class TakeResult(Config):
    """The metrics of one take."""

    character_errors: int
    characters: int
    similarity: float

    length_ratio: float
    """Seconds, relative to the expected length of the text."""

    has_repetition: bool
    """True where words occur twice in a row in the transcript and not in the text."""

    is_empty: bool
    too_long_or_no_eos: bool

    @property
    def failed(self) -> bool:
        return self.has_repetition or self.is_empty or self.too_long_or_no_eos


class ValidationResult(Config):
    """One line of `validation.jsonl`: the metrics of the model at one step. Intervals: 95 %, over sentences."""

    step: int = Field(ge=0)
    cer: float
    cer_interval: tuple[float, float]
    similarity: float
    similarity_interval: tuple[float, float]
    length_ratio: float

    repetition_rate: float
    """Fraction of takes with a repetition."""

    failure_rate: float
    """Fraction of takes that are empty, too long, without end of speech, or have a repetition."""

    takes: int

    @property
    def summary(self) -> dict[str, float]:
        """The metrics without their intervals, as they are logged."""
        names = ("cer", "similarity", "length_ratio", "repetition_rate", "failure_rate")
        return {name: getattr(self, name) for name in names}


class Validator:
    """A test set and its metrics, for any model with the same codec and encoders."""

    def __init__(self, bundle: Bundle, trials: Sequence[Trial], config: ValidationConfig) -> None:
        """Clone every reference once (shallow), as in synthesis."""
        self.bundle, self.config = bundle, config
        self.trials = trials[: config.sentences]
        self.recognizer = open_recognizer(config.recognizer)
        self.backoff = BackoffConfig()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReferenceWarning)
            self.voices: list[Voice] = [
                clone(
                    trial.reference,
                    codec=bundle.codec,
                    encoders=bundle.voice_encoders,
                    keep_reference=False,
                    min_speech_ratio=0.0,  # test sets hold recordings of speech
                )
                for trial in self.trials
            ]

    def validate(self, model: SpeechModel, step: int) -> ValidationResult:
        """Generate and score every sentence."""
        top_p = model.sampling.top_p if self.config.top_p is None else self.config.top_p
        rate = self.bundle.codec.spec.patch_rate
        texts = [normalize(trial.text) for trial in self.trials]
        rngs = [np.random.default_rng(take_seed(self.config.seed, trial.id)) for trial in self.trials]
        prompts = [model.prompt(text, voice) for text, voice in zip(texts, self.voices, strict=True)]
        takes = generate(
            model.engine,
            prompts,
            top_p=[top_p] * len(texts),
            limits=[self.backoff.limits(text, rate) for text in texts],
            rngs=rngs,
            sampling=model.sampling,
        )
        results = [
            self.score_take(trial, voice.embeddings[IDENTITY], take, self.decode(model, voice, take, rng, prompt))
            for trial, voice, take, rng, prompt in zip(self.trials, self.voices, takes, rngs, prompts, strict=True)
        ]
        return summarize(step, results)

    def decode(
        self, model: SpeechModel, voice: Voice, take: Generated, rng: np.random.Generator, prompt: Prompt
    ) -> Waveform:
        """The audio of a take."""
        codec = with_timbre(self.bundle.codec, voice.embeddings.get(TIMBRE))
        return decode(codec, model.codes(take.tokens, rng, prompt))

    def score_take(self, trial: Trial, reference: Embedding, take: Generated, waveform: Waveform) -> TakeResult:
        """The metrics of one take; a take without speech gets the worst of each."""
        expected = expected_seconds(trial.text)
        status = check_length(waveform, expected)
        speech = waveform if status.has_speech else None
        words = score_words(self.recognizer, plain_words(trial.text), speech)
        return TakeResult(
            character_errors=words.character_errors,
            characters=words.characters,
            similarity=NO_SIMILARITY if speech is None else self.similarity(speech, reference),
            length_ratio=waveform.seconds / expected,
            has_repetition=words.has_repetition,
            is_empty=speech is None,
            too_long_or_no_eos=status is LengthStatus.TOO_LONG or take.stop is StopReason.MAX_PATCHES,
        )

    def similarity(self, speech: Waveform, reference: Embedding) -> float:
        """Cosine to the embedding of the prompt, by the bundle's identity encoder."""
        return cosine(self.bundle.encoders[IDENTITY].embed(level(speech)), reference)


def check_validation(config: ValidationConfig) -> None:
    """ConfigError or MissingExtraError where the metrics cannot be computed: before any model is loaded."""
    if missing := missing_packages([check_recognizer(config.recognizer)]):
        raise MissingExtraError("; ".join(missing))


def summarize(step: int, takes: Sequence[TakeResult]) -> ValidationResult:
    """The result over all takes; intervals by bootstrap over sentences."""
    cer = interval([take.character_errors for take in takes], [take.characters for take in takes])
    similarity = interval([take.similarity for take in takes], [1.0] * len(takes))
    return ValidationResult(
        step=step,
        cer=cer.value,
        cer_interval=(cer.low, cer.high),
        similarity=similarity.value,
        similarity_interval=(similarity.low, similarity.high),
        length_ratio=float(np.mean([take.length_ratio for take in takes])),
        repetition_rate=float(np.mean([take.has_repetition for take in takes])),
        failure_rate=float(np.mean([take.failed for take in takes])),
        takes=len(takes),
    )


def interval(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Ratio of two sums over takes."""
    found = ratio_interval(numerators, denominators)
    assert found is not None, "a test set has trials, and trials have words"
    return found


def disqualification(validation: ValidationResult, initial: ValidationResult) -> str | None:
    """The reason why a validation does not count, compared with that of the initial model; None if it counts."""
    lowest = initial.similarity_interval[0]
    if validation.similarity < lowest:
        return f"similarity {validation.similarity:.3f} is below {lowest:.3f}, the interval of the initial model"
    if validation.failure_rate > initial.failure_rate:
        return f"{validation.failure_rate:.0%} of its takes fail, instead of {initial.failure_rate:.0%}"
    return None


def best_of(validations: Sequence[ValidationResult]) -> ValidationResult:
    """The best by the rule above, the earlier one of equals; the first of `validations` is the initial model."""
    counted = [validation for validation in validations if disqualification(validation, validations[0]) is None]
    return min(counted, key=lambda validation: (validation.cer, validation.step))


class BestCheckpointKeeper:
    """Validates a model in training, records the results, and keeps the best weights: an `orpo.ValidateModel`."""

    def __init__(self, folder: Path, validator: Validator, open_model: OpenModel) -> None:
        """Resume from the validations in the run folder, if there are any."""
        self.folder, self.validator, self.open_model = folder, validator, open_model
        path = folder / VALIDATION_FILE
        found = read_rows(ValidationResult, path) if path.is_file() else []
        self.validations = {validation.step: validation for validation in found}

    def __call__(self, module: nn.Module, step: int) -> Mapping[str, float]:
        """Validate the module as it is at `step`; 0 is the initial model."""
        validation = self.validator.validate(self.open_model(module), step)
        self.validations[step] = validation
        ordered = self.ordered
        reason = disqualification(validation, ordered[0])
        if reason is not None:
            log.info("step %d does not count: %s", step, reason)
        if best_of(ordered) is validation:
            self.save_best(module, step)
        write_rows(self.folder / VALIDATION_FILE, ordered)  # last: a run killed before this line validates again
        return validation.summary

    @property
    def ordered(self) -> list[ValidationResult]:
        """All validations by step."""
        return [self.validations[step] for step in sorted(self.validations)]

    @property
    def has_begun(self) -> bool:
        """Return True where the initial model was validated."""
        return 0 in self.validations

    @property
    def best(self) -> ValidationResult:
        """The best so far."""
        return best_of(self.ordered)

    def save_best(self, module: nn.Module, step: int) -> None:
        """Write the checkpoint `best/`, which replaces the one before when it is complete."""
        from marstts_lab.training.checkpoint import BEST, Weights, save  # needs PyTorch
        from marstts_lab.training.mars6.run_folder import EMA

        save(Weights({EMA: module}), self.folder, step, name=BEST)
