"""Pretraining of MARS6: teacher-forced next-token prediction, as a `training.loop.Task`.

Upstream: `batches`, `config`.  Downstream: the run folder (`training.loop`, `run_folder`).
MARS6 (arXiv:2501.05787), Sec. III-D and V-A.  Deviations: speech is generated with an EMA of the weights; early
cross-attention may be guided (`training.attention_guidance`).
Shapes: B batch · S text tokens · T patches · P positions · H heads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from marstts.errors import ConfigError, DataError
from marstts.io.precision import autocast
from marstts.mars6.config import Conditioning
from marstts.mars6.model import Mars6, Mars6Output
from marstts.mars6.objective import NextTokenLoss, flux_loss, next_token_loss, previous_codes
from marstts.mars6.prompt import SPECIAL_TOKENS
from marstts.nn.attention import length_mask
from marstts.nn.transformer import CrossLayer, SelfLayer
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.batching import BatchSampler, TrainingItem
from marstts_lab.data.corpus import Corpus
from marstts_lab.training.attention_guidance import attention_guidance_loss, attention_scores
from marstts_lab.training.bounds import step_seed
from marstts_lab.training.distributed import (
    Share,
    init_distributed,
    no_sync,
    pick_device,
    shares_of_step,
    world_size,
    wrap_ddp,
)
from marstts_lab.training.loss import Loss, total, values
from marstts_lab.training.mars6.batches import Collator, Prefetcher, PretrainBatch, corrupt_tokens
from marstts_lab.training.mars6.config import PretrainConfig
from marstts_lab.training.mars6.guidance_distillation import distillation_loss, guided_probs
from marstts_lab.training.mars6.letters_distillation import hidden_state_loss, target_probs
from marstts_lab.training.mars6.phone_embeddings import train_phones_faster
from marstts_lab.training.mars6.run_folder import EMA, MODEL, TEACHER, spoken_text
from marstts_lab.training.optim import learning_rate, make_ema, make_optimizer, optimizer_step, update_ema


@dataclass(frozen=True)
class LossOutput:
    """The losses of a batch, and what else is needed of the model's output."""

    losses: tuple[Loss, ...]
    """In the order in which they are added: next-token prediction of the recordings (`loss`; per level `loss0`,
    `accuracy0`, …), minimized unless there is a teacher; of a teacher `distill_loss` and `hidden_state_loss`; `flux`.
    """

    cross_attention: tuple[Tensor, ...]
    """(B, H, T, slots + S) of the requested layers."""


class PretrainTask:
    """The `training.loop.Task` of MARS6; data and random numbers are functions of the step."""

    def __init__(self, config: PretrainConfig, corpus: Corpus, tokenizer: BPE) -> None:
        """ConfigError or DataError if corpus and model do not fit."""
        check_fit(config, corpus, tokenizer)
        init_distributed()
        self.config, self.tokenizer = config, tokenizer
        self.device = pick_device(config.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.loop.seed)
            self.model = Mars6(config.model).to(self.device).train()
        self.ema = make_ema(self.model)
        self.modules: dict[str, nn.Module] = {MODEL: self.model, EMA: self.ema}
        if config.guidance_distillation_scale > 1 or config.letters_distillation is not None:
            self.modules[TEACHER] = make_ema(self.model)
        if config.letters_distillation is not None:
            self.model.local_decoder.requires_grad_(config.letters_distillation.train_local_decoder)
            self.model.global_decoder.requires_grad_(config.letters_distillation.train_global_decoder)
        self.special_tokens = [tokenizer.encode(token)[0] for token in SPECIAL_TOKENS]
        self.optimizer = make_optimizer(self.model, config.optimizer)
        if config.phone_embedding_lr_scale != 1:
            train_phones_faster(self.model, self.optimizer, config.phone_embedding_lr_scale, tokenizer, alone=False)
        self.optimizers: dict[str, torch.optim.Optimizer] = {"model": self.optimizer}
        if config.compile:
            compile_layers(self.model)
        self.forward = wrap_ddp(self.model, all_used=config.model.conditioning is Conditioning.TWO_SLOTS)
        self.resume_step, self.first_batch = 0, 0
        self.corpus = corpus
        self.seconds_per_patch = 1 / corpus.codec.patch_rate
        self.training_batch = self.training_batches()
        self.validation_items, self.collate_validation = self.validation_set()
        self.last_step_at = time.monotonic()

    @property
    def summary(self) -> str:
        """The size of the model and its device."""
        millions = sum(parameter.numel() for parameter in self.model.parameters()) / 1e6
        return f"{millions:.1f}M parameters on {self.device}"

    @property
    def accumulation_batches(self) -> int:
        """Batches of a step, over all processes."""
        return self.config.accumulation_batches or world_size()

    def batches_before(self, step: int) -> int:
        """The number of batches trained on before `step`, by all processes."""
        return self.first_batch + (step - self.resume_step) * self.accumulation_batches

    def data_state(self, step: int) -> dict[str, int]:
        """The position in the data, which `training.checkpoint` writes to the checkpoint of `step`."""
        return {"batches": self.batches_before(step)}

    def load_data_state(self, step: int, state: Mapping[str, int]) -> None:
        """Continue with the batch after the last one, whatever the number of batches of a step was before."""
        self.resume_step, self.first_batch = step, state.get("batches", step * self.accumulation_batches)

    def collator(self, corpus: Corpus) -> Collator:
        """The collator of a split."""
        config = self.config
        return Collator(corpus, self.tokenizer, config.model, config.full_bandwidth_hz, config.letters_distillation)

    def training_batches(self) -> Prefetcher:
        """The training batches by their numbers."""
        corpus = self.corpus.split("train")
        sampler = BatchSampler(corpus, self.config.batching, self.config.loop.seed, spoken_text)
        collate = self.collator(corpus)

        def make(number: int) -> PretrainBatch:
            return collate(sampler.items(number))

        return Prefetcher(make)

    def validation_set(self) -> tuple[list[list[TrainingItem]], Collator]:
        """The held-out batches, always the same: single utterances, with texts that are not changed at random."""
        corpus = self.corpus.split("validation")
        changes = {
            "concat_probability": 0.0,
            "lower_case_probability": 0.0,
            "strip_final_punctuation_probability": 0.0,
            "text_dropout": 0.0,
        }
        sampler = BatchSampler(corpus, self.config.batching.model_copy(update=changes), 0, spoken_text)
        batches = self.config.validation_patches / self.config.batching.patches_per_batch
        count = min(sampler.batches_per_epoch, max(1, round(batches)))
        collate = self.collator(corpus)
        return [sampler.items(step) for step in range(count)], collate

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update on the batches of this step."""
        config = self.config
        first, count = self.batches_before(step), self.accumulation_batches
        shares = shares_of_step(first, count)
        upcoming = [*shares[1:], shares_of_step(first + count, count)[0]]
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float | Tensor] = {}
        for share, following in zip(shares, upcoming, strict=True):
            torch.manual_seed(step_seed(config.loop.seed, share.number))  # dropout: the same in whichever process
            with no_sync(self.forward, active=share is not shares[-1]):
                for name, value in self.backward(step, share, following.number if config.prefetch else None).items():
                    sums[name] = sums.get(name, 0.0) + value
        lr = learning_rate(step, config.loop.steps, config.optimizer)
        norm = optimizer_step(self.optimizer, lr, config.optimizer.grad_clip_norm)
        update_ema(self.ema, self.model, step, config.optimizer.ema_decay)
        throughput = self.throughput(float(sums.pop("num_patches")))
        return {**sums, "grad_norm": norm, "learning_rate": lr, "audio_seconds_per_second": throughput}

    def backward(self, step: int, share: Share, following: int | None = None) -> dict[str, float | Tensor]:
        """Accumulate the gradient of a share of a batch; returns what to log, weighted alike, and its `num_patches`.

        `following` is the number of the batch that will be needed next, if it is to be collated meanwhile.
        The weights of all shares of a step have the sum of the number of processes, over which DDP averages. Within a
        batch they are as its patches, over which the losses are means.
        """
        config, guidance = self.config, self.config.attention_guidance
        whole = self.training_batch(share.number, following)
        chosen = share.rows(len(whole.patches))
        on_cpu = whole.rows(chosen)
        noisy = corrupt_tokens(whole.patches, config.input_token_noise, config.model, config.loop.seed, share.number)[
            chosen, : on_cpu.patches.shape[1]
        ]
        batch, inputs = on_cpu.to(self.device), noisy.to(self.device)
        fraction = float(on_cpu.patch_lengths.sum() / whole.patch_lengths.sum())
        weight = 0.0 if share.is_empty(len(whole.patches)) else fraction * world_size() / self.accumulation_batches
        is_guided = step < guidance.end_step and guidance.weight > 0
        scored = self.scored_patches(whole, share.number)[chosen, : on_cpu.patches.shape[1]].to(self.device)
        output = self.losses(self.forward, batch, guidance.layers if is_guided else (), inputs, scored)
        losses = list(output.losses)
        if is_guided:
            loss = attention_guidance_loss(
                output.cross_attention,
                batch.text_lengths,
                batch.patch_lengths,
                guidance,
                num_slots=self.model.num_slots,
                boundaries=batch.boundaries,
            )
            losses.append(Loss("attention_guidance", guidance.weight, loss))
        (total(losses) * weight).backward()
        scores = values(losses) | attention_scores(output.cross_attention, batch.patch_lengths, guidance.heads)
        num_patches = int(on_cpu.patch_lengths.sum())
        padding = 1 - num_patches / on_cpu.patches[..., 0].numel()
        logged: dict[str, float | Tensor] = {**scores, "padding": padding}
        return {**{name: value * weight for name, value in logged.items()}, "num_patches": num_patches}

    def scored_patches(self, batch: PretrainBatch, number: int) -> Tensor:
        """(B, T), True for the patches of batch `number` whose codes are scored.

        These are all patches of rows that are not distilled, and at least one of each other row.
        """
        settings = self.config.letters_distillation
        scored = torch.ones(batch.patches.shape[:2], dtype=torch.bool)
        if settings is not None and settings.scored_ratio < 1:
            rng = torch.Generator().manual_seed(step_seed(self.config.loop.seed, number))
            scored = torch.rand(scored.shape, generator=rng) < settings.scored_ratio
            scored[:, 0] = True
            scored |= ~batch.letters["is_distilled"][:, None]
        return scored

    def losses(
        self,
        model: Callable[..., Any],
        batch: PretrainBatch,
        attention_layers: tuple[int, ...],
        inputs: Tensor | None = None,
        scored: Tensor | None = None,
    ) -> LossOutput:
        """The losses of `model` on a batch; with a teacher, those of distillation, too.

        `attention_layers` count from 0. `inputs` (B, T, P) replace the true patches as the input of both models.
        `scored` (B, T) limits the codes that are scored (default: all).
        """
        config, objective = self.config.model, self.config.objective
        arguments = batch.model_inputs(inputs)
        with autocast(self.device.type, self.config.precision):
            output = model(*arguments, attention_layers=attention_layers, scored=scored)
            logits, losses = output.logits, list[Loss]()
            if TEACHER in self.modules:
                losses = self.distillation_losses(batch, arguments, output)
                logits = tuple(level.detach() for level in logits)
            loss = next_token_loss(logits, batch.patches[output.scored], config, objective)
            losses = [*next_token_losses(loss, weight=0.0 if losses else 1.0), *losses]
            if objective.flux.beta:
                previous = previous_codes(batch.patches, output.scored, config)
                losses.append(Loss("flux", 1.0, flux_loss(output.logits[0], previous, objective.flux)))
        return LossOutput(tuple(losses), output.cross_attention)

    def distillation_losses(
        self, batch: PretrainBatch, arguments: tuple[Tensor, ...], output: Mars6Output
    ) -> list[Loss]:
        """Cross-entropy with the teacher's distribution of every scored token; the hidden-state loss, if configured."""
        level_weights = self.config.objective.level_weights
        teacher, settings = cast(Mars6, self.modules[TEACHER]), self.config.letters_distillation
        if settings is None:
            scale = self.config.guidance_distillation_scale
            probs = guided_probs(teacher, scale, self.special_tokens, *arguments)
            return [Loss("distill_loss", 1.0, distillation_loss(output.logits, probs, level_weights))]
        letters, is_distilled = batch.letters, batch.letters["is_distilled"]
        with torch.no_grad():
            taught = teacher(letters["ids"], letters["lengths"], *arguments[2:], scored=output.scored)
        probs = target_probs(taught, is_distilled, batch.patches, self.config.model)
        losses = [Loss("distill_loss", 1.0, distillation_loss(output.logits, probs, level_weights))]
        if settings.hidden_state_weight:
            mask = length_mask(batch.patch_lengths, batch.patches.shape[1]) & is_distilled[:, None]
            hidden = settings.hidden_state_weight * hidden_state_loss(output, taught, mask)
            losses.append(Loss("hidden_state_loss", 1.0, hidden))  # the log has it with its weight
        return losses

    def throughput(self, num_patches: float) -> float:
        """Seconds of audio per second since the last step, over all processes."""
        now, before = time.monotonic(), self.last_step_at
        self.last_step_at = now
        return num_patches * self.seconds_per_patch * world_size() / (now - before)

    @torch.no_grad()
    def validate(self, step: int) -> dict[str, float]:
        """Losses, accuracy per level and attention scores of the EMA weights on held-out utterances."""
        sums: dict[str, float] = {}
        weights = 0
        guidance = self.config.attention_guidance
        for items in self.validation_items:
            batch = self.collate_validation(items).to(self.device)
            output = self.losses(self.ema, batch, guidance.layers)
            scores = values(output.losses) | attention_scores(
                output.cross_attention, batch.patch_lengths, guidance.heads
            )
            weight = int(batch.patch_lengths.sum())
            weights += weight
            for name, value in scores.items():
                sums[name] = sums.get(name, 0.0) + weight * float(value)
        self.last_step_at = time.monotonic()
        return {name: total / weights for name, total in sums.items()}


def next_token_losses(loss: NextTokenLoss, weight: float) -> list[Loss]:
    """`loss` with this weight; for the log alone, cross-entropy and accuracy of each level."""
    by_level = {"loss": loss.levels, "accuracy": loss.accuracy}
    named = {f"{name}{level}": value for name, levels in by_level.items() for level, value in enumerate(levels)}
    return [Loss("loss", weight, loss.total), *(Loss(name, 0.0, value) for name, value in named.items())]


def compile_layers(model: Mars6) -> None:
    """Compile layer by layer: layers of a kind share the compiled code, for all lengths."""
    for layer in model.modules():
        if isinstance(layer, (SelfLayer, CrossLayer)):
            layer.compile(dynamic=True)


def check_fit(config: PretrainConfig, corpus: Corpus, tokenizer: BPE) -> None:
    """ConfigError listing everything in which model and corpus differ; DataError if a split is empty."""
    sizes = {
        "codebook_size": (config.model.codebook_size, corpus.codec.codebook_size),
        "patch_layout": (config.model.patch_layout, corpus.codec.patch_layout),
        "identity_size": (config.model.identity_size, embedding_size(corpus, "identity")),
        "style_size": (config.model.style_size, embedding_size(corpus, "style")),
        "text_vocab_size": (config.model.text_vocab_size, tokenizer.vocab_size),
    }
    complaints = [
        f"model.{name} is {ours}, but that of the data is {theirs}"
        for name, (ours, theirs) in sizes.items()
        if ours != theirs
    ]
    weights, levels = config.objective.level_weights, len(config.model.patch_layout)
    if len(weights) != levels:
        complaints.append(f"objective.level_weights are {weights}, but the model predicts {levels} levels of codes")
    layers, num_layers = config.attention_guidance.layers, config.model.global_layers
    if any(not 0 <= layer < num_layers for layer in layers):
        complaints.append(
            f"attention_guidance.layers are {layers}, but the global decoder has layers 0 to {num_layers - 1}"
        )
    if complaints:
        raise ConfigError("; ".join(complaints))
    for name in ("train", "validation"):
        if name not in corpus.utterances.strings("split"):
            raise DataError(f"the corpus has no utterances in its {name} split; mark some in the manifest")


def embedding_size(corpus: Corpus, role: str) -> int | None:
    """The size of the embeddings of a role; None where the corpus has none."""
    encoder = corpus.encoders.get(role)
    return None if encoder is None else encoder.size
