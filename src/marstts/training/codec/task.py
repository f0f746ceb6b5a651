"""Training of the mini codec: waveforms in, a codec that makes use of all its levels out.

Upstream: `segments`.  Downstream: the run folder (`training.loop`), `export`.
There are two stages with a configuration each. The full stage trains everything. The decoder stage trains the decoder
alone: encoder and codebooks, and so every token made before, stay as they are. Both are trained on spectra and F0;
discriminators may be added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marstts.codec.mini_model import CodecOutput, MiniCodecModel
from marstts.errors import ConfigError
from marstts.io.config import write_config
from marstts.io.precision import autocast
from marstts.training.checkpoint import check_same_model, latest
from marstts.training.codec.config import (
    BETAS,
    DISCRIMINATOR_GRAD_CLIP_NORM,
    GRAD_CLIP_NORM,
    WEIGHT_DECAY,
    CodecTrainingConfig,
    Stage,
)
from marstts.training.codec.envelope import envelope_loss
from marstts.training.codec.export import CONFIG_FILE, load_codec
from marstts.training.codec.generated_codes import GeneratedBatch, GeneratedCodes
from marstts.training.codec.losses import (
    Discriminators,
    FeaturePrediction,
    SpeakerConsistencyLoss,
    SpeakerEmbedding,
    SpectralLoss,
    crops,
    discriminator_loss,
    f0_error_semitones,
    f0_loss,
    generator_loss,
    weighted_errors,
)
from marstts.training.codec.recognizer_loss import RecognizerLoss
from marstts.training.codec.recordings import HeardRecordings, Recording
from marstts.training.codec.segments import Manifests, SegmentBatch, Segments
from marstts.training.distributed import pick_device, require_one_process
from marstts.training.optim import learning_rate, minimize
from marstts.training.run_log import CORRUPT_FILE

RESET_EVERY, DEAD_CODE_USAGE = 25, 0.03
"""Codes that are used less than this ratio of the mean are reset to fresh latents, once in this many steps. Without it,
codebooks collapse to a few dozen entries within the first fifty steps."""

USAGE_DECAY, RESET_USAGE = 0.97, 0.3
"""Decay of the running usage of codes, and the usage that a code starts with when it was reset."""

CODE_SIZES = ("sample_rate", "hop", "strides", "codebook_size")
"""What codecs with the same codes have in common."""

RESET_NOISE = 0.02
"""Standard deviation of the noise on reset codes."""


@dataclass(frozen=True)
class DecodedTakes:
    """Generated codes of a step, decoded."""

    batch: GeneratedBatch

    samples: Tensor
    """(B, N)."""

    former: Tensor | None
    """(B, N), what the former codec makes of them in their own voices, if there is one."""


@dataclass(frozen=True)
class CodecStep:
    """What the losses of a step are computed from."""

    step: int
    batch: SegmentBatch
    output: CodecOutput
    takes: DecodedTakes | None


class Loss(NamedTuple):
    """One term of the loss: a scalar that is logged, and minimized where its weight is above 0."""

    name: str
    weight: float
    value: Tensor


LossFunction = Callable[[CodecStep], Iterable[Loss]]
"""The terms that belong together, such as those of the discriminators."""


class CodecTask:
    """The `training.loop.Task` of the codec."""

    def __init__(
        self, config: CodecTrainingConfig, manifests: Manifests, device: str = "cpu", corrupt: Path | None = None
    ) -> None:
        """`corrupt`: the file that lists recordings of the manifests that cannot be used."""
        check_options(config)
        require_one_process("a codec")
        torch.manual_seed(config.loop.seed)
        self.config, self.device = config, pick_device(device)
        self.model = MiniCodecModel(config.model).to(self.device)
        self.spectral = SpectralLoss(config.model.sample_rate).to(self.device)
        trained = self.model.decoder if config.stage is Stage.DECODER else self.model
        self.model.requires_grad_(trained is self.model)
        trained.requires_grad_(True)
        if self.model.recognizer is not None:
            self.model.recognizer.requires_grad_(False)
        if config.freeze_timbre and trained is not self.model:
            self.model.decoder.pitch.requires_grad_(False)
        parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
        if self.model.timbre_encoder is not None and trained is not self.model and not config.freeze_timbre:
            for part in (self.model.timbre_encoder, self.model.timbre_speaker):
                if part is not None:
                    parameters += list(part.requires_grad_(True).parameters())
        self.optimizer = torch.optim.AdamW(
            parameters, config.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )
        self.modules: dict[str, nn.Module] = {"codec": self.model}
        self.optimizers: dict[str, torch.optim.Optimizer] = {"codec": self.optimizer}
        self.discriminators = self.add_discriminators()
        self.feature_prediction = self.add_feature_prediction()
        self.recognizer = self.add_recognizer()
        self.speaker_consistency = self.add_speaker_consistency()
        self.timbre_speaker = self.add_timbre_speaker()
        self.heard = self.heard_by_timbre = self.hear(self.speaker_consistency)
        if self.timbre_speaker is not self.speaker_consistency:
            self.heard_by_timbre = self.hear(self.timbre_speaker)
        self.segments = Segments(manifests, config, corrupt)
        self.generated_codes = self.read_generated_codes()
        self.former = self.open_former()
        self.losses = self.loss_functions()

    def loss_functions(self) -> list[LossFunction]:
        """The terms of the loss that are configured, in the order in which they are added."""
        optional: list[tuple[object, LossFunction]] = [
            (self.feature_prediction, self.feature_losses),
            (self.recognizer, self.recognizer_losses),
            (self.speaker_consistency, self.consistency_losses),
            (self.generated_codes, self.generated_losses),
            (self.former, self.former_losses),
            (self.config.envelope, self.envelope_losses),
            (self.discriminators, self.adversarial_losses),
        ]
        return [self.reconstruction_losses, *(loss for part, loss in optional if part is not None)]

    def add_discriminators(self) -> Discriminators | None:
        """Discriminators and their optimizer, if configured."""
        adversarial = self.config.adversarial
        if adversarial is None:
            return None
        discriminators = Discriminators(adversarial.fft_sizes, adversarial.channels)
        self.modules["discriminators"] = discriminators.to(self.device)
        self.optimizers["discriminators"] = torch.optim.AdamW(
            discriminators.parameters(), adversarial.learning_rate, betas=BETAS
        )
        return discriminators

    def add_feature_prediction(self) -> FeaturePrediction | None:
        """Networks that predict the recognizer's features, trained with the codec, if configured."""
        if self.config.feature_prediction is None:
            return None
        model = self.config.model
        heads = FeaturePrediction(model.latent_width, model.recognizer_width, len(model.strides)).to(self.device)
        self.modules["features"] = heads
        self.optimizer.add_param_group({"params": list(heads.parameters())})
        return heads

    def add_recognizer(self) -> RecognizerLoss | None:
        """The loss with its frozen recognizer, if configured; in the full stage the encoder reads the same one."""
        config, own = self.config, self.model.recognizer
        if config.recognizer is None:
            return None
        loss = RecognizerLoss(config.recognizer, config.model.sample_rate)
        if own is not None and config.stage is Stage.FULL:
            found = len(loss.encoder.layers), loss.encoder.norm.normalized_shape[0]
            if found != (config.model.recognizer_layers, config.model.recognizer_width):
                raise ConfigError(
                    f"{config.recognizer.folder}: this recognizer has {found[0]} layers of width {found[1]}; set "
                    "model.recognizer_layers and model.recognizer_width to them"
                )
            own.load_state_dict(loss.encoder.state_dict())
        return loss.to(self.device)

    def add_speaker_consistency(self) -> SpeakerConsistencyLoss | None:
        """The loss with its frozen encoder, if configured."""
        config = self.config.speaker_consistency
        return None if config is None else SpeakerConsistencyLoss(config, self.config.model.sample_rate).to(self.device)

    def add_timbre_speaker(self) -> SpeakerEmbedding | None:
        """The frozen encoder that the timbre embeddings depend on, if configured."""
        config, size = self.config.timbre_speaker, self.config.model.timbre_speaker_size
        if config is None:
            return None
        shared = self.config.speaker_consistency
        encoder: SpeakerEmbedding | None = self.speaker_consistency
        if encoder is None or shared is None or shared.encoder != config.encoder:
            encoder = SpeakerEmbedding(config.encoder, self.config.model.sample_rate)
        if encoder.encoder.config.size != size:
            raise ConfigError(
                f"{config.encoder}: this encoder has embeddings of length {encoder.encoder.config.size}; set "
                f"model.timbre_speaker_size to that, not to {size}"
            )
        return encoder.to(self.device)

    def hear(self, encoder: SpeakerEmbedding | None) -> HeardRecordings | None:
        """Whole recordings as an encoder hears them, if there is one."""
        return None if encoder is None else HeardRecordings(encoder, self.config.model.sample_rate, self.device)

    def open_former(self) -> MiniCodecModel | None:
        """The codec whose output the takes are held to, if configured; it has the same codes."""
        config = self.config.generated_codes
        if config is None or not config.former:
            return None
        former = load_codec(Path(config.former)).to(self.device).eval().requires_grad_(False)
        sizes = {name: getattr(self.config.model, name) for name in CODE_SIZES}
        if {name: getattr(former.config, name) for name in CODE_SIZES} != sizes:
            raise ConfigError(f"{config.former}: the former codec has other codes; expected {sizes}")
        if former.config.timbre_speaker_size not in (0, self.config.model.timbre_speaker_size):
            raise ConfigError(f"{config.former}: the former codec's timbre depends on another speaker encoder")
        return former

    def read_generated_codes(self) -> GeneratedCodes | None:
        """The takes of a model, if configured."""
        config = self.config
        if config.generated_codes is None:
            return None
        return GeneratedCodes(config.generated_codes, config.model, config.segment_patches, config.loop.seed)

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update of the discriminators, if any, and one of the codec, except in the discriminators' pretraining."""
        config, pretraining = self.config, self.pretraining_steps
        with torch.set_grad_enabled(step >= pretraining):
            made = self.reconstruct_step(step)
        output = made.output
        scores: dict[str, float | Tensor] = {}
        if self.discriminators is not None:
            scores |= self.discriminator_step(self.discriminators, made)
        if step < pretraining:
            return scores
        terms = [term for losses in self.losses for term in losses(made)]
        loss = cast(Tensor, sum(term.weight * term.value for term in terms if term.weight))
        rate = learning_rate(step - pretraining, config.loop.steps - pretraining, config.schedule)
        minimize(self.optimizer, loss, rate, GRAD_CLIP_NORM)
        if config.stage is Stage.FULL:
            self.reset_dead_codes(output.codes, output.latents.detach(), step)
        usage = (perplexity(codes, config.model.codebook_size) for codes in output.codes)
        scores |= {f"perplexity{level}": value for level, value in enumerate(usage)}
        return scores | {term.name: term.value.detach() for term in terms}

    @property
    def pretraining_steps(self) -> int:
        """First steps, in which the discriminators alone are trained."""
        return 0 if self.config.adversarial is None else self.config.adversarial.pretraining_steps

    def reconstruct_step(self, step: int) -> CodecStep:
        """The output for recordings and takes of a step."""
        batch = self.segments.train(step).to(self.device)
        with autocast(self.device.type, self.config.precision):
            timbre = self.timbre_of(batch.reference, batch.recordings)
            factors = self.frequency_factors(timbre)
            output = self.model(batch.around, batch.f0, timbre, factors, batch.inside)
            return CodecStep(step, batch, output, self.decode_takes(step))

    def decode_takes(self, step: int) -> DecodedTakes | None:
        """The takes of a step, decoded; those in their own voices with the F0 of the former codec, if there is one."""
        if self.generated_codes is None:
            return None
        batch, former, pitch = self.generated_codes.train(step).to(self.device), None, None
        if self.former is not None:
            with torch.no_grad():
                speaker = None
                if self.former.timbre_speaker is not None:
                    speaker = self.speaker_embeddings(batch.own_reference, batch.own_recordings)
                timbre = self.former.timbre_of(batch.own_reference, speaker)
                pitch = self.former.predict_pitch(batch.codes, timbre)
                former = self.former.decode(batch.codes, timbre, pitch).float()
                pitch = pitch * batch.is_own[:, None]
        timbre = self.whole_timbre(batch.reference, batch.recordings)
        return DecodedTakes(batch, self.model.decode(batch.codes, timbre, pitch), former)

    def reconstruction_losses(self, made: CodecStep) -> Iterator[Loss]:
        """Spectra, F0 and, where the codes are trained, quantization."""
        config, batch, output = self.config, made.batch, made.output
        yield Loss("spectral", config.spectral_weight, self.spectral(output.samples, batch.samples, made.step))
        yield Loss("f0_loss", config.f0.weight, f0_loss(output.octaves, batch.f0, batch.voiced, config.f0))
        yield Loss("quantization", float(config.stage is Stage.FULL), output.loss)

    def feature_losses(self, made: CodecStep) -> Iterator[Loss]:
        """The recognizer's last layer by the latents and by the sums of the first levels."""
        assert self.feature_prediction is not None and self.config.feature_prediction is not None
        with autocast(self.device.type, self.config.precision):
            errors = self.feature_errors(self.feature_prediction, made.batch, made.output)
        yield Loss("feature_loss", self.config.feature_prediction.weight, weighted_errors(errors))
        for name, error in name_errors(errors).items():
            yield Loss(name, 0.0, error)

    def feature_errors(self, heads: FeaturePrediction, batch: SegmentBatch, output: CodecOutput) -> list[Tensor]:
        """Errors of the predicted features, of latents and levels."""
        assert output.features is not None
        width, context = self.config.model.recognizer_width, self.config.model.context_patches
        around = context * self.config.model.strides[0]
        inside = batch.inside[:, around : batch.inside.shape[1] - around]
        return cast(list[Tensor], heads(output.latents, output.levels, output.features[:, :, width:], inside))

    def recognizer_losses(self, made: CodecStep) -> Iterator[Loss]:
        """What a recognizer's encoder makes of the output."""
        assert self.recognizer is not None and self.config.recognizer is not None
        loss = self.recognizer(made.output.samples, made.batch.samples)
        yield Loss("recognizer_loss", self.config.recognizer.weight, loss)

    def consistency_losses(self, made: CodecStep) -> Iterator[Loss]:
        """Speaker consistency of the output."""
        assert self.speaker_consistency is not None and self.config.speaker_consistency is not None
        batch = made.batch
        loss = self.consistency(made.output.samples, batch.samples, batch.people)
        yield Loss("speaker_consistency", self.config.speaker_consistency.weight, loss)

    def generated_losses(self, made: CodecStep) -> Iterator[Loss]:
        """Speaker consistency of decoded takes with the recordings whose voices they should have."""
        assert made.takes is not None and self.config.generated_codes is not None
        batch = made.takes.batch
        loss = self.consistency(made.takes.samples, batch.target, batch.people)
        yield Loss("generated_consistency", self.config.generated_codes.weight, loss)

    def consistency(self, output: Tensor, target: Tensor, people: Sequence[Sequence[Recording]]) -> Tensor:
        """Speaker consistency of output (B, N) with target (B, N), or with the means of the people's recordings."""
        loss, config = self.speaker_consistency, self.config.speaker_consistency
        assert loss is not None and config is not None and self.heard is not None
        with autocast(self.device.type, self.config.precision):
            if not config.target_recordings:
                return cast(Tensor, loss(output, target))
            return loss.distance(output, self.heard.people(people, config.target_recordings), config.masked_bands)

    def former_losses(self, made: CodecStep) -> Iterator[Loss]:
        """Spectra and words of takes: those of the former codec's output."""
        config, takes = self.config.generated_codes, made.takes
        assert config is not None and takes is not None and takes.former is not None
        if config.spectral_weight and takes.batch.is_own.any():
            own = takes.batch.is_own
            distance = self.spectral(takes.samples[own], takes.former[own], made.step)
            yield Loss("generated_spectral", config.spectral_weight, distance)
        if config.recognizer_weight:
            assert self.recognizer is not None
            yield Loss("generated_words", config.recognizer_weight, self.recognizer(takes.samples, takes.former))

    def envelope_losses(self, made: CodecStep) -> Iterator[Loss]:
        """The long-term spectrum of takes: that of the reference in whose voice they are."""
        assert self.config.envelope is not None and made.takes is not None
        assert self.speaker_consistency is not None and self.heard is not None
        wanted = self.heard.envelopes(made.takes.batch.recordings)
        loss = envelope_loss(self.speaker_consistency.log_mel(made.takes.samples), wanted)
        yield Loss("envelope", self.config.envelope.weight, loss)

    def adversarial_losses(self, made: CodecStep) -> Iterator[Loss]:
        """The discriminators' scores and features of the output."""
        assert self.discriminators is not None and self.config.adversarial is not None
        cropped = crops(made.step, self.config.adversarial.crop_samples, made.output.samples, made.batch.samples)
        self.discriminators.requires_grad_(False)
        discriminator = self.discriminators.of_step(made.step)
        with autocast(self.device.type, self.config.precision):
            loss, features = generator_loss(discriminator, *cropped)
            if self.config.adversarial.generated and made.takes is not None:
                (takes,) = crops(made.step + 1, self.config.adversarial.crop_samples, made.takes.samples)
                loss = (loss - discriminator(takes)[0].float().mean()) / 2
        self.discriminators.requires_grad_(True)
        yield Loss("adversarial", self.config.adversarial.weight, loss)
        yield Loss("feature_matching", self.config.adversarial.feature_matching_weight, features)

    def whole_timbre(self, reference: Tensor, recordings: Sequence[Recording] = ()) -> Tensor | None:
        """reference (B, N) of B recordings -> timbre embeddings (B, V); None for a codec without them."""
        speaker = None if self.timbre_speaker is None else self.speaker_embeddings(reference, recordings)
        return self.model.timbre_of(reference, speaker)

    def speaker_embeddings(self, reference: Tensor, recordings: Sequence[Recording]) -> Tensor:
        """What timbre embeddings depend on: embeddings (B, S) of segments (B, N), or of their whole recordings."""
        assert self.timbre_speaker is not None and self.config.timbre_speaker is not None
        assert self.heard_by_timbre is not None
        with torch.no_grad():
            segments = self.timbre_speaker.embed(reference)
            is_whole = torch.rand(len(reference), 1, device=reference.device) < self.config.timbre_speaker.whole_ratio
            if not is_whole.any():
                return segments
            return torch.where(is_whole, self.heard_by_timbre.embeddings(recordings), segments)

    def timbre_of(self, reference: Tensor, recordings: Sequence[Recording] = ()) -> Tensor | None:
        """reference (B, N) of B recordings -> timbre embeddings (B, V), random rows zero; None for a codec without."""
        timbre = self.whole_timbre(reference, recordings)
        if timbre is None:
            return None
        return timbre * (torch.rand(len(timbre), 1, device=timbre.device) >= self.config.timbre_dropout)

    def frequency_factors(self, timbre: Tensor | None) -> Tensor | None:
        """Random factors (B,) of the frequencies that the encoder reads; 1 for rows without a timbre embedding."""
        warp = self.config.frequency_warp
        if warp is None or timbre is None:
            return None
        low, high = np.log(warp.factors)
        drawn = torch.exp(low + (high - low) * torch.rand(len(timbre), device=timbre.device))
        moved = torch.rand(len(timbre), device=timbre.device) < warp.probability
        return torch.where(moved & timbre.any(dim=1), drawn, torch.ones_like(drawn))

    def discriminator_step(self, discriminators: Discriminators, made: CodecStep) -> dict[str, Tensor]:
        """Train the discriminator of this step, in pretraining all, on crops of the output and the recordings."""
        config, step, fakes = self.config.adversarial, made.step, made.output.samples.detach()
        assert config is not None
        if config.generated and made.takes is not None:
            fakes = torch.cat([fakes, made.takes.samples.detach()])
        pretrains = step < config.pretraining_steps
        members = list(discriminators.members) if pretrains else [discriminators.of_step(step)]
        (fakes,), (real,) = (crops(step, config.crop_samples, samples) for samples in (fakes, made.batch.samples))
        with autocast(self.device.type, self.config.precision):
            loss = torch.stack([discriminator_loss(member, fakes, real) for member in members]).mean()
        rate = config.pretraining_learning_rate if pretrains else config.learning_rate
        minimize(self.optimizers["discriminators"], loss, rate, DISCRIMINATOR_GRAD_CLIP_NORM)
        return {"discriminator_loss": loss.detach()}

    @torch.no_grad()
    def reset_dead_codes(self, codes: list[Tensor], latents: Tensor, step: int) -> None:
        """Track the usage of each code, and reset dead codes to random ones of this batch's latents (B, D, L)."""
        for (_, book), level_codes in zip(self.model.quantizer.codebooks, codes, strict=True):
            counts = torch.bincount(level_codes.flatten(), minlength=self.config.model.codebook_size).float()
            book.usage.mul_(USAGE_DECAY).add_(counts / counts.mean(), alpha=1 - USAGE_DECAY)
        if step % RESET_EVERY:
            return
        total = torch.zeros_like(latents)
        generator = torch.Generator().manual_seed(step)
        for stride, book in self.model.quantizer.codebooks:
            residual = latents - total
            residual = F.avg_pool1d(residual, stride) if stride > 1 else residual
            queries = book.queries(residual).flatten(0, 1)
            dead = torch.nonzero(book.usage < DEAD_CODE_USAGE)[:, 0]
            if len(dead):
                chosen = torch.randint(len(queries), (len(dead),), generator=generator).to(dead.device)
                noise = RESET_NOISE * torch.randn(len(dead), queries.shape[1], generator=generator).to(dead.device)
                book.entries[dead] = queries[chosen] + noise
                book.usage[dead] = RESET_USAGE
            total = total + book.decode(book.encode(residual)).repeat_interleave(stride, dim=2)

    @torch.no_grad()
    def validate(self, step: int) -> dict[str, float]:
        """Scores on fixed validation segments, one of which is written as audio.

        Spectral distance with the true F0 and with the predicted one, F0 error, and codebook perplexity.
        """
        means, codes = MeanByName(), []
        for corpus, batch in self.segments.validation():
            batch = batch.to(self.device)
            timbre = self.whole_timbre(batch.reference, batch.recordings)
            coded = self.reconstruct(batch, batch.f0, timbre)
            output = self.reconstruct(batch, None, timbre).samples
            if timbre is not None:
                without = self.reconstruct(batch, batch.f0, None).samples
                means.add("spectral_without_timbre", self.spectral(without, batch.samples))
            if self.speaker_consistency is not None:
                distance = self.speaker_consistency.distance(output, self.speaker_consistency.embed(batch.samples))
                means.add("speaker_consistency", distance)
            distance = self.spectral(coded.samples, batch.samples)
            means.add("spectral", distance)
            if self.segments.num_corpora > 1:
                means.add(f"spectral_corpus{corpus}", distance)
            means.add("spectral_predicted_f0", self.spectral(output, batch.samples))
            means.add("f0_loss", f0_loss(coded.octaves, batch.f0, batch.voiced, self.config.f0))
            means.add("f0_error_semitones", f0_error_semitones(coded.octaves, batch.f0, batch.voiced))
            codes.append(coded.codes)
            if self.feature_prediction is not None:
                for name, error in name_errors(self.feature_errors(self.feature_prediction, batch, coded)).items():
                    means.add(name, error)
        scores = means.means()
        for level in range(len(self.config.model.strides)):
            together = torch.cat([batch[level].flatten() for batch in codes])
            scores[f"perplexity{level}"] = float(perplexity(together, self.config.model.codebook_size))
        return scores

    def model_to_export(self, run: Path, base: Path | None = None) -> MiniCodecModel:
        """The codec of the run's newest checkpoint, with the configured ratio of the weights of `base`, the run's
        initial codec.
        """
        model = load_codec(run)
        if ratio := self.config.initial_weight_ratio:
            if base is None:
                raise ConfigError("initial_weight_ratio needs the run or codec with the initial weights: --init-from")
            interpolate(model, load_codec(base), ratio)
        return model

    def reconstruct(self, batch: SegmentBatch, f0: Tensor | None, timbre: Tensor | None) -> CodecOutput:
        """The model's forward pass with the same noise every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return cast(CodecOutput, self.model(batch.around, f0, timbre, None, batch.inside))


def check_options(config: CodecTrainingConfig) -> None:
    """Raise ConfigError where options contradict each other."""
    if config.feature_prediction and (config.stage is Stage.DECODER or not config.model.recognizer_layers):
        raise ConfigError(
            'feature_prediction trains the codes of a codec with a recognizer: set stage = "full" and '
            "model.recognizer_layers, or drop it"
        )
    if config.model.recognizer_layers and config.stage is Stage.FULL and config.recognizer is None:
        raise ConfigError("model.recognizer_layers needs [recognizer] with the folder of that recognizer")
    if config.frequency_warp and not config.model.timbre_width:
        raise ConfigError("frequency_warp needs a timbre embedding: set model.timbre_width")
    knows_speakers = config.model.timbre_width and config.speaker_consistency
    if config.generated_codes and not (knows_speakers and config.stage is Stage.DECODER):
        raise ConfigError(
            'generated_codes needs stage = "decoder", model.timbre_width and [speaker_consistency], its loss'
        )
    check_takes(config)
    if bool(config.timbre_speaker) != bool(config.model.timbre_speaker_size):
        raise ConfigError(
            "model.timbre_speaker_size needs [timbre_speaker] with the folder of that encoder, and the other way round"
        )


def check_takes(config: CodecTrainingConfig) -> None:
    """Raise ConfigError where options of generated codes lack what they need."""
    takes, adversarial = config.generated_codes, config.adversarial
    if takes is None and (config.envelope or (adversarial and adversarial.generated)):
        raise ConfigError("envelope and adversarial.generated are losses of takes: add [generated_codes], or drop them")
    if takes and bool(takes.former) != bool(takes.spectral_weight or takes.recognizer_weight):
        raise ConfigError(
            "generated_codes.former, the codec that takes are held to, needs spectral_weight or recognizer_weight, and "
            "they need it"
        )
    if takes and takes.recognizer_weight and config.recognizer is None:
        raise ConfigError("generated_codes.recognizer_weight needs [recognizer] with the folder of a recognizer")
    if adversarial and adversarial.pretraining_steps >= config.loop.steps:
        raise ConfigError(
            f"adversarial.pretraining_steps is {adversarial.pretraining_steps}, but the stage has {config.loop.steps} "
            "steps, these included; raise loop.steps"
        )


@torch.no_grad()
def interpolate(model: nn.Module, initial: nn.Module, ratio: float) -> None:
    """Set the parameters to `ratio` times the initial ones plus 1 - `ratio` times the model's own."""
    for own, other in zip(model.parameters(), initial.parameters(), strict=True):
        own.lerp_(other, ratio)


class MeanByName:
    """Means of values by name."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, name: str, value: Tensor) -> None:
        """Add one value."""
        self.values.setdefault(name, []).append(float(value))

    def means(self) -> dict[str, float]:
        """The mean of each name."""
        return {name: float(np.mean(values)) for name, values in self.values.items()}


def name_errors(errors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Names for the log: the features' error before quantization, then by the sum of the first levels."""
    return {"feature_error": errors[0]} | {f"feature_error{level}": one for level, one in enumerate(errors[1:])}


def perplexity(codes: Tensor, codebook_size: int) -> Tensor:
    """Exponential of the codes' entropy: the effective number of codes in use."""
    frequency = torch.bincount(codes.flatten(), minlength=codebook_size).float()
    frequency = frequency / frequency.sum()
    return torch.exp(-(frequency * torch.log(frequency + 1e-10)).sum())


def open_task(
    config: CodecTrainingConfig, manifests: Manifests, run: Path, base: Path | None = None, device: str = "cpu"
) -> CodecTask:
    """The task of a run folder, with the resolved configuration written there, where `load_codec` reads it.

    A new run begins with the weights of `base`, a run or an exported folder, where one is given. CheckpointError where
    the folder has checkpoints of another model.
    """
    check_same_model(run / CONFIG_FILE, config.model)
    task = CodecTask(config, manifests, device, run / CORRUPT_FILE)
    if base is not None and latest(run) is None:
        init_from(task, base)
    run.mkdir(parents=True, exist_ok=True)
    write_config(config, run / CONFIG_FILE)
    return task


def init_from(task: CodecTask, base: Path) -> None:
    """Set the weights to those of another run or of an exported folder; ConfigError where its sizes differ.

    A codec without timbre conditioning, or whose timbre embeddings depend on no speaker embedding, may become one with
    it: new weights keep their initial values, which leave the output unchanged.
    """
    model = load_codec(base)
    expected = task.config.model
    new = [name for name in type(expected).model_fields if name.startswith("timbre_") and not model.config.timbre_width]
    if not model.config.timbre_speaker_size:
        new.append("timbre_speaker_size")
    if model.config.model_copy(update={name: getattr(expected, name) for name in new}) != expected:
        raise ConfigError(f"{base}: this codec has other sizes than the configuration; copy its [model] table")
    task.model.load_state_dict(task.model.state_dict() | model.state_dict())
