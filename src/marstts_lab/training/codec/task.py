"""Training of the mini codec: waveforms in, a codec that makes use of all its levels out.

Upstream: `segments`.  Downstream: the run folder (`training.loop`), `export`.
There are two stages with a configuration each. The full stage trains everything. The decoder stage trains the decoder
alone: encoder and codebooks, and so every token made before, stay as they are. Both are trained on the sum of
the terms that are configured (`terms`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from marstts.codec.mini_model import CodecOutput, MiniCodecModel
from marstts.errors import ConfigError
from marstts.io.config import write_config
from marstts.io.precision import autocast
from marstts_lab.training.checkpoint import check_same_model, latest
from marstts_lab.training.codec.codebooks import perplexities, reset_dead_codes
from marstts_lab.training.codec.config import BETAS, GRAD_CLIP_NORM, WEIGHT_DECAY, CodecTrainingConfig, Stage
from marstts_lab.training.codec.export import CONFIG_FILE, load_codec
from marstts_lab.training.codec.frozen import FrozenNetworks
from marstts_lab.training.codec.segments import Manifests, SegmentBatch, Segments
from marstts_lab.training.codec.takes import Takes
from marstts_lab.training.codec.term import CodecStep, ValidationStep
from marstts_lab.training.codec.terms import TERMS, build_terms
from marstts_lab.training.codec.timbre import Timbre
from marstts_lab.training.codec.timbre_spread import spread_timbre
from marstts_lab.training.distributed import pick_device, require_one_process
from marstts_lab.training.loss import total, values
from marstts_lab.training.optim import learning_rate, minimize
from marstts_lab.training.run_log import CORRUPT_FILE

NUM_SPREAD_REFERENCES = 256
"""References that show what timbre embeddings have in common."""


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
        self.optimizer = torch.optim.AdamW(
            trained_parameters(self.model, config), config.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY,
            fused=True,
        )  # fmt: skip
        self.modules: dict[str, nn.Module] = {"codec": self.model}
        self.optimizers: dict[str, torch.optim.Optimizer] = {"codec": self.optimizer}
        networks = FrozenNetworks(config, self.device)
        self.terms = build_terms(config, self.model, networks)
        for term in self.terms:
            self.modules |= term.modules
            self.optimizers |= term.optimizers
            if term.parameters:
                self.optimizer.add_param_group({"params": term.parameters})
        self.timbre = Timbre(config, self.model, networks)
        self.segments = Segments(manifests, config, corrupt)
        takes = config.generated_codes
        self.takes = None if takes is None else Takes(takes, config, self.model, self.timbre, self.device)

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update of the discriminators, if any, and one of the codec, except in the discriminators' pretraining."""
        config, pretraining = self.config, self.config.pretraining_steps
        with torch.set_grad_enabled(step >= pretraining):
            made = self.reconstruct(step)
        scores: dict[str, float | Tensor] = {}
        for term in self.terms:
            scores |= term.train_own(made)
        if step < pretraining:
            return scores
        losses = [loss for term in self.terms for loss in term.losses(made)]
        rate = learning_rate(step - pretraining, config.loop.steps - pretraining, config.schedule)
        minimize(self.optimizer, total(losses), rate, GRAD_CLIP_NORM)
        if config.stage is Stage.FULL:
            reset_dead_codes(self.model.quantizer, made.output.codes, made.output.latents.detach(), step)
        return scores | perplexities(made.output.codes, config.model.codebook_size) | values(losses)

    def reconstruct(self, step: int) -> CodecStep:
        """The output for recordings and takes of a step."""
        batch = self.segments.train(step).to(self.device)
        with autocast(self.device.type, self.config.precision):
            timbre = self.timbre.with_dropout(batch.reference, batch.recordings)
            factors = self.timbre.frequency_factors(timbre)
            output = self.model(batch.around, batch.f0, timbre, factors, batch.inside, batch.predicted)
            return CodecStep(step, batch, output, None if self.takes is None else self.takes.decode(step))

    @torch.no_grad()
    def references(self, count: int) -> tuple[Tensor, Tensor | None]:
        """At least so many references of training segments (K, N), and their speaker embeddings (K, S), if any."""
        batches = [self.segments.train(step).to(self.device) for step in range(-(-count // self.config.batch_size))]
        speakers = [self.timbre.speaker_embeddings(batch.reference, batch.recordings) for batch in batches]
        known = [found for found in speakers if found is not None]
        return torch.cat([batch.reference for batch in batches]), torch.cat(known) if known else None

    @torch.no_grad()
    def validate(self, step: int) -> dict[str, float]:
        """Scores of the terms on fixed validation segments, and codebook perplexity."""
        means, codes = MeanByName(), []
        for corpus, batch in self.segments.validation():
            made = self.reconstruct_held_out(batch.to(self.device))
            scores = {name: score for term in self.terms for name, score in term.validate(made).items()}
            if self.segments.num_corpora > 1:
                scores[f"spectral_corpus{corpus}"] = scores["spectral"]
            means.add(scores)
            codes.append(made.output.codes)
        together = [torch.cat([part.flatten() for part in level]) for level in zip(*codes, strict=True)]
        of_codes = perplexities(together, self.config.model.codebook_size)
        return means.means() | {name: float(value) for name, value in of_codes.items()}

    def reconstruct_held_out(self, batch: SegmentBatch) -> ValidationStep:
        """Outputs with the true F0, with the predicted one, and without the timbre embedding."""
        with same_random_numbers():  # whether a timbre embedding is that of the whole recording is drawn
            timbre = self.timbre.of(batch.reference, batch.recordings)

        def output(f0: Tensor | None, timbre: Tensor | None) -> CodecOutput:
            with same_random_numbers():  # noise of the decoder
                return cast(CodecOutput, self.model(batch.around, f0, timbre, None, batch.inside))

        without = None if timbre is None else output(batch.f0, None).samples
        return ValidationStep(batch, output(batch.f0, timbre), output(None, timbre).samples, without)

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


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Draw the same random numbers every time in the body, and leave those after it as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def check_options(config: CodecTrainingConfig) -> None:
    """ConfigError that lists where options contradict each other."""
    complaints = [complaint for term in TERMS for complaint in term.complaints(config)]
    complaints += Timbre.complaints(config)
    if complaints:
        raise ConfigError("; ".join(dict.fromkeys(complaints)))  # two terms may lack the same


def trained_parameters(model: MiniCodecModel, config: CodecTrainingConfig) -> list[nn.Parameter]:
    """The parameters that a stage trains; all others are frozen.

    The decoder stage trains the timbre encoder, too, unless timbre is frozen. A recognizer is never trained.
    """
    full = config.stage is Stage.FULL
    trained = model if full else model.decoder
    model.requires_grad_(full)
    trained.requires_grad_(True)
    if model.recognizer is not None:
        model.recognizer.requires_grad_(False)
    if config.freeze_timbre and not full:
        model.decoder.pitch.requires_grad_(False)
    parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    if model.timbre_encoder is not None and not full and not config.freeze_timbre:
        for part in (model.timbre_encoder, model.timbre_speaker):
            if part is not None:
                parameters += list(part.requires_grad_(True).parameters())
    return parameters


@torch.no_grad()
def interpolate(model: nn.Module, initial: nn.Module, ratio: float) -> None:
    """Set the parameters to `ratio` times the initial ones plus 1 - `ratio` times the model's own."""
    for own, other in zip(model.parameters(), initial.parameters(), strict=True):
        own.lerp_(other, ratio)


class MeanByName:
    """Means of values by name."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, scores: Mapping[str, Tensor]) -> None:
        """Add the values of a batch."""
        for name, value in scores.items():
            self.values.setdefault(name, []).append(float(value))

    def means(self) -> dict[str, float]:
        """The mean of each name."""
        return {name: float(np.mean(values)) for name, values in self.values.items()}


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
        if config.timbre_spread > 1:
            spread_timbre(task.model, *task.references(NUM_SPREAD_REFERENCES), config.timbre_spread)
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
