"""Generation: prompts in, patches of tokens out, one patch after another.

Upstream: `prompt.Prompt`, and a `Stepper` that runs the model.  Downstream: `patches.unpatchify`, then the codec.
MARS6 (arXiv:2501.05787), Sec. IV-B1 (repetition-aware sampling on L0).  Deviations: end of speech can be held back
until a minimum length, as in the published code, but counting the patches that are really returned.
Shapes: B rows still speaking · P positions of a patch · C codes per level.

The loop is plain NumPy and knows no engine. Rows do not influence each other: each has its own generator of random
numbers, which gives the same count of numbers for every patch, its own history, limits and end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.config import Config
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import Prompt
from marstts.sampling import NO_ID, draw, keep_nucleus, repetition_aware_sample

State = TypeVar("State")


class Stepper(Protocol[State]):
    """A way to run the model, row by row of a batch. A `State` is a value: a method never changes the one it is given.

    Usage: `start`; then per patch `local_logits` with 0, 1, …, P - 1 tokens in turn, `select` as rows end, `append`.
    """

    @property
    def config(self) -> Mars6Config: ...

    def start(self, prompts: Sequence[Prompt]) -> State:
        """Read the texts and hear the prefixes, which may differ in length: ready for patch 0 of each row."""
        ...

    def local_logits(self, state: State, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], State]:
        """tokens (B, p) chosen in this patch so far -> logits (B, C + 1) of position p over its level's codes, the
        last column being end of speech, and the state that has heard those tokens.
        """
        ...

    def append(self, state: State, patches: NDArray[np.int64]) -> State:
        """Hear a finished patch of each row, patches (B, P): ready for the next one."""
        ...

    def select(self, state: State, rows: Sequence[int]) -> State:
        """Only these rows, in this order."""
        ...


@dataclass(frozen=True, eq=False)
class PatchDraws:
    """All that decides the next patch of each row, apart from what the model says; every row has its own."""

    uniforms: NDArray[np.float64]
    """(B, P, 2) random numbers in [0, 1): for each position one to draw with, and one to draw again with."""

    top_p: NDArray[np.float64]
    """(B,) nucleus: 0 = greedy, 1 or more = the full distribution."""

    may_end: NDArray[np.bool_]
    """(B,) False = end of speech is forbidden in this patch."""

    recent: NDArray[np.int64]
    """(B, K) the last L0 codes heard, oldest first, padded in front with `NO_ID`."""

    max_ratio: NDArray[np.float64]
    """(B,) a pick that makes up more of the recent codes than this is drawn again."""


@runtime_checkable
class PatchStepper(Protocol[State]):
    """A `Stepper` that has a quicker way to a whole patch than one position after the other."""

    def sample_patch(self, state: State, draws: PatchDraws) -> tuple[NDArray[np.int64], State]:
        """What `sample_positions` returns, though logits may differ by rounding. The state stands where it would stand
        after the last `local_logits`: `append` and `select` come next.
        """
        ...


class SamplingConfig(Config):
    """How tokens are drawn (MARS6, Sec. IV-B)."""

    top_p: float = Field(0.2, ge=0.0)
    """Nucleus of the first attempt at a sentence: 0 = greedy, 1 or more = the full distribution."""

    ras_window: int = Field(10, gt=0)
    """K, how many of the last L0 codes a pick is compared with (Sec. IV-B1)."""

    ras_max_ratio: float = Field(0.09, ge=0.0)
    """t_r: a pick that makes up more of those than this is drawn again from the full distribution; 1 = never."""


@dataclass(frozen=True)
class Limits:
    """Bounds on the new patches of a row."""

    min_patches: int
    """End of speech is forbidden before so many are complete."""

    max_patches: int
    """Generation stops when so many are complete."""

    def __post_init__(self) -> None:
        assert 0 <= self.min_patches <= self.max_patches, f"{self.min_patches} to {self.max_patches} patches"


class StopReason(str, Enum):
    """Why a row stopped."""

    EOS = "end of speech"
    MAX_PATCHES = "patch limit"


@dataclass(frozen=True, eq=False)
class Generated:
    """What was generated for one prompt."""

    tokens: NDArray[np.int64]
    """(T, P) new patches only, T = 0 if speech ended at once; never holds end of speech."""

    stop: StopReason


@dataclass
class Row:
    """One utterance on its way; lives inside `generate` only."""

    top_p: float
    limits: Limits
    rng: np.random.Generator
    heard: list[int]
    """L0 codes so far, prefix included."""

    patches: list[NDArray[np.int64]] = field(default_factory=list)
    stop: StopReason | None = None

    @property
    def may_end(self) -> bool:
        return len(self.patches) >= self.limits.min_patches

    def take(self, patch: NDArray[np.int64], config: Mars6Config) -> None:
        """Keep a patch (P,), or end: an unfinished patch is dropped."""
        if (patch == config.eos).any():
            self.stop = StopReason.EOS
            return
        self.patches.append(patch)
        self.heard.extend(patch[: config.patch_layout[0]].tolist())
        self.check_limit()

    def check_limit(self) -> None:
        if len(self.patches) >= self.limits.max_patches:
            self.stop = StopReason.MAX_PATCHES

    def result(self, config: Mars6Config) -> Generated:
        assert self.stop is not None
        tokens = np.array(self.patches, dtype=np.int64).reshape(-1, config.patch_size)
        return Generated(tokens, self.stop)


def generate(
    stepper: Stepper[Any],
    prompts: Sequence[Prompt],
    *,
    top_p: Sequence[float],
    limits: Sequence[Limits],
    rngs: Sequence[np.random.Generator],
    sampling: SamplingConfig,
) -> list[Generated]:
    """Speak every prompt; `top_p`, `limits` and `rngs` are per prompt. Results come in the order of the prompts.

    A row's result depends on nothing but its own prompt, top_p, limits and generator.
    """
    config = stepper.config
    rows = [
        Row(p, limit, rng, heard=prompt.prefix_tokens[:, : config.patch_layout[0]].flatten().tolist())
        for prompt, p, limit, rng in zip(prompts, top_p, limits, rngs, strict=True)
    ]
    for row in rows:
        row.check_limit()
    speaking, state = rows, stepper.start(prompts) if prompts else None
    while staying := [index for index, row in enumerate(speaking) if row.stop is None]:
        if len(staying) < len(speaking):
            speaking, state = [speaking[index] for index in staying], stepper.select(state, staying)
        if speaking[0].patches:  # all rows have the same number of new patches
            state = stepper.append(state, np.stack([row.patches[-1] for row in speaking]))
        patches, state = sample_patch(stepper, state, patch_draws(speaking, config, sampling))
        for row, patch in zip(speaking, patches, strict=True):
            row.take(patch, config)
    return [row.result(config) for row in rows]


def patch_draws(rows: Sequence[Row], config: Mars6Config, sampling: SamplingConfig) -> PatchDraws:
    """What the rows bring to their next patch; takes its random numbers from their generators."""
    return PatchDraws(
        uniforms=np.stack([row.rng.random((config.patch_size, 2)) for row in rows]),
        top_p=np.array([row.top_p for row in rows], np.float64),
        may_end=np.array([row.may_end for row in rows], bool),
        recent=recent_codes([row.heard for row in rows], sampling.ras_window),
        max_ratio=np.full(len(rows), sampling.ras_max_ratio),
    )


def sample_patch(stepper: Stepper[Any], state: Any, draws: PatchDraws) -> tuple[NDArray[np.int64], Any]:
    """Tokens (B, P) of the next patch of each row, and the state after them: the engine's own way if it has one."""
    if isinstance(stepper, PatchStepper):
        return stepper.sample_patch(state, draws)
    return sample_positions(stepper, state, draws)


def sample_positions(stepper: Stepper[Any], state: Any, draws: PatchDraws) -> tuple[NDArray[np.int64], Any]:
    """Tokens (B, P) of the next patch of each row, coarse to fine, one position after the other, and the state then.

    Where end of speech is drawn, the rest of that row's patch is end of speech too.
    """
    config = stepper.config
    batch = len(draws.uniforms)
    tokens = np.full((batch, config.patch_size), config.eos, dtype=np.int64)
    ended = np.zeros(batch, dtype=bool)
    for position, level in enumerate(config.position_levels):
        logits, state = stepper.local_logits(state, tokens[:, :position])
        picks = sample_codes(logits, level, tokens[:, :position], draws)
        ended |= picks == config.codebook_size
        if ended.all():
            break
        tokens[:, position] = np.where(ended, config.eos, picks + level * config.codebook_size)
    return tokens, state


def sample_codes(
    logits: NDArray[np.float32], level: int, tokens: NDArray[np.int64], draws: PatchDraws
) -> NDArray[np.int64]:
    """One pick per row from logits (B, C + 1), C meaning end of speech; repetition-aware on L0.

    tokens (B, p) are those of this patch so far.
    """
    logits = logits.copy()
    logits[~draws.may_end, -1] = -np.inf
    uniforms = draws.uniforms[:, tokens.shape[1]]  # (B, 2)
    if level > 0:
        return draw(keep_nucleus(logits, draws.top_p), uniforms[:, 0])
    window = draws.recent.shape[1]
    return repetition_aware_sample(
        logits,
        np.concatenate((draws.recent, tokens), axis=1)[:, -window:],
        top_p=draws.top_p,
        max_ratio=draws.max_ratio,
        uniforms=uniforms[:, 0],
        second_uniforms=uniforms[:, 1],
    )


def recent_codes(histories: Sequence[Sequence[int]], window: int) -> NDArray[np.int64]:
    """The last `window` codes of each history -> (B, window), shorter ones padded in front."""
    recent = np.full((len(histories), window), NO_ID, dtype=np.int64)
    for row, history in zip(recent, histories, strict=True):
        last = history[-window:]
        row[window - len(last) :] = last
    return recent
