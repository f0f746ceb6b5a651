"""The terms of the codec's loss.

Upstream: `losses`, `recognizer_loss`, `envelope`, `codec.mini_model` (quantization), which compute them.
Downstream: `task`, which minimizes their weighted sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self, cast

import torch
from torch import Tensor

from marstts.codec.mini_model import CodecOutput, MiniCodecModel
from marstts.errors import ConfigError
from marstts.io.precision import autocast
from marstts_lab.training.codec.config import (
    BETAS,
    DISCRIMINATOR_GRAD_CLIP_NORM,
    AdversarialConfig,
    CodecTrainingConfig,
    Stage,
)
from marstts_lab.training.codec.envelope import EnvelopeConfig, envelope_loss
from marstts_lab.training.codec.frozen import FrozenNetworks
from marstts_lab.training.codec.generated_codes import GeneratedCodesConfig
from marstts_lab.training.codec.losses import (
    Discriminators,
    FeaturePrediction,
    FeaturePredictionConfig,
    SpeakerConsistencyConfig,
    crops,
    discriminator_loss,
    f0_error_semitones,
    f0_loss,
    generator_loss,
    weighted_errors,
)
from marstts_lab.training.codec.recognizer_loss import RecognizerConfig
from marstts_lab.training.codec.segments import SegmentBatch
from marstts_lab.training.codec.term import CodecStep, Term, ValidationStep
from marstts_lab.training.loss import Loss
from marstts_lab.training.optim import minimize

NO_TAKES = "envelope and adversarial.generated are losses of takes: add [generated_codes], or drop them"


class ReconstructionTerm(Term):
    """Spectra, F0 and, where the codes are trained, quantization."""

    def __init__(self, config: CodecTrainingConfig, networks: FrozenNetworks) -> None:
        self.config, self.distance = config, networks.spectral

    @classmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self:
        return cls(config, networks)

    def losses(self, made: CodecStep) -> Iterator[Loss]:
        config, batch, output = self.config, made.batch, made.output
        yield Loss("spectral", config.spectral_weight, self.distance(output.samples, batch.samples, made.step))
        yield Loss("f0_loss", config.f0.weight, f0_loss(output.octaves, batch.f0, batch.voiced, config.f0))
        yield Loss("quantization", float(config.stage is Stage.FULL), output.loss)

    def validate(self, made: ValidationStep) -> dict[str, Tensor]:
        batch, output, without = made.batch, made.output, made.samples_without_timbre
        scores = {
            "spectral": self.distance(output.samples, batch.samples),
            "spectral_predicted_f0": self.distance(made.samples, batch.samples),
            "f0_loss": f0_loss(output.octaves, batch.f0, batch.voiced, self.config.f0),
            "f0_error_semitones": f0_error_semitones(output.octaves, batch.f0, batch.voiced),
        }
        return (
            scores if without is None else scores | {"spectral_without_timbre": self.distance(without, batch.samples)}
        )


class FeaturePredictionTerm(Term):
    """The recognizer's last layer, as predicted by the latents and by the sums of the first levels."""

    def __init__(self, table: FeaturePredictionConfig, config: CodecTrainingConfig, networks: FrozenNetworks) -> None:
        self.weight, self.config, self.device = table.weight, config, networks.device
        model = config.model
        heads = FeaturePrediction(model.latent_width, model.recognizer_width, len(model.strides))
        self.heads = heads.to(self.device)
        self.modules, self.parameters = {"features": self.heads}, list(self.heads.parameters())

    @staticmethod
    def complaints(config: CodecTrainingConfig) -> Iterator[str]:
        if config.feature_prediction and (config.stage is Stage.DECODER or not config.model.recognizer_layers):
            yield (
                'feature_prediction trains the codes of a codec with a recognizer: set stage = "full" and '
                "model.recognizer_layers, or drop it"
            )

    @classmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self | None:
        table = config.feature_prediction
        return None if table is None else cls(table, config, networks)

    def losses(self, made: CodecStep) -> Iterator[Loss]:
        with autocast(self.device.type, self.config.precision):
            errors = self.errors(made.batch, made.output)
        yield Loss("feature_loss", self.weight, weighted_errors(errors))
        for name, error in name_errors(errors).items():
            yield Loss(name, 0.0, error)

    def errors(self, batch: SegmentBatch, output: CodecOutput) -> list[Tensor]:
        """Errors of the predicted features, of latents and levels."""
        assert output.features is not None
        width, context = self.config.model.recognizer_width, self.config.model.context_patches
        around = context * self.config.model.strides[0]
        inside = batch.inside[:, around : batch.inside.shape[1] - around]
        return cast(list[Tensor], self.heads(output.latents, output.levels, output.features[:, :, width:], inside))

    def validate(self, made: ValidationStep) -> dict[str, Tensor]:
        return name_errors(self.errors(made.batch, made.output))


def name_errors(errors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Names for the log: the features' error before quantization, then by the sum of the first levels."""
    return {"feature_error": errors[0]} | {f"feature_error{level}": one for level, one in enumerate(errors[1:])}


class RecognizerTerm(Term):
    """What a recognizer's encoder makes of the output; in the full stage the codec's encoder reads the same one."""

    def __init__(self, table: RecognizerConfig, networks: FrozenNetworks) -> None:
        self.weight, self.distance = table.weight, networks.recognizer

    @staticmethod
    def complaints(config: CodecTrainingConfig) -> Iterator[str]:
        if config.model.recognizer_layers and config.stage is Stage.FULL and config.recognizer is None:
            yield "model.recognizer_layers needs [recognizer] with the folder of that recognizer"

    @classmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self | None:
        if config.recognizer is None:
            return None
        term = cls(config.recognizer, networks)
        if model.recognizer is not None and config.stage is Stage.FULL:
            encoder = term.distance.encoder
            found = len(encoder.layers), encoder.norm.normalized_shape[0]
            if found != (config.model.recognizer_layers, config.model.recognizer_width):
                raise ConfigError(
                    f"{config.recognizer.folder}: this recognizer has {found[0]} layers of width {found[1]}; set "
                    "model.recognizer_layers and model.recognizer_width to them"
                )
            model.recognizer.load_state_dict(encoder.state_dict())
        return term

    def losses(self, made: CodecStep) -> Iterator[Loss]:
        yield Loss("recognizer_loss", self.weight, self.distance(made.output.samples, made.batch.samples))


class SpeakerConsistencyTerm(Term):
    """Speaker consistency of the output."""

    def __init__(self, table: SpeakerConsistencyConfig, networks: FrozenNetworks) -> None:
        self.weight, self.consistency = table.weight, networks.speaker

    @classmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self | None:
        table = config.speaker_consistency
        return None if table is None else cls(table, networks)

    def losses(self, made: CodecStep) -> Iterator[Loss]:
        batch = made.batch
        loss = self.consistency(made.output.samples, batch.samples, batch.people)
        yield Loss("speaker_consistency", self.weight, loss)

    def validate(self, made: ValidationStep) -> dict[str, Tensor]:
        loss = self.consistency.loss
        return {"speaker_consistency": loss.distance(made.samples, loss.embed(made.batch.samples))}


class GeneratedCodesTerm(Term):
    """Speaker consistency of decoded takes with the recordings whose voices they should have."""

    def __init__(self, table: GeneratedCodesConfig, networks: FrozenNetworks) -> None:
        self.weight, self.consistency = table.weight, networks.speaker

    @staticmethod
    def complaints(config: CodecTrainingConfig) -> Iterator[str]:
        knows_speakers = config.model.timbre_width and config.speaker_consistency
        if config.generated_codes and not (knows_speakers and config.stage is Stage.DECODER):
            yield 'generated_codes needs stage = "decoder", model.timbre_width and [speaker_consistency], its loss'

    @classmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self | None:
        table = config.generated_codes
        return None if table is None else cls(table, networks)

    def losses(self, made: CodecStep) -> Iterator[Loss]:
        batch = made.takes.batch
        loss = self.consistency(made.takes.samples, batch.target, batch.people)
        yield Loss("generated_consistency", self.weight, loss)


class FormerCodecTerm(Term):
    """Spectra and words of takes: those of the former codec's output."""

    def __init__(self, table: GeneratedCodesConfig, networks: FrozenNetworks) -> None:
        self.table, self.networks = table, networks

    @staticmethod
    def complaints(config: CodecTrainingConfig) -> Iterator[str]:
        takes = config.generated_codes
        if takes and bool(takes.former) != bool(takes.spectral_weight or takes.recognizer_weight):
            yield (
                "generated_codes.former, the codec that takes are held to, needs spectral_weight or recognizer_weight, "
                "and they need it"
            )
        if takes and takes.recognizer_weight and config.recognizer is None:
            yield "generated_codes.recognizer_weight needs [recognizer] with the folder of a recognizer"

    @classmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self | None:
        table = config.generated_codes
        return None if table is None or not table.former else cls(table, networks)

    def losses(self, made: CodecStep) -> Iterator[Loss]:
        table, takes, own = self.table, made.takes, made.takes.batch.is_own
        assert takes.former is not None
        if table.spectral_weight and own.any():
            distance = self.networks.spectral(takes.samples[own], takes.former[own], made.step)
            yield Loss("generated_spectral", table.spectral_weight, distance)
        if table.recognizer_weight:
            distance = self.networks.recognizer(takes.samples, takes.former)
            yield Loss("generated_words", table.recognizer_weight, distance)


class EnvelopeTerm(Term):
    """The long-term spectrum of takes: that of the reference in whose voice they are."""

    def __init__(self, table: EnvelopeConfig, networks: FrozenNetworks) -> None:
        self.weight, self.speaker = table.weight, networks.speaker

    @staticmethod
    def complaints(config: CodecTrainingConfig) -> Iterator[str]:
        if config.envelope and config.generated_codes is None:
            yield NO_TAKES

    @classmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self | None:
        return None if config.envelope is None else cls(config.envelope, networks)

    def losses(self, made: CodecStep) -> Iterator[Loss]:
        wanted = self.speaker.targets.envelopes(made.takes.batch.recordings)
        loss = envelope_loss(self.speaker.loss.log_mel(made.takes.samples), wanted)
        yield Loss("envelope", self.weight, loss)


class AdversarialTerm(Term):
    """The discriminators' scores and features of the output, and their own training."""

    def __init__(self, table: AdversarialConfig, config: CodecTrainingConfig, networks: FrozenNetworks) -> None:
        self.table, self.precision, self.device = table, config.precision, networks.device
        self.discriminators = Discriminators(table.fft_sizes, table.channels).to(self.device)
        self.optimizer = torch.optim.AdamW(self.discriminators.parameters(), table.learning_rate, betas=BETAS)
        self.modules, self.optimizers = {"discriminators": self.discriminators}, {"discriminators": self.optimizer}

    @staticmethod
    def complaints(config: CodecTrainingConfig) -> Iterator[str]:
        table = config.adversarial
        if table and table.generated and config.generated_codes is None:
            yield NO_TAKES
        if table and table.pretraining_steps >= config.loop.steps:
            yield (
                f"adversarial.pretraining_steps is {table.pretraining_steps}, but the stage has {config.loop.steps} "
                "steps, these included; raise loop.steps"
            )

    @classmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self | None:
        return None if config.adversarial is None else cls(config.adversarial, config, networks)

    def train_own(self, made: CodecStep) -> dict[str, Tensor]:
        """Train the discriminator of this step, in pretraining all, on crops of the output and the recordings."""
        table, step, fakes = self.table, made.step, made.output.samples.detach()
        if table.generated:
            fakes = torch.cat([fakes, made.takes.samples.detach()])
        pretrains = step < table.pretraining_steps
        members = list(self.discriminators.members) if pretrains else [self.discriminators.of_step(step)]
        (fakes,), (real,) = (crops(step, table.crop_samples, samples) for samples in (fakes, made.batch.samples))
        with autocast(self.device.type, self.precision):
            loss = torch.stack([discriminator_loss(member, fakes, real) for member in members]).mean()
        rate = table.pretraining_learning_rate if pretrains else table.learning_rate
        minimize(self.optimizer, loss, rate, DISCRIMINATOR_GRAD_CLIP_NORM)
        return {"discriminator_loss": loss.detach()}

    def losses(self, made: CodecStep) -> Iterator[Loss]:
        table, step = self.table, made.step
        cropped = crops(step, table.crop_samples, made.output.samples, made.batch.samples)
        self.discriminators.requires_grad_(False)
        discriminator = self.discriminators.of_step(step)
        with autocast(self.device.type, self.precision):
            loss, features = generator_loss(discriminator, *cropped)
            if table.generated:
                (takes,) = crops(step + 1, table.crop_samples, made.takes.samples)
                loss = (loss - discriminator(takes)[0].float().mean()) / 2
        self.discriminators.requires_grad_(True)
        yield Loss("adversarial", table.weight, loss)
        yield Loss("feature_matching", table.feature_matching_weight, features)


TERMS: tuple[type[Term], ...] = (
    ReconstructionTerm,
    FeaturePredictionTerm,
    RecognizerTerm,
    SpeakerConsistencyTerm,
    GeneratedCodesTerm,
    FormerCodecTerm,
    EnvelopeTerm,
    AdversarialTerm,
)
"""All terms, in the order in which they are added."""


def build_terms(config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> list[Term]:
    """The terms that are configured, in their order.

    The last is built first: initial weights are drawn for discriminators before those for feature prediction.
    """
    built = [term.build(config, model, networks) for term in reversed(TERMS)]
    return [term for term in reversed(built) if term is not None]
