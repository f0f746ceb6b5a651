"""Preference training: chosen takes are made more likely, rejected ones less, from pairs of both.

Upstream: `data.pairs`, a bundle's model.  Downstream: the run folder, as `training.loop` and `run_folder.trained_model`
know it; a function that validates the model (`ValidateModel`), since this module scores no speech.
MARS6 (arXiv:2501.05787), Sec. III-D and IV-A, with odds-ratio preference optimization (ORPO, arXiv:2403.07691) and
equation 1.  Deviations: log-probabilities are means over all seven positions of all patches, so that a long take is not
improbable for its length; a truncated take has no end of speech to score; DPO (arXiv:2305.18290) may replace ORPO.
Shapes: B pairs · R = 2B rows, the chosen sides first · S text tokens · T patches, prefix included · P positions ·
N scored patches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from marstts.codec.base import Codes
from marstts.io.config import Config, write_config
from marstts.io.precision import Precision, autocast
from marstts.io.provenance import extend_provenance
from marstts.mars6.config import IDENTITY, STYLE, Conditioning, Mars6Config, eos_patch, patchify
from marstts.mars6.model import Mars6
from marstts.mars6.objective import FluxConfig, flux_loss, level_targets, previous_codes
from marstts.mars6.prompt import Mars6Prompt
from marstts.text.tokenizers.bpe import BPE
from marstts.voice import Voice
from marstts_lab.data.pairs import Pair
from marstts_lab.training.bounds import Weight
from marstts_lab.training.distributed import (
    Share,
    init_distributed,
    no_sync,
    pick_device,
    shares_of_step,
    world_size,
    wrap_ddp,
)
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.loss import Loss, total, values
from marstts_lab.training.mars6.batches import PADDING, TrainingBatch, pad_rows
from marstts_lab.training.mars6.phone_embeddings import train_phones_faster
from marstts_lab.training.mars6.run_folder import CONFIG_FILE, EMA, MODEL, TOKENIZER_FILE
from marstts_lab.training.optim import (
    OptimizerConfig,
    learning_rate,
    make_ema,
    make_optimizer,
    optimizer_step,
    update_ema,
)

ValidateModel = Callable[[Mars6, int], Mapping[str, float]]
"""Scores the EMA weights at a step; returns what to log."""

PromptOf = Callable[[str, Voice], Mars6Prompt]
"""The prompt of a text and a voice, which takes must be trained with as they were sampled (`Mars6Speech.prompt`)."""


class OrpoConfig(Config):
    """A preference training."""

    loop: LoopConfig
    """The model is validated every `validate_every` steps, and after the last."""

    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-5, warmup_steps=20, ema_decay=0.99)

    orpo_lambda: Weight = 0.2
    """λ: weight of the odds-ratio loss next to the likelihood of the chosen side; 0 = plain fine-tuning on it."""

    dpo_beta: Weight = 0.0
    """β of DPO (arXiv:2305.18290), whose reference is the initial model, in place of the odds-ratio loss, on mean
    log-probabilities of a token; 0 = ORPO, as in the paper."""

    likelihood_weight: Weight = 1.0
    """Weight of the likelihood of the chosen side."""

    flux: FluxConfig = FluxConfig(beta=0.1)
    """Flux loss of the chosen side (equation 1); its `beta` is its weight."""

    prefix_kl_weight: Weight = 0.0
    """Weight of the KL divergence from the initial model (nats a token) in the prefixes of the pairs, which have the
    beginning of a sentence that both sides end: what is not compared stays as it was. DPO only."""

    prefix_kl_ratio: float = Field(0.2, gt=0.0, le=1.0)
    """Ratio of the patches of a prefix that it is computed on."""

    phone_embedding_lr_scale: float = Field(1.0, gt=0.0)
    """Learning rate of the embeddings of phones and marks of intonation, times that of the other weights; with
    anything but 1, the embeddings of letters stay as they are."""

    train_phone_embeddings_alone: bool = False
    """Train these embeddings alone, so that texts without phones and marks are spoken as before (prompt tuning,
    arXiv:2104.08691); of a model that reads letters with phones, the marks alone."""

    pairs_per_batch: int = Field(8, gt=0, le=2**14)
    """Pairs that a process computes at a time."""

    accumulation_batches: int = Field(0, ge=0)
    """Batches of one update over all processes; 0 = one for each process."""

    precision: Precision = Precision.BF16
    device: str = "auto"
    """A PyTorch device, or `auto`: the first GPU if there is one."""


class OrpoRun(Config):
    """`config.json` of the run folder of a preference training."""

    model: Mars6Config
    training: OrpoConfig


@dataclass(frozen=True, eq=False)
class PairBatch(TrainingBatch):
    """Both sides of B pairs as R rows: a prefix, the take, and end of speech if the take has it."""

    prefix_lengths: Tensor
    """(R,) patches that are given, not scored."""

    @property
    def scored_mask(self) -> Tensor:
        """(R, T) False where the prefix is."""
        return torch.arange(self.patches.shape[1], device=self.patches.device) >= self.prefix_lengths.unsqueeze(1)


@dataclass(frozen=True, eq=False)
class ScoredSides:
    """What a model says of both sides of a batch. N patches are scored, those of prefixes among them."""

    means: tuple[Tensor, Tensor]
    """Mean log-probabilities of the chosen and of the rejected sides, each (B,)."""

    logits: tuple[Tensor, ...]
    """Per level, (N, layout[l], C + 1)."""

    at: Tensor
    """(N,) True where a side is, False in a prefix."""

    is_compared: Tensor
    """(R, T) True for the patches of sides."""

    def compared_logits(self, level: int) -> Tensor:
        """Logits of a level without those of prefixes."""
        return self.logits[level][self.at]


def prefix_divergence(found: ScoredSides, initial: ScoredSides) -> Tensor:
    """KL(initial || found) in the prefixes, the mean over their tokens in nats; 0 where no prefix is scored."""
    at = ~found.at
    if not bool(at.any()):
        return found.means[0].sum() * 0.0
    parts = [
        (before[at].softmax(-1) * (before[at].log_softmax(-1) - after[at].log_softmax(-1))).sum(-1)
        for before, after in zip(initial.logits, found.logits, strict=True)
    ]
    return torch.cat(parts, dim=1).mean()


def token_log_probabilities(logits: tuple[Tensor, ...], patches: Tensor, config: Mars6Config) -> Tensor:
    """logits per level (N, layout[l], C + 1), patches (N, P) -> (N, P): log-probability of each token."""
    parts = []
    for scores, targets in zip(logits, level_targets(patches, config), strict=True):
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
        parts.append(exact.log_softmax(dim=-1).gather(2, targets.unsqueeze(2)).squeeze(2))
    return torch.cat(parts, dim=1)


def mean_log_probabilities(log_probabilities: Tensor, scored: Tensor) -> Tensor:
    """(N, P) of the patches where scored (R, T) is True -> (R,): the mean over a row's tokens."""
    rows = scored.nonzero()[:, 0]
    sums = log_probabilities.new_zeros(len(scored)).index_add(0, rows, log_probabilities.mean(dim=1))
    return sums / scored.sum(dim=1)


def log_odds(log_probabilities: Tensor) -> Tensor:
    """log(p / (1 - p)) of log-probabilities of any shape, all below 0."""
    return log_probabilities - torch.log(-torch.expm1(log_probabilities))


def orpo_loss(chosen: Tensor, rejected: Tensor, orpo_lambda: float, likelihood_weight: float = 1.0) -> tuple[Loss, ...]:
    """chosen, rejected (B,) mean log-probabilities of both sides of B pairs. arXiv:2403.07691, equations 4 to 7.

    The margin is the log odds ratio.
    """
    margin = log_odds(chosen) - log_odds(rejected)
    preference = Loss("preference_loss", orpo_lambda, -F.logsigmoid(margin).mean())
    return preference_losses(chosen, rejected, preference, margin, likelihood_weight)


def dpo_loss(
    chosen: Tensor, rejected: Tensor, reference: tuple[Tensor, Tensor], beta: float, likelihood_weight: float
) -> tuple[Loss, ...]:
    """chosen, rejected (B,) and those of the initial model, mean log-probabilities. arXiv:2305.18290, equation 7.

    Deviations: means over a take's tokens instead of sums; the likelihood of the chosen side is added.
    The margin is how much more the chosen side has gained on the initial model, in nats a token.
    """
    margin = (chosen - reference[0]) - (rejected - reference[1])
    preference = Loss("preference_loss", 1.0, -F.logsigmoid(beta * margin).mean())
    return preference_losses(chosen, rejected, preference, margin, likelihood_weight)


def preference_losses(
    chosen: Tensor, rejected: Tensor, preference: Loss, margin: Tensor, likelihood_weight: float
) -> tuple[Loss, ...]:
    """The losses by their names in the log.

    `chosen_nll`: nats a token. `preference_loss`: -log sigmoid of the margin (with DPO, of β times it), ln 2 where both
    sides are equally likely. `preference_accuracy`: the ratio of pairs whose chosen side is more likely.
    """
    return (
        Loss("chosen_nll", likelihood_weight, -chosen.mean()),
        preference,
        Loss("margin", 0.0, margin.mean()),
        Loss("preference_accuracy", 0.0, (chosen > rejected).to(chosen.dtype).mean()),
    )


class PairCollator:
    """Pairs -> rows of a batch."""

    def __init__(self, pairs: Sequence[Pair], config: Mars6Config, prompt_of: PromptOf) -> None:
        self.pairs, self.config, self.prompt_of = pairs, config, prompt_of

    def __call__(self, indices: Sequence[int]) -> PairBatch:
        """Rows of these pairs, on the CPU: all chosen sides, then all rejected ones."""
        pairs = [self.pairs[index] for index in indices]
        prompts = [self.prompt_of(pair.line.text, pair.voice) for pair in pairs] * 2
        sides = [(pair.chosen, pair.line.chosen.has_eos) for pair in pairs]
        sides += [(pair.rejected, pair.line.rejected.has_eos) for pair in pairs]
        patches = [self.patches(prompt, *side) for prompt, side in zip(prompts, sides, strict=True)]
        return PairBatch(
            text_ids=pad_rows([prompt.text_ids for prompt in prompts], 0),
            text_lengths=torch.tensor([len(prompt.text_ids) for prompt in prompts]),
            embeddings={
                IDENTITY: torch.from_numpy(np.stack([prompt.identity for prompt in prompts])),
                STYLE: torch.from_numpy(np.stack([prompt.style for prompt in prompts])),
            },
            patches=pad_rows(patches, PADDING),
            patch_lengths=torch.tensor([len(one) for one in patches]),
            prefix_lengths=torch.tensor([len(prompt.prefix_tokens) for prompt in prompts]),
        )

    def patches(self, prompt: Mars6Prompt, take: Codes, has_eos: bool) -> NDArray[np.int64]:
        """(T, P) tokens of the prefix, the take, and end of speech if the take has it."""
        end = [eos_patch(self.config)] if has_eos else []
        tokens = patchify(take, self.config.patch_layout, self.config.codebook_size)
        return np.concatenate([prompt.prefix_tokens, tokens, *end])


def pairs_of_batch(num_pairs: int, size: int, seed: int, batch: int) -> list[int]:
    """The indices of the pairs of batch `batch`: epoch after epoch, each in another order."""
    positions = range(batch * size, (batch + 1) * size)
    orders = {
        epoch: np.random.default_rng((seed, epoch)).permutation(num_pairs)
        for epoch in {position // num_pairs for position in positions}
    }
    return [int(orders[position // num_pairs][position % num_pairs]) for position in positions]


class OrpoTask:
    """Preference training as a `training.loop.Task`; what happens at a step is a function of the step."""

    def __init__(
        self,
        config: OrpoConfig,
        pairs: Sequence[Pair],
        base: Mars6,
        prompt_of: PromptOf,
        tokenizer: BPE,
        *,
        validate_model: ValidateModel | None = None,
    ) -> None:
        """Begin with the weights of `base`, which is left as it is.

        `prompt_of` is how its bundle makes prompts, and `tokenizer` has their ids.
        """
        init_distributed()
        self.config, self.validate_model, self.num_pairs = config, validate_model, len(pairs)
        self.device = pick_device(config.device)
        self.model = make_ema(base).requires_grad_(True).to(self.device).train()
        if (
            config.dpo_beta
        ):  # the margin compares two models: one with dropout would lose to the other at the first step
            disable_dropout(self.model)
        self.ema = make_ema(self.model)
        self.initial = make_ema(self.model) if config.dpo_beta else self.model
        self.modules: dict[str, nn.Module] = {MODEL: self.model, EMA: self.ema}
        self.optimizer = make_optimizer(self.model, config.optimizer)
        alone, scale = config.train_phone_embeddings_alone, config.phone_embedding_lr_scale
        if alone or scale != 1:
            train_phones_faster(self.model, self.optimizer, scale, tokenizer, alone=alone)
        self.optimizers: dict[str, torch.optim.Optimizer] = {"model": self.optimizer}
        self.forward = wrap_ddp(self.model, all_used=base.config.conditioning is Conditioning.TWO_SLOTS)
        self.collate = PairCollator(pairs, base.config, prompt_of)

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update on the batches of this step."""
        config = self.config
        count = config.accumulation_batches or world_size()
        shares = shares_of_step(step * count, count)
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, Tensor] = {}
        for share in shares:
            with no_sync(self.forward, active=share is not shares[-1]):
                for name, value in self.backward(share, world_size() / count).items():
                    sums[name] = sums.get(name, 0.0) + value
        lr = learning_rate(step, config.loop.steps, config.optimizer)
        norm = optimizer_step(self.optimizer, lr, config.optimizer.grad_clip_norm)
        update_ema(self.ema, self.model, step, config.optimizer.ema_decay)
        return {**sums, "grad_norm": norm}

    def backward(self, share: Share, weight: float) -> dict[str, Tensor]:
        """Accumulate the gradient of a share of a batch that has `weight`; returns what to log, weighted alike."""
        whole = pairs_of_batch(self.num_pairs, self.config.pairs_per_batch, self.config.loop.seed, share.number)
        chosen = whole[share.rows(len(whole))]
        losses = self.losses(self.forward, self.collate(chosen).to(self.device))
        loss = total(losses)
        weight *= 0.0 if share.is_empty(len(whole)) else len(chosen) / len(whole)
        (loss * weight).backward()
        return {name: value * weight for name, value in {**values(losses), "loss": loss.detach()}.items()}

    def losses(self, model: Callable[..., Any], batch: PairBatch) -> tuple[Loss, ...]:
        """The preference losses of a batch, the flux loss of its chosen sides, and the divergence in prefixes."""
        config = self.config
        scored = batch.scored_mask | self.prefix_mask(batch)
        found = self.score(model, batch, scored)
        chosen, rejected = found.means
        half = len(chosen)
        count = int(found.is_compared[:half].sum())
        previous = previous_codes(batch.patches[:half], found.is_compared[:half], self.model.config)
        flux = Loss("flux", 1.0, flux_loss(found.compared_logits(0)[:count], previous, config.flux))
        if not config.dpo_beta:
            return *orpo_loss(chosen, rejected, config.orpo_lambda, config.likelihood_weight), flux
        with torch.no_grad():
            initial = self.score(self.initial, batch, scored)
        preference = dpo_loss(chosen, rejected, initial.means, config.dpo_beta, config.likelihood_weight)
        if not config.prefix_kl_weight:
            return *preference, flux
        return *preference, flux, Loss("prefix_kl", config.prefix_kl_weight, prefix_divergence(found, initial))

    def prefix_mask(self, batch: PairBatch) -> Tensor:
        """(R, T) True for the patches of prefixes that the divergence is computed on: the same ones for a batch."""
        if not (self.config.dpo_beta and self.config.prefix_kl_weight):
            return torch.zeros_like(batch.scored_mask)
        seed = int(batch.patches.clamp(min=0).sum()) % 2**31
        drawn = torch.rand(batch.scored_mask.shape, generator=torch.Generator().manual_seed(seed)).to(self.device)
        return (drawn < self.config.prefix_kl_ratio) & ~batch.scored_mask

    def score(self, model: Callable[..., Any], batch: PairBatch, scored: Tensor) -> ScoredSides:
        """The logits of the patches where scored (R, T), and the mean log-probabilities of both sides."""
        with autocast(self.device.type, self.config.precision):
            logits, kept = teacher_forced(model, batch, scored)
        is_compared = kept & batch.scored_mask
        at = is_compared[kept]
        values = token_log_probabilities(
            tuple(one[at] for one in logits), batch.patches[is_compared], self.model.config
        )
        chosen, rejected = mean_log_probabilities(values, is_compared).chunk(2)
        return ScoredSides((chosen, rejected), logits, at, is_compared)

    @torch.no_grad()
    def validate(self, step: int) -> dict[str, float]:
        """Scores of the EMA weights by `validate_model`; empty without it."""
        return {} if self.validate_model is None else dict(self.validate_model(self.ema, step))


def teacher_forced(
    model: Callable[..., Any], batch: PairBatch, scored: Tensor | None = None
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Logits per level (N, layout[l], C + 1) of the N patches that are scored (R, T); by default all but prefixes.

    Padding never is.
    """
    output = model(*batch.model_inputs(), scored=batch.scored_mask if scored is None else scored)
    return output.logits, output.scored


def disable_dropout(model: nn.Module) -> None:
    """Set the probability of all dropout layers to 0."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def open_orpo_run(
    folder: Path, config: OrpoConfig, base: Mars6Config, tokenizer: BPE, provenance: Mapping[str, str]
) -> None:
    """Write configuration, tokenizer and provenance of a preference training to its run folder.

    `provenance` names what it is trained with: hashes of the model, of the pairs, of the test set. ConfigError if the
    folder was begun with something else, which a resumed training would mix.
    """
    folder.mkdir(parents=True, exist_ok=True)
    extend_provenance(folder, dict(provenance))
    tokenizer.save(folder / TOKENIZER_FILE)
    write_config(OrpoRun(model=base, training=config), folder / CONFIG_FILE)


def files_hash(*paths: Path) -> str:
    """Hash of the contents of files."""
    hashed = hashlib.sha256()
    for path in paths:
        hashed.update(hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()[:16]
