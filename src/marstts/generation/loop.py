"""The generation loop: requests in, patches of tokens out, one patch after another.

Upstream: `request.Request`, and an `Engine` that runs the model.  Downstream: `scheduler`, and callers of `generate`.
MARS6 (arXiv:2501.05787), Sec. IV-B1 (repetition-aware sampling on L0).  Deviations: end of speech can be forbidden
until a minimum length, as in the published code, but counting the patches that are really returned.
Shapes: B rows of the running batch · P positions of a patch · C codes per level.

The loop is plain NumPy. `step` makes one patch of every row of a `RunningBatch`; rows join and leave between patches.
Rows do not influence each other: each has its own random number generator, which gives the same count of numbers for
every patch, its own history, sampling parameters, limits and end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from marstts.generation.engine import (
    Engine,
    PatchSampler,
    SamplingInputs,
    TokenLayout,
    fits_protocol,
    keep_rows,
    text_attention,
)
from marstts.generation.request import (
    Generated,
    Limits,
    Prompt,
    Request,
    RequestState,
    SamplingConfig,
)
from marstts.generation.sampling import NO_ID, draw, keep_nucleus, repetition_aware_sample


@dataclass(frozen=True, eq=False)
class ParkedRow:
    """A row that was taken out of its batch, to be resumed later; its tokens do not depend on that."""

    row: RequestState

    state: Any
    """The engine's state of this row alone, its last patch appended."""


@dataclass(frozen=True, eq=False)
class RunningBatch:
    """The rows of a batch between two patches; a value, but for the rows' random number generators."""

    rows: tuple[RequestState, ...] = ()
    """Rows of the batch, including those that ended with the last patch."""

    state: Any = None
    """The engine's state of the rows that made the last patch."""

    is_appended: bool = False
    """Whether the last patches are in the state already."""

    @property
    def active(self) -> tuple[RequestState, ...]:
        """Rows that are not finished."""
        return tuple(row for row in self.rows if row.stop is None)

    @property
    def ended(self) -> tuple[RequestState, ...]:
        """Rows that finished with the last patch."""
        return tuple(row for row in self.rows if row.stop is not None)


def step(
    engine: Engine[Any],
    batch: RunningBatch,
    admitted: Sequence[Request] = (),
    cancelled: Collection[Request] = (),
    *,
    resumed: Sequence[ParkedRow] = (),
) -> RunningBatch:
    """Make one more patch of every active row, of every `resumed` one, and the first of every `admitted` request.

    Rows that have ended or are `cancelled` leave the batch; where there are any, `batch` may not be used any more.
    """
    layout = engine.layout
    batch = append_patches(engine, without_done(engine, batch, cancelled))
    new = [RequestState.begin(request, layout) for request in admitted]
    done_at_start = tuple(row for row in new if row.stop is not None)
    starting = [row for row in new if row.stop is None]
    rows = [*batch.rows, *(one.row for one in resumed), *starting]
    if not rows:
        return RunningBatch(done_at_start)
    states = [*([batch.state] if batch.rows else []), *(one.state for one in resumed)]
    if starting:
        states.append(engine.start([row.request.prompt for row in starting]))
    state = states[0] if len(states) == 1 else engine.join(states)
    patches, state = sample_patch(engine, state, sampling_inputs(rows, layout))
    attention = text_attention(engine, state)
    seen = [None] * len(rows) if attention is None else attention
    advanced = [row.after(patch, layout, step) for row, patch, step in zip(rows, patches, seen, strict=True)]
    return RunningBatch((*advanced, *done_at_start), state)


def without_done(engine: Engine[Any], batch: RunningBatch, cancelled: Collection[Request] = ()) -> RunningBatch:
    """The batch without the rows that have ended or are `cancelled`; if there are any, `batch` may not be used then.

    The last rows take the places of those that leave, so that few are moved.
    """
    kept = [i for i, row in enumerate(batch.rows) if row.stop is None and row.request not in cancelled]
    if len(kept) == len(batch.rows):
        return batch
    return keep_places(engine, batch, kept)


def keep_places(engine: Engine[Any], batch: RunningBatch, kept: Sequence[int]) -> RunningBatch:
    """Keep the rows at the places `kept`, rising; the last of them fill the gaps."""
    if not kept:
        return RunningBatch()
    moved = iter([place for place in kept if place >= len(kept)])
    order = [place if place in kept else next(moved) for place in range(len(kept))]
    state = keep_rows(engine, batch.state, order)
    return RunningBatch(tuple(batch.rows[place] for place in order), state, batch.is_appended)


def append_patches(engine: Engine[Any], batch: RunningBatch) -> RunningBatch:
    """The batch, whose rows are all active, with their last patches appended."""
    if batch.is_appended or not batch.rows:
        return batch
    state = engine.append(batch.state, np.stack([row.patches[-1] for row in batch.rows]))
    return RunningBatch(batch.rows, state, is_appended=True)


def park_rows(
    engine: Engine[Any], batch: RunningBatch, leaving: Collection[Request]
) -> tuple[RunningBatch, tuple[ParkedRow, ...]]:
    """Take rows out of a batch whose rows are all active -> the others, and these; `batch` may not be used then."""
    places = [place for place, row in enumerate(batch.rows) if row.request in leaving]
    if not places:
        return batch, ()
    batch = append_patches(engine, batch)
    parked = tuple(ParkedRow(batch.rows[place], engine.select(batch.state, [place])) for place in places)
    return keep_places(engine, batch, [place for place in range(len(batch.rows)) if place not in places]), parked


def generate(
    engine: Engine[Any],
    prompts: Sequence[Prompt],
    *,
    top_p: Sequence[float],
    limits: Sequence[Limits],
    rngs: Sequence[np.random.Generator],
    sampling: SamplingConfig,
) -> list[Generated]:
    """Generate an utterance for every prompt, in their order; `top_p`, `limits` and `rngs` are per prompt.

    A row's result depends on nothing but its own prompt, top_p, limits and generator.
    """
    parts = zip(prompts, top_p, limits, rngs, strict=True)
    return generate_requests(engine, [Request(prompt, p, limit, rng, sampling) for prompt, p, limit, rng in parts])


def generate_requests(engine: Engine[Any], requests: Sequence[Request]) -> list[Generated]:
    """Generate all requests in one batch -> results in their order."""
    results: dict[Request, Generated] = {}
    batch = step(engine, RunningBatch(), requests)
    while batch.rows:
        results |= {row.request: row.result(engine.layout) for row in batch.ended}
        batch = step(engine, batch)
    return [results[request] for request in requests]


def sampling_inputs(rows: Sequence[RequestState], layout: TokenLayout) -> SamplingInputs:
    """Collect the sampling parameters of the rows; takes their random numbers from their generators."""
    requests = [row.request for row in rows]
    return SamplingInputs(
        uniforms=np.stack([request.rng.random((layout.patch_size, 2)) for request in requests]),
        top_p=np.array([request.top_p for request in requests], np.float64),
        may_end=np.array([row.may_end for row in rows], bool),
        recent=recent_codes([row.recent for row in rows], max(request.sampling.ras_window for request in requests)),
        max_ratio=np.array([request.sampling.ras_max_ratio for request in requests], np.float64),
    )


def sample_patch(engine: Engine[Any], state: Any, inputs: SamplingInputs) -> tuple[NDArray[np.int64], Any]:
    """Tokens (B, P) of the next patch of each row, and the state after them; a `PatchSampler` samples by itself."""
    if fits_protocol(type(engine), PatchSampler):
        return cast(PatchSampler[Any], engine).sample_patch(state, inputs)
    return sample_positions(engine, state, inputs)


def sample_positions(engine: Engine[Any], state: Any, inputs: SamplingInputs) -> tuple[NDArray[np.int64], Any]:
    """Tokens (B, P) of the next patch of each row, coarse to fine, one position after the other, and the state then.

    Where end of speech is drawn, the rest of that row's patch is end of speech too.
    """
    layout = engine.layout
    batch = len(inputs.uniforms)
    tokens = np.full((batch, layout.patch_size), layout.eos, dtype=np.int64)
    ended = np.zeros(batch, dtype=bool)
    for position, level in enumerate(layout.position_levels):
        logits, state = engine.next_logits(state, tokens[:, :position])
        picks = sample_codes(logits, level, tokens[:, :position], inputs)
        ended |= picks == layout.codebook_size
        if ended.all():
            break
        tokens[:, position] = np.where(ended, layout.eos, picks + level * layout.codebook_size)
    return tokens, state


def sample_codes(
    logits: NDArray[np.float32], level: int, tokens: NDArray[np.int64], inputs: SamplingInputs
) -> NDArray[np.int64]:
    """One pick per row from logits (B, C + 1), C meaning end of speech; repetition-aware on L0.

    tokens (B, p) are those of this patch so far.
    """
    logits = logits.copy()
    logits[~inputs.may_end, -1] = -np.inf
    uniforms = inputs.uniforms[:, tokens.shape[1]]  # (B, 2)
    if level > 0:
        return draw(keep_nucleus(logits, inputs.top_p), uniforms[:, 0])
    window = inputs.recent.shape[1]
    return repetition_aware_sample(
        logits,
        np.concatenate((inputs.recent, tokens), axis=1)[:, -window:],
        top_p=inputs.top_p,
        max_ratio=inputs.max_ratio,
        uniforms=uniforms[:, 0],
        second_uniforms=uniforms[:, 1],
    )


def recent_codes(histories: Sequence[Sequence[int]], window: int) -> NDArray[np.int64]:
    """The last `window` codes of each history -> (B, window), shorter ones padded in front."""
    last = [tuple(history[-window:]) for history in histories]
    return np.array([(NO_ID,) * (window - len(codes)) + codes for codes in last], np.int64)
