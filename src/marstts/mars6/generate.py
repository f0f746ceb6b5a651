"""Generation: prompts in, patches of tokens out, one patch after another.

Upstream: `prompt.Prompt`, and a `Stepper` that runs the model.  Downstream: `patches.unpatchify`, then the codec.
MARS6 (arXiv:2501.05787), Sec. IV-B1 (repetition-aware sampling on L0).  Deviations: end of speech can be held back
until a minimum length, as in the published code, but counting the patches that are really returned.
Shapes: B rows still speaking · P positions of a patch · C codes per level.

The loop is plain NumPy and knows no engine. `step` makes one patch of every row of a `Batch`; rows come in and leave at
the borders between patches. They do not influence each other: each has its own generator of random numbers, which gives
the same count of numbers for every patch, its own history, sampling, limits and end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
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

    Usage: `start`; then per patch `local_logits` with 0, 1, …, P - 1 tokens in turn, `select` as rows end, `append`,
    `join` as rows come in.
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

    def join(self, states: Sequence[State]) -> State:
        """The rows of all states (at least one) in turn, each of them fresh from `start` or `append`."""
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


@dataclass(frozen=True, eq=False)
class Job:
    """One utterance to be generated, and all that decides its tokens. Jobs are told apart by identity."""

    prompt: Prompt
    top_p: float
    limits: Limits

    rng: np.random.Generator
    """Its own: every patch takes numbers from it."""

    sampling: SamplingConfig
    """What decides beside `top_p`, which is the attempt's."""


@dataclass(frozen=True, eq=False)
class Row:
    """Where one job stands; a value."""

    job: Job

    recent: tuple[int, ...]
    """The last L0 codes, prefix included: as many as are looked at."""

    patches: tuple[NDArray[np.int64], ...] = ()
    """The new patches, (P,) each."""

    stop: StopReason | None = None
    """Why it ended, if it has."""

    @classmethod
    def begin(cls, job: Job, config: Mars6Config) -> Row:
        """Before its first patch, or already at its limit."""
        heard = job.prompt.prefix_tokens[:, : config.patch_layout[0]].flatten().tolist()
        return cls(job, tuple(heard[-job.sampling.ras_window :])).at_limit()

    @property
    def may_end(self) -> bool:
        return len(self.patches) >= self.job.limits.min_patches

    def after(self, patch: NDArray[np.int64], config: Mars6Config) -> Row:
        """With one more patch (P,), or ended: an unfinished patch is dropped."""
        if (patch == config.eos).any():
            return replace(self, stop=StopReason.EOS)
        recent = (*self.recent, *patch[: config.patch_layout[0]].tolist())[-self.job.sampling.ras_window :]
        return replace(self, recent=recent, patches=(*self.patches, patch)).at_limit()

    def at_limit(self) -> Row:
        """The same row, ended if it has all the patches it may have."""
        return replace(self, stop=StopReason.MAX_PATCHES) if len(self.patches) >= self.job.limits.max_patches else self

    def result(self, config: Mars6Config) -> Generated:
        """What an ended row has become."""
        assert self.stop is not None
        return Generated(np.array(self.patches, dtype=np.int64).reshape(-1, config.patch_size), self.stop)


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows side by side between two patches; a value, but for the rows' generators."""

    rows: tuple[Row, ...] = ()
    """Those that ended with the last patch are still among them."""

    state: Any = None
    """The engine's, of the rows that made the last patch. It has not heard that patch yet."""

    @property
    def speaking(self) -> tuple[Row, ...]:
        """Rows that go on."""
        return tuple(row for row in self.rows if row.stop is None)

    @property
    def ended(self) -> tuple[Row, ...]:
        """Rows that are missing from the next batch."""
        return tuple(row for row in self.rows if row.stop is not None)


def step(stepper: Stepper[Any], batch: Batch, coming: Sequence[Job] = (), leaving: Collection[Job] = ()) -> Batch:
    """One more patch of every row that speaks and is not `leaving`, and the first of every job that is `coming`."""
    config = stepper.config
    staying = [i for i, row in enumerate(batch.rows) if row.stop is None and row.job not in leaving]
    beginning = [Row.begin(job, config) for job in coming]
    stillborn = tuple(row for row in beginning if row.stop is not None)
    starting = [row for row in beginning if row.stop is None]
    rows = [*(batch.rows[index] for index in staying), *starting]
    if not rows:
        return Batch(stillborn)
    states = []
    if staying:
        state = batch.state if len(staying) == len(batch.rows) else stepper.select(batch.state, staying)
        states.append(stepper.append(state, np.stack([batch.rows[index].patches[-1] for index in staying])))
    if starting:
        states.append(stepper.start([row.job.prompt for row in starting]))
    state = states[0] if len(states) == 1 else stepper.join(states)
    patches, state = sample_patch(stepper, state, patch_draws(rows, config))
    return Batch((*(row.after(patch, config) for row, patch in zip(rows, patches, strict=True)), *stillborn), state)


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
    parts = zip(prompts, top_p, limits, rngs, strict=True)
    return generate_jobs(stepper, [Job(prompt, p, limit, rng, sampling) for prompt, p, limit, rng in parts])


def generate_jobs(stepper: Stepper[Any], jobs: Sequence[Job]) -> list[Generated]:
    """What becomes of the jobs, in their order; all begin at once."""
    results: dict[Job, Generated] = {}
    batch = step(stepper, Batch(), jobs)
    while batch.rows:
        results |= {row.job: row.result(stepper.config) for row in batch.ended}
        batch = step(stepper, batch)
    return [results[job] for job in jobs]


def patch_draws(rows: Sequence[Row], config: Mars6Config) -> PatchDraws:
    """What the rows bring to their next patch; takes its random numbers from their generators."""
    jobs = [row.job for row in rows]
    return PatchDraws(
        uniforms=np.stack([job.rng.random((config.patch_size, 2)) for job in jobs]),
        top_p=np.array([job.top_p for job in jobs], np.float64),
        may_end=np.array([row.may_end for row in rows], bool),
        recent=recent_codes([row.recent for row in rows], max(job.sampling.ras_window for job in jobs)),
        max_ratio=np.array([job.sampling.ras_max_ratio for job in jobs], np.float64),
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
