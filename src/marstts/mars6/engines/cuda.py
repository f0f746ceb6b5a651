"""The CUDA engine: captured steps for running batches of any size, with static KV caches in slots.

Upstream: `mars6.model.Mars6`, `cuda_step`.  Downstream: `generation.loop`, by way of the `PatchSampler` protocol.
Batch, cache and memory are padded to powers of two, with a captured step for each combination that was met. The rows of
a state lie in slots of caches. A state is used once: the state made from it takes its slots over, and only the newest
state of a batch can continue. Batches take turns: when another batch needs the cache of a captured step, the rows that
are in it are copied to a separate cache; so are parked rows, once the others of their batch continue.
Shapes: P positions of a patch · D width · C codes per level · L, H, d global layers, heads and head width.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.generation.engine import SamplingInputs
from marstts.mars6.engines.cuda_step import BucketSize, CapturedStep, Compiler, SlotCache, StepInputs, as_written
from marstts.mars6.engines.torch import ModelOnDevice
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt
from marstts.mars6.prompt_batch import PromptBatch, collate
from marstts.nn.kv_cache import KVCache

MIN_CAPACITY, MIN_MEMORY = 128, 64
"""Least positions of a captured step, eleven seconds of speech, and of its memory; more come in powers of two."""

MAX_GRAPHS = 16
"""Captured steps kept at a time: each holds its caches on the device; the least recently used one is dropped."""


def bucket(size: int, smallest: int = 1) -> int:
    """The smallest power of two times `smallest` that holds `size`."""
    while smallest < size:
        smallest *= 2
    return smallest


def half_precision() -> torch.dtype:
    """The 16-bit format of this GPU: bfloat16, which cannot overflow, where it is supported."""
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


class PartialPatch(NamedTuple):
    """A patch in the making, position by position."""

    vectors: Tensor
    """(rows, D)."""

    tokens: tuple[KVCache, ...] = ()


@dataclass(eq=False)
class SlotAssignment:
    """The slots of a batch's rows. It moves when another batch needs them, so all states of a batch share it."""

    cells: list[tuple[SlotCache, int]]
    """Per row, a cache and a slot in it; all slots are distinct."""

    @property
    def caches(self) -> set[SlotCache]:
        """The caches with rows of this batch."""
        return {cache for cache, _ in self.cells}

    def slots_in(self, cache: SlotCache) -> list[int | None]:
        """Per row, its slot in `cache`; None if it lies elsewhere."""
        return [slot if found is cache else None for found, slot in self.cells]


@dataclass(eq=False)
class StaticState:
    """The state of some rows. Used once: `select`, `append`, `join` and sampling make it invalid."""

    assignment: SlotAssignment

    lengths: NDArray[np.int64]
    """(rows,) positions of the cache that are filled."""

    texts: NDArray[np.int64]
    """(rows,) positions of the memory that are not padding."""

    pending: NDArray[np.int64] | None
    """(rows, P) patches to append next; None while a patch is in the making."""

    patch: PartialPatch | None = field(default=None, repr=False)
    """State of a patch that is generated position by position."""

    attention: NDArray[np.float32] | None = field(default=None, repr=False)
    """(rows, S) of the aligned heads, while a patch is in the making; None without such heads."""


class StaticEngine(ModelOnDevice):
    """A `PatchSampler` over a PyTorch MARS6, made for a GPU. Several threads may use it, one patch at a time."""

    @torch.inference_mode()
    def __init__(self, model: Mars6, compiler: Compiler = as_written) -> None:
        """The model is used as it is, on its device, and put in evaluation mode.

        `compiler`, for instance `torch.compile`, may speed up the patch function before it is captured.
        """
        super().__init__(model)
        self.compiler = compiler
        self._level_weights = [model.local_decoder.level_weight(i) for i in range(len(model.config.patch_layout))]
        self.captured: OrderedDict[BucketSize, CapturedStep] = OrderedDict()
        """Caches by capacity, least recently used first."""
        self._owners: weakref.WeakKeyDictionary[SlotCache, weakref.WeakSet[SlotAssignment]]
        self._owners = weakref.WeakKeyDictionary()
        """The batches in the cache of each captured step: the one that runs, and rows that were selected from it."""
        self._lock = threading.Lock()

    @torch.inference_mode()
    def start(self, prompts: Sequence[Prompt]) -> StaticState:
        """Encode the texts and prefill the prefixes without their last patches, which the first step appends."""
        batch = collate(prompts)
        memory, mask = self.encode(batch)
        projected = self.model.global_decoder.project_kv(memory)
        cache = SlotCache(self.prefill(batch, projected, mask), stack(projected), mask)
        pending = np.zeros((len(prompts), self.config.patch_size), np.int64)  # position 0 is the start vector
        for row, prompt in enumerate(prompts):
            pending[row] = prompt.prefix_tokens[-1] if len(prompt.prefix_tokens) else 0
        assignment = SlotAssignment([(cache, row) for row in range(len(prompts))])
        return StaticState(assignment, batch.prefix_lengths, batch.text_lengths + self.model.num_slots, pending)

    def prefill(self, batch: PromptBatch, memory: tuple[KVCache, ...], mask: Tensor) -> Tensor:
        """Keys and values (2, L, rows, H, T, d) of the start vector and all patches of the prefixes but the last."""
        decoder = self.model.global_decoder
        if not batch.prefix.shape[1]:
            return stack(memory)[..., :0, :]
        x = decoder.embed(self.tensor(batch.prefix))[:, :-1]
        _, seen, _ = decoder.prefill(x, memory, mask)
        return stack(seen)

    @torch.inference_mode()
    def sample_patch(self, state: StaticState, inputs: SamplingInputs) -> tuple[NDArray[np.int64], StaticState]:
        """Sample the next patches on the device -> tokens (rows, P) and the state after them."""
        return self.sample_guided_patch(state, inputs, weight=1.0)

    @torch.inference_mode()
    def sample_guided_patch(
        self, state: StaticState, inputs: SamplingInputs, weight: float
    ) -> tuple[NDArray[np.int64], StaticState]:
        """Sample as `sample_patch` from a state with two rows (with weight 1, one) per row of the inputs.

        See `classifier_free_guidance.GuidedPatchSampler`.
        """
        each = len(state.lengths) // len(inputs.uniforms)

        def per_row(values: NDArray[Any]) -> NDArray[Any]:
            return np.repeat(values, each, axis=0)

        with self._lock:
            step = self.step_for(state, inputs.recent.shape[1])
            slots = self.assign_slots(state, step.cache)
            leaders = slots[::each]

            def fill(table: StepInputs) -> None:
                fill_patches(table, slots, state)
                table.leaders[slots] = per_row(np.array(leaders))
                table.unconditional[slots] = per_row(np.array(slots[each - 1 :: each]))
                table.uniforms[slots], table.top_p[slots] = per_row(inputs.uniforms), per_row(inputs.top_p)
                table.may_end[slots], table.max_ratio[slots] = per_row(inputs.may_end), per_row(inputs.max_ratio)
                table.recent[slots], table.guidance[slots] = per_row(inputs.recent), weight

            picks = step.run(fill)[leaders]
            attention = self.attention_in(step, slots)
        config = self.config
        assert (picks <= config.codebook_size).all(), "the model's logits are NaN or infinite"
        ended = np.maximum.accumulate(picks == config.codebook_size, axis=1)
        tokens = np.where(ended, config.eos, picks + np.array(config.position_levels) * config.codebook_size)
        return tokens, StaticState(state.assignment, state.lengths + 1, state.texts, None, attention=attention)

    def attention_in(self, step: CapturedStep, slots: Sequence[int]) -> NDArray[np.float32] | None:
        """(rows, S) of the step that was computed last; None without aligned heads."""
        if not self.config.aligned_heads:
            return None
        return step.host_attention.numpy()[list(slots), self.model.num_slots :]

    def text_attention(self, state: StaticState) -> NDArray[np.float32] | None:
        """(rows, S) of the aligned heads, see `generation.engine.AttentionEngine`."""
        return state.attention

    @torch.inference_mode()
    def next_logits(self, state: StaticState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], StaticState]:
        """Compute logits (rows, C + 1) of position p from tokens (rows, p), and the state after those tokens."""
        position = tokens.shape[1]
        if position == 0:
            with self._lock:
                step = self.step_for(state, window=1)
                slots = self.assign_slots(state, step.cache)
                step.write(lambda table: fill_patches(table, slots, state))
                vectors = step.decode_step(StepInputs.of(step.table, self.config.patch_size))[step.cache.index(slots)]
                step.fetch_attention()
                step.wait()
                attention = self.attention_in(step, slots)
            state = StaticState(
                state.assignment, state.lengths + 1, state.texts, None, PartialPatch(vectors), attention
            )
        assert state.patch is not None, "the positions of a patch come in order"
        vectors, past = state.patch
        logits, past = self.model.local_decoder.step(vectors, self.tensor(tokens[:, -1]) if position else None, past)
        after = replace(state, patch=PartialPatch(vectors, past))
        return logits.float().cpu().numpy(), after

    def append(self, state: StaticState, patches: NDArray[np.int64]) -> StaticState:
        """Append finished patches (rows, P); they are computed together with the next ones."""
        return StaticState(state.assignment, state.lengths, state.texts, np.asarray(patches, np.int64))

    @torch.inference_mode()
    def select(self, state: StaticState, rows: Sequence[int]) -> StaticState:
        """Keep only these rows, all of them distinct. Nothing is copied: they stay in their slots.

        Other rows of the same state may be selected, too, as another batch.
        """
        rows = list(rows)
        assert len(set(rows)) == len(rows), "a row was selected more than once"
        patch = state.patch
        if patch is not None:
            index = torch.tensor(rows, dtype=torch.long, device=self.device)
            patch = PartialPatch(patch.vectors[index], tuple(cache.select(index) for cache in patch.tokens))
        pending = None if state.pending is None else state.pending[rows]
        with self._lock:
            assignment = self.take_over([state.assignment], [state.assignment.cells[row] for row in rows])
        attention = None if state.attention is None else state.attention[rows]
        return StaticState(assignment, state.lengths[rows], state.texts[rows], pending, patch, attention)

    def join(self, states: Sequence[StaticState]) -> StaticState:
        """Concatenate the rows of all states, none of them within a patch. Nothing is copied until the next patch."""
        pending = [state.pending for state in states]
        with self._lock:
            before = [state.assignment for state in states]
            assignment = self.take_over(before, [cell for one in before for cell in one.cells])
        return StaticState(
            assignment,
            np.concatenate([state.lengths for state in states]),
            np.concatenate([state.texts for state in states]),
            np.concatenate([patches for patches in pending if patches is not None]),
        )

    def take_over(self, before: Sequence[SlotAssignment], cells: list[tuple[SlotCache, int]]) -> SlotAssignment:
        """A new assignment that owns the caches which those before it owned."""
        after = SlotAssignment(cells)
        for owners in self._owners.values():
            owners.difference_update(before)
        for cache in after.caches:
            if cache in self._owners:
                self._owners[cache].add(after)
        return after

    def step_for(self, state: StaticState, window: int) -> CapturedStep:
        """The captured step whose slots, positions and memory suffice for the rows; made when first needed."""
        batch, capacity = bucket(len(state.lengths)), bucket(int(state.lengths.max()) + 1, MIN_CAPACITY)
        size = BucketSize(batch, capacity, bucket(int(state.texts.max()), MIN_MEMORY), window)
        if size not in self.captured:
            while len(self.captured) >= MAX_GRAPHS:
                self.captured.popitem(last=False)
            self.captured[size] = CapturedStep(self.model, self._level_weights, size, self.compiler)
        self.captured.move_to_end(size)
        return self.captured[size]

    def assign_slots(self, state: StaticState, cache: SlotCache) -> list[int]:
        """Bring every row of the state into a slot of `cache`; another batch that is in it is evicted."""
        assignment = state.assignment
        for owner in self._owners.get(cache, weakref.WeakSet()):
            if owner is not assignment:
                self.evict(owner, cache)
        self._owners[cache] = weakref.WeakSet([assignment])
        slots = assignment.slots_in(cache)
        moved = [row for row, slot in enumerate(slots) if slot is None]
        free = iter(sorted(set(range(cache.num_slots)) - {slot for slot in slots if slot is not None}))
        goals = [(cache, next(free)) for _ in moved]
        copy_rows(assignment, moved, goals, int(state.lengths.max()))
        return [slot for _, slot in assignment.cells]

    def evict(self, assignment: SlotAssignment, cache: SlotCache) -> None:
        """Copy the rows of a batch that are in `cache` to a separate cache."""
        rows = [row for row, slot in enumerate(assignment.slots_in(cache)) if slot is not None]
        if rows:
            capacity, memory = cache.seen.shape[4], cache.memory.shape[4]
            copy = SlotCache.empty(self.model, len(rows), capacity, memory)
            copy_rows(assignment, rows, [(copy, slot) for slot in range(len(rows))], capacity)


def copy_rows(
    assignment: SlotAssignment, rows: Sequence[int], goals: Sequence[tuple[SlotCache, int]], length: int
) -> None:
    """Copy the caches of these rows, up to `length` positions, to other slots, all in one cache; assign those."""
    for source in {assignment.cells[row][0] for row in rows}:
        pairs = [(row, goal) for row, goal in zip(rows, goals, strict=True) if assignment.cells[row][0] is source]
        there, here = [assignment.cells[row][1] for row, _ in pairs], [slot for _, (_, slot) in pairs]
        shared = min(length, source.seen.shape[4], goals[0][0].seen.shape[4])
        goals[0][0].copy_from(source, there, here, shared)
        for row, goal in pairs:
            assignment.cells[row] = goal


def fill_patches(table: StepInputs, slots: Sequence[int], state: StaticState) -> None:
    """Write the patches to append, and their positions."""
    assert state.pending is not None, "a finished patch must be appended before the next is made"
    table.tokens[slots], table.positions[slots] = state.pending, state.lengths


def stack(caches: Sequence[KVCache]) -> Tensor:
    """Caches of L layers -> keys and values (2, L, B, H, N, d)."""
    return torch.stack((torch.stack([cache.keys for cache in caches]), torch.stack([cache.values for cache in caches])))
