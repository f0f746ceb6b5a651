"""Preference tuning: what a model should say made more likely, what it should not say less, from pairs of both.

Upstream: `data.pairs`, a bundle's model.  Downstream: the run folder, as `training.loop` and `pretrain.trained_model`
know it; whoever judges the model every so often (`judge`), for this room has no ears.
MARS6 (arXiv:2501.05787), Sec. III-D and IV-A, with odds-ratio preference optimisation (ORPO, arXiv:2403.07691) and
equation 1.  Deviations: log-probabilities are means over all seven positions of all patches, so that a long take is not
improbable for its length; a take that was cut off has no end of speech to be scored; a take that was spoken with
guidance (`engine.guided`) is scored without, as the model alone would say it.
Shapes: B pairs · R = 2B rows, the chosen sides first · S text tokens · T patches, prefix included · P positions ·
N scored patches.
"""

from __future__ import annotations

import hashlib
import json
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
from marstts.config import Config, write_config
from marstts.data.pairs import Pair
from marstts.errors import CheckpointError, ConfigError
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.mars6.objective import FluxConfig, flux_loss, level_targets, previous_codes
from marstts.mars6.patches import eos_patch, patchify
from marstts.mars6.prompt import prompt_string
from marstts.text.bpe import BPE
from marstts.training.distributed import rank, world_size
from marstts.training.loop import LoopConfig
from marstts.training.optim import (
    OptimizerConfig,
    averaged_copy,
    learning_rate,
    make_optimizer,
    update,
    update_average,
)
from marstts.training.pretrain import (
    AVERAGE,
    CONFIG_FILE,
    MODEL,
    PADDING,
    TOKENIZER_FILE,
    Precision,
    pad,
    pick_device,
)

CLAIM_FILE = "made_from.json"
"""What a run was begun with; it goes on with the same only."""

Judge = Callable[[Mars6, int], Mapping[str, float]]
"""Listens to a model at a step, and says what to log."""


class TuneConfig(Config):
    """A preference tuning."""

    loop: LoopConfig
    """Judges listen every `validate_every` steps, and after the last."""

    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-5, warmup_steps=20, average_decay=0.99)

    odds_weight: float = Field(0.2, ge=0.0)
    """λ: weight of the odds ratio beside the likelihood of the chosen side; 0 = plain fine-tuning on it."""

    flux: FluxConfig = FluxConfig(beta=0.1)
    """The flux loss of the chosen side (equation 1); its `beta` is its weight."""

    pairs_per_batch: int = Field(8, gt=0)
    precision: Precision = Precision.BF16
    device: str = "auto"
    """A PyTorch device, or `auto`: the first GPU if there is one."""


class TuneRun(Config):
    """`config.json` of a tuning's run folder."""

    model: Mars6Config
    tune: TuneConfig


@dataclass(frozen=True)
class Rows:
    """Both sides of B pairs as R rows; tensors on one device."""

    text_ids: Tensor
    """(R, S) padded with 0."""

    text_lengths: Tensor
    """(R,)."""

    identity: Tensor
    """(R, E1)."""

    style: Tensor
    """(R, E2)."""

    patches: Tensor
    """(R, T, P) prefix, then what was said, then end of speech if it was said; padded with -100."""

    patch_lengths: Tensor
    """(R,) all of these."""

    prefix_lengths: Tensor
    """(R,) patches that are given, not scored."""

    def to(self, device: torch.device) -> Rows:
        return Rows(**{name: tensor.to(device, non_blocking=True) for name, tensor in vars(self).items()})

    @property
    def wanted(self) -> Tensor:
        """(R, T) False where the prefix is."""
        return torch.arange(self.patches.shape[1], device=self.patches.device) >= self.prefix_lengths.unsqueeze(1)


@dataclass(frozen=True)
class OrpoLoss:
    """What is minimised, and what it is made of; scalars."""

    total: Tensor
    likelihood: Tensor
    """Mean negative log-probability of a chosen token, in nats."""

    odds: Tensor
    """-log sigmoid of the log odds ratio: ln 2 where both sides are equally likely."""

    margin: Tensor
    """The log odds ratio itself."""

    preferred: Tensor
    """Share of pairs whose chosen side is the likelier one."""


def token_log_probabilities(logits: tuple[Tensor, ...], patches: Tensor, config: Mars6Config) -> Tensor:
    """logits per level (N, layout[l], C + 1), patches (N, P) -> (N, P): log-probability of each token."""
    parts = []
    for scores, wanted in zip(logits, level_targets(patches, config), strict=True):
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
        parts.append(exact.log_softmax(dim=-1).gather(2, wanted.unsqueeze(2)).squeeze(2))
    return torch.cat(parts, dim=1)


def mean_log_probabilities(log_probabilities: Tensor, scored: Tensor) -> Tensor:
    """(N, P) of the patches where scored (R, T) is True -> (R,): the mean over a row's tokens."""
    rows = scored.nonzero()[:, 0]
    sums = log_probabilities.new_zeros(len(scored)).index_add(0, rows, log_probabilities.mean(dim=1))
    return sums / scored.sum(dim=1)


def log_odds(log_probabilities: Tensor) -> Tensor:
    """log(p / (1 - p)) of log-probabilities of any shape, all below 0."""
    return log_probabilities - torch.log(-torch.expm1(log_probabilities))


def orpo_loss(chosen: Tensor, rejected: Tensor, odds_weight: float) -> OrpoLoss:
    """chosen, rejected (B,) mean log-probabilities of both sides of B pairs. arXiv:2403.07691, equations 4 to 7."""
    margin = log_odds(chosen) - log_odds(rejected)
    likelihood, odds = -chosen.mean(), -F.logsigmoid(margin).mean()
    preferred = (chosen > rejected).to(chosen.dtype).mean()
    return OrpoLoss(likelihood + odds_weight * odds, likelihood, odds, margin.mean(), preferred)


class PairCollator:
    """Pairs → rows of a batch."""

    def __init__(self, pairs: Sequence[Pair], tokenizer: BPE, config: Mars6Config, quality: int) -> None:
        """`quality` is the rate (Hz) that the quality prefix announces, the one the takes were spoken with."""
        self.pairs, self.tokenizer, self.config, self.quality = pairs, tokenizer, config, quality

    def __call__(self, indices: Sequence[int]) -> Rows:
        """Rows of these pairs, on the CPU: all chosen sides, then all rejected ones."""
        pairs = [self.pairs[index] for index in indices]
        texts = [self.text_ids(pair) for pair in pairs] * 2
        sides = [(pair.prefix, pair.chosen, pair.line.chosen.ended) for pair in pairs]
        sides += [(pair.prefix, pair.rejected, pair.line.rejected.ended) for pair in pairs]
        patches = [self.patches(*side) for side in sides]
        return Rows(
            text_ids=pad(texts, 0),
            text_lengths=torch.tensor([len(text) for text in texts]),
            identity=torch.from_numpy(np.stack([pair.identity for pair in pairs] * 2)),
            style=torch.from_numpy(np.stack([pair.style for pair in pairs] * 2)),
            patches=pad(patches, PADDING),
            patch_lengths=torch.tensor([len(one) for one in patches]),
            prefix_lengths=torch.tensor([len(self.tokens(prefix)) for prefix, _, _ in sides]),
        )

    def text_ids(self, pair: Pair) -> NDArray[np.int64]:
        """(S,) what the encoder reads."""
        string = prompt_string(pair.line.text, quality=self.quality, transcript=pair.line.transcript)
        return np.asarray(self.tokenizer.encode(string), dtype=np.int64)

    def patches(self, prefix: Codes, said: Codes, ended: bool) -> NDArray[np.int64]:
        """(T, P)."""
        end = [eos_patch(self.config)] if ended else []
        return np.concatenate([self.tokens(prefix), self.tokens(said), *end])

    def tokens(self, codes: Codes) -> NDArray[np.int64]:
        return patchify(codes, self.config.patch_layout, self.config.codebook_size)


def pairs_of_batch(num_pairs: int, size: int, seed: int, batch: int) -> list[int]:
    """Which pairs batch `batch` holds: epoch after epoch, each in an order of its own."""
    places = range(batch * size, (batch + 1) * size)
    orders = {
        epoch: np.random.default_rng((seed, epoch)).permutation(num_pairs)
        for epoch in {place // num_pairs for place in places}
    }
    return [int(orders[place // num_pairs][place % num_pairs]) for place in places]


class TuneTask:
    """Preference tuning as a `training.loop.Task`; what happens at a step is a function of the step."""

    def __init__(
        self,
        config: TuneConfig,
        pairs: Sequence[Pair],
        base: Mars6,
        tokenizer: BPE,
        *,
        quality: int,
        judge: Judge | None = None,
    ) -> None:
        """Begins with the weights of `base`, which is left as it is."""
        self.config, self.judge, self.num_pairs = config, judge, len(pairs)
        self.device = pick_device(config.device)
        self.model = averaged_copy(base).requires_grad_(True).to(self.device).train()
        self.average = averaged_copy(self.model)
        self.modules: dict[str, nn.Module] = {MODEL: self.model, AVERAGE: self.average}
        self.optimizer = make_optimizer(self.model, config.optimizer)
        self.optimizers: dict[str, torch.optim.Optimizer] = {"model": self.optimizer}
        self.collate = PairCollator(pairs, tokenizer, base.config, quality)

    def training_rows(self, step: int) -> Rows:
        """The batch of a step, of this process."""
        batch = step * world_size() + rank()
        indices = pairs_of_batch(self.num_pairs, self.config.pairs_per_batch, self.config.loop.seed, batch)
        return self.collate(indices).to(self.device)

    def train_step(self, step: int) -> dict[str, float | Tensor]:
        """One update on the batch of this step."""
        config = self.config
        loss, flux = self.score(self.model, self.training_rows(step))
        rate = learning_rate(step, config.loop.steps, config.optimizer)
        norm = update(self.optimizer, loss.total + flux, rate, config.optimizer.clip_norm)
        update_average(self.average, self.model, step, config.optimizer.average_decay)
        parts = {name: value.detach() for name, value in vars(loss).items() if name != "total"}
        return {"loss": (loss.total + flux).detach(), **parts, "flux": flux.detach(), "gradient": norm}

    def score(self, model: Mars6, rows: Rows) -> tuple[OrpoLoss, Tensor]:
        """The preference loss of a batch, and the flux loss of its chosen sides."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision is Precision.BF16):
            logits, scored = teacher_forced(model, rows)
        values = mean_log_probabilities(
            token_log_probabilities(logits, rows.patches[scored], model.config), scored
        )  # (R,)
        chosen, rejected = values.chunk(2)
        half = len(chosen)
        count = int(scored[:half].sum())
        previous = previous_codes(rows.patches[:half], scored[:half], model.config)
        flux = flux_loss(logits[0][:count], previous, self.config.flux)
        return orpo_loss(chosen, rejected, self.config.odds_weight), flux

    @torch.no_grad()
    def validate(self, step: int, writer: Any) -> dict[str, float]:
        """What the judges say of the averaged weights; nothing without judges."""
        return {} if self.judge is None else dict(self.judge(self.average, step))


def teacher_forced(model: Mars6, rows: Rows) -> tuple[tuple[Tensor, ...], Tensor]:
    """Logits per level (N, layout[l], C + 1) of the N patches that are scored (R, T): neither prefix nor padding."""
    output = model(
        rows.text_ids,
        rows.text_lengths,
        rows.identity,
        rows.style,
        rows.patches,
        rows.patch_lengths,
        scored=rows.wanted,
    )
    return output.logits, output.scored


def open_tuning(folder: Path, config: TuneConfig, base: Mars6, tokenizer: BPE, claim: Mapping[str, str]) -> None:
    """Make `folder` a tuning's: configuration, tokenizer, and what it is made from (`claim`).

    ConfigError if the folder was begun with something else, which a resumed run would mix.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CLAIM_FILE
    if path.is_file():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: expected what the run was made from, but {error}") from error
        changed = [name for name, value in claim.items() if found.get(name) != value]
        if changed:
            raise ConfigError(f"{folder}: was begun with another {' and '.join(changed)}; choose a new --output")
    path.write_text(json.dumps(dict(claim), indent=2) + "\n", encoding="utf-8")
    tokenizer.save(folder / TOKENIZER_FILE)
    write_config(TuneRun(model=base.config, tune=config), folder / CONFIG_FILE)


def digest(*paths: Path) -> str:
    """Hash of the contents of files."""
    hashed = hashlib.sha256()
    for path in paths:
        hashed.update(hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()[:16]
