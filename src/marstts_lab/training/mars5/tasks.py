"""Training of MARS5's two models: the `training.loop.Task`s of the AR and of the NAR.

Upstream: a tokenized corpus, `batches`, `mars5.objective`.  Downstream: `training.loop.run`; the averaged weights are
the model that speaks (`mars5.checkpoint.write_models`).
Everything random is a function of the batch's number, so a resumed training equals an uninterrupted one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from marstts.errors import ConfigError
from marstts.io.precision import autocast
from marstts.mars5.ar import CodecLM, DecoderBlock
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.diffusion import NUM_TIMESTEPS, cosine_schedule
from marstts.mars5.layers import DecoderLayer, EncoderLayer
from marstts.mars5.nar import Conditioning, ResidualTransformer
from marstts.mars5.objective import add_noise, bound_loss, drop_references, next_token_loss
from marstts.mars5.text import JointVocabulary
from marstts_lab.data.batching import BatchingConfig, BatchSampler
from marstts_lab.data.corpus import Corpus
from marstts_lab.training import distributed
from marstts_lab.training.bounds import step_seed
from marstts_lab.training.distributed import pick_device
from marstts_lab.training.loss import Loss, total, values
from marstts_lab.training.mars5.batches import Batch, Collator, check_codec
from marstts_lab.training.mars5.config import ArTrainConfig, NarTrainConfig, TrainConfig
from marstts_lab.training.optim import learning_rate, make_ema, make_optimizer, minimize, update_ema

MODEL, EMA = "model", "average"
"""Names of the sets of weights in a checkpoint."""

VALIDATION_SEED = 0


class Mars5Task(ABC):
    """Base class of both tasks; a subclass defines the loss of a batch."""

    def __init__(
        self,
        config: TrainConfig,
        make_model: Callable[[], nn.Module],
        sizes: CodecLMConfig | ResidualTransformerConfig,
        corpus: Corpus,
        vocabulary: JointVocabulary,
    ) -> None:
        """Raises ConfigError or DataError where corpus, tokenizers and model do not fit."""
        check_codec(corpus)
        check_sizes(sizes, corpus, vocabulary)
        distributed.init_distributed()
        self.config = config
        self.device = pick_device(config.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.loop.seed)
            self.model = make_model().to(self.device).train()
        self.average = make_ema(self.model)
        if config.gradient_checkpointing:
            recompute_layers(self.model)
        self.passes = distributed.wrap_ddp(self.whole_pass(self.model))
        self.optimizer = make_optimizer(self.model, config.optimizer)
        self.modules: dict[str, nn.Module] = {MODEL: self.model, EMA: self.average}
        self.optimizers: dict[str, torch.optim.Optimizer] = {MODEL: self.optimizer}
        train, held_out = corpus.split("train"), corpus.split("validation")
        self.sampler = BatchSampler(train, config.batching, config.loop.seed)
        self.collate = Collator(train, vocabulary, config.objective, config.loop.seed)
        whole = BatchingConfig(
            patches_per_batch=config.batching.patches_per_batch,
            max_patches=config.batching.max_patches,
            concat_probability=0.0,
            lower_case_probability=0.0,
            strip_final_punctuation_probability=0.0,
        )
        self.validation_sampler = BatchSampler(held_out, whole, VALIDATION_SEED)
        self.collate_validation = Collator(held_out, vocabulary, config.objective, VALIDATION_SEED)

    @abstractmethod
    def whole_pass(self, model: Any) -> nn.Module:
        """All that the model computes for a batch, as one module: gradients of its parameters are averaged together."""

    @abstractmethod
    def losses(self, passes: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Loss, ...]:
        """The losses of a batch; `generator` belongs to this batch alone."""

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update, on one batch of each process."""
        number = step * distributed.world_size() + distributed.rank()
        batch = self.collate(self.sampler.items(number), number).to(self.device)
        generator = torch.Generator().manual_seed(step_seed(self.config.loop.seed, number))
        with autocast(self.device.type, self.config.precision):
            losses = self.losses(self.passes, batch, generator)
        rate = learning_rate(step, self.config.loop.steps, self.config.optimizer)
        norm = minimize(self.optimizer, total(losses), rate, self.config.optimizer.grad_clip_norm)
        update_ema(self.average, self.model, step, self.config.optimizer.ema_decay)
        return {**values(losses), "gradient": norm, "learning_rate": rate}

    @torch.no_grad()
    def validate(self, step: int) -> dict[str, float]:
        """Mean scores of the averaged weights on held-out utterances: always the same, with the same noise."""
        count = min(self.config.validation_batches, self.validation_sampler.batches_per_epoch)
        sums: dict[str, float] = {}
        passes = self.whole_pass(self.average)
        for number in range(count):
            batch = self.collate_validation(self.validation_sampler.items(number), number).to(self.device)
            with autocast(self.device.type, self.config.precision):
                losses = self.losses(passes, batch, torch.Generator().manual_seed(number))
            for name, score in values(losses).items():
                sums[name] = sums.get(name, 0.0) + float(score) / count
        return sums


class ArPass(nn.Module):
    """Reference and tokens to logits."""

    def __init__(self, model: CodecLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        """-> logits (B, N, V)."""
        speaker: Tensor = self.model.encode_speaker(batch.references, batch.reference_lengths)
        return cast(Tensor, self.model(batch.tokens, speaker))


class NarPass(nn.Module):
    """Reference, text and noisy codes to logits of the clean ones."""

    def __init__(self, model: ResidualTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, shown: Tensor, noisy: Tensor, timesteps: Tensor) -> Tensor:
        """shown (B,) frames of the references that are seen, noisy (B, T, L), timesteps (B,) -> (B, T, L, K)."""
        speaker = self.model.encode_speaker(batch.references, shown)
        return self.model(noisy, batch.lengths, timesteps, Conditioning(batch.text_ids, batch.text_lengths, speaker))


class ArTask(Mars5Task):
    """The next token of text and speech, given the speaker."""

    config: ArTrainConfig

    def __init__(self, config: ArTrainConfig, corpus: Corpus, vocabulary: JointVocabulary) -> None:
        super().__init__(config, lambda: CodecLM(config.model), config.model, corpus, vocabulary)

    def whole_pass(self, model: CodecLM) -> nn.Module:
        return ArPass(model)

    def losses(self, passes: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Loss, ...]:
        loss = next_token_loss(
            passes(batch), batch.tokens, batch.text_lengths, batch.token_lengths, self.config.objective
        )
        parts = {"text": loss.text, "speech": loss.speech, "accuracy": loss.accuracy}
        return Loss("loss", 1.0, loss.total), *(Loss(name, 0.0, value) for name, value in parts.items())


class NarTask(Mars5Task):
    """The variational bound of the diffusion, given level 0, the text and perhaps the speaker."""

    def __init__(self, config: NarTrainConfig, corpus: Corpus, vocabulary: JointVocabulary) -> None:
        self.schedule, self.num_classes = cosine_schedule(NUM_TIMESTEPS), config.model.num_classes
        super().__init__(config, lambda: ResidualTransformer(config.model), config.model, corpus, vocabulary)
        self.schedule = self.schedule.to(self.device)

    def whole_pass(self, model: ResidualTransformer) -> nn.Module:
        return NarPass(model)

    def losses(self, passes: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Loss, ...]:
        noisy = add_noise(batch.codes, self.schedule, self.num_classes, generator)
        shown = drop_references(batch.reference_lengths, self.config.objective.drop_probability, generator)
        logits = passes(batch, shown, noisy.noisy, self.schedule.timesteps[noisy.steps])
        loss = bound_loss(logits, noisy, batch.lengths, self.schedule)
        by_level = [Loss(f"loss{level}", 0.0, value) for level, value in enumerate(loss.levels, start=1)]
        return Loss("loss", 1.0, loss.total), *by_level


def recompute_layers(model: nn.Module) -> None:
    """Store the inputs of the layers for the backward pass, in place of all that the layers compute."""
    for layer in model.modules():
        if isinstance(layer, (DecoderBlock, EncoderLayer, DecoderLayer)):
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)  # type: ignore[method-assign]


def check_sizes(sizes: CodecLMConfig | ResidualTransformerConfig, corpus: Corpus, vocabulary: JointVocabulary) -> None:
    """Raise ConfigError that lists in what a model differs from the corpus and its tokenizers."""
    expected = {"levels": len(corpus.codec.hop_lengths), "codebook_size": corpus.codec.codebook_size}
    expected["text_vocab_size"] = vocabulary.text.vocab_size
    if isinstance(sizes, CodecLMConfig):
        expected["speech_vocab_size"] = vocabulary.speech.vocab_size
    complaints = [
        f"{name} should be {value}, not {getattr(sizes, name)}"
        for name, value in expected.items()
        if getattr(sizes, name) != value
    ]
    if complaints:
        raise ConfigError(f"model: it does not fit the corpus and its tokenizers: {'; '.join(complaints)}")
