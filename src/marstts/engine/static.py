"""The static engine: a whole patch as one function over tensors that never move, which a GPU records and replays.

Upstream: `mars6.model.Mars6`.  Downstream: `mars6.generate`, by way of the `PatchStepper` protocol.
A patch of the 70M shape is some eight hundred small kernels. Asking for each of them takes the host longer than running
them takes a GPU, so everything between two patches of tokens is captured once in a CUDA graph: the global step, seven
local steps, sampling with its second draw, and the stop test. One copy to the device and one back per patch are all
that the host does. Batch, cache and text are padded to powers of two, a graph for each combination that was met.
Elsewhere than on a GPU the same function runs as it is written.
Shapes: B slots of a program · P positions of a patch · K remembered codes · N places of the global decoder (the start
vector and every patch) · M memory places · D width · C codes per level · L, H, d global layers, heads and head width.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from marstts.engine.base import PromptBatch, collate
from marstts.engine.tensor_sampling import draw, keep_nucleus, repetition_aware_sample
from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import PatchDraws
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt
from marstts.nn.kv_cache import KVCache

SMALLEST_ROOM, SMALLEST_MEMORY = 128, 64
"""Least places of a program, eleven seconds of speech, and of its texts; more come in powers of two."""

MAX_PROGRAMS = 16
"""Programs kept at a time: each holds its caches on the device, and the one used longest ago makes way."""

WARM_UP_RUNS = 3
"""Runs before a capture, in which the libraries choose their kernels and set aside what they work in."""

Compiler = Callable[[Callable[[], None]], Callable[[], None]]


def bucket(size: int, smallest: int = 1) -> int:
    """The smallest power of two times `smallest` that holds `size`."""
    while smallest < size:
        smallest *= 2
    return smallest


def half_precision() -> torch.dtype:
    """What this GPU multiplies fastest in: bfloat16, which cannot overflow, where it knows that."""
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


class PlacedCache(NamedTuple):
    """A `nn.kv_cache.Past` of one layer that is written in place, each row at a place of its own."""

    keys: Tensor
    """(B, H, N, d)."""

    values: Tensor
    places: Tensor
    """(B, H, 1, d), where the next position goes."""

    def extended(self, later: KVCache) -> KVCache:
        """All N places, one of them new; a mask must hide what is not yet written."""
        self.keys.scatter_(2, self.places, later.keys)
        self.values.scatter_(2, self.places, later.values)
        return KVCache(self.keys, self.values)


class Cache:
    """What the global decoder knows of B utterances."""

    def __init__(self, seen: Tensor, memory: Tensor, memory_mask: Tensor) -> None:
        """seen keys and values (2, L, B, H, N, d), memory (2, L, B, H, M, d), memory_mask (B, M) True = attend."""
        self.seen, self.memory, self.memory_mask = seen, memory, memory_mask
        self.tenants: weakref.WeakSet[StaticState] = weakref.WeakSet()
        """The states with rows in here."""

    @classmethod
    def empty(cls, model: Mars6, batch: int, room: int, memory: int) -> Cache:
        """Nothing heard; every slot attends to one place of an empty memory, for softmax needs something to weigh."""
        config, like = model.config, model.global_decoder.start
        shape = (2, config.global_layers, batch, config.heads)
        width = config.width // config.heads
        mask = torch.zeros(batch, memory, dtype=torch.bool, device=like.device)
        mask[:, 0] = True
        return cls(like.new_zeros(*shape, room, width), like.new_zeros(*shape, memory, width), mask)

    def take(self, source: Cache, rows: Sequence[int], slots: Sequence[int], places: int) -> None:
        """Copy `rows` of another cache, up to `places` places of them, into `slots` of this one."""
        here, there = self.index(slots), self.index(rows)
        self.seen[:, :, here, :, :places] = source.seen[:, :, there, :, :places]
        shared = min(self.memory.shape[4], source.memory.shape[4])  # the rest is padding in either
        self.memory[:, :, here, :, :shared] = source.memory[:, :, there, :, :shared]
        self.memory_mask[here] = False
        self.memory_mask[here, :shared] = source.memory_mask[there, :shared]

    def index(self, rows: Sequence[int]) -> Tensor:
        return torch.tensor(rows, dtype=torch.long, device=self.seen.device)


class InPatch(NamedTuple):
    """A patch in the making, position by position."""

    vectors: Tensor
    """(rows, D)."""

    tokens: tuple[KVCache, ...] = ()


@dataclass(frozen=True, eq=False)
class Berths:
    """Where rows lie."""

    cells: tuple[tuple[Cache, int], ...]
    """Per row, a cache and a slot in it."""

    @cached_property
    def caches(self) -> set[Cache]:
        return {cache for cache, _ in self.cells}

    @cached_property
    def slots(self) -> list[int]:
        return [slot for _, slot in self.cells]

    def are_in(self, cache: Cache) -> bool:
        """Whether every row has a slot of its own in `cache`."""
        return self.caches == {cache} and self._are_distinct

    @cached_property
    def _are_distinct(self) -> bool:
        return len(set(self.cells)) == len(self.cells)


@dataclass(eq=False)
class StaticState:
    """Where some rows stand. What it says never changes; where its rows lie may, when others need their slots."""

    berths: Berths

    places: NDArray[np.int64]
    """(rows,) places heard; what a cache holds beyond is none of the row's business."""

    texts: NDArray[np.int64]
    """(rows,) places of the memory that mean something."""

    pending: NDArray[np.int64] | None
    """(rows, P) patches to be heard next; None while a patch is in the making."""

    patch: InPatch | None = field(default=None, repr=False)
    """Only where it is made position by position."""

    def __post_init__(self) -> None:
        for cache in self.berths.caches:
            cache.tenants.add(self)

    def settle(self, cache: Cache, slots: Sequence[int]) -> None:
        """The rows lie in these slots of `cache` from now on."""
        for old in self.berths.caches:
            old.tenants.discard(self)
        self.berths = Berths(tuple((cache, slot) for slot in slots))
        cache.tenants.add(self)

    def is_disturbed(self, cache: Cache, staying: Mapping[int, int]) -> bool:
        """Whether anything this state knows of `cache` is lost when rows are made there of which `staying`, a slot and
        the places it has heard, are known to it too.
        """
        rows = zip(self.berths.cells, self.places, strict=True)
        return any(kept is cache and staying.get(slot, -1) < places for (kept, slot), places in rows)


class Sheet(NamedTuple):
    """All that a patch needs from the host, cut out of one table so that it travels in one copy."""

    tokens: Any
    """(B, P) the patch to hear."""
    uniforms: Any
    """(B, P, 2)."""
    places: Any
    """(B,) where the patch goes; at place 0 the start vector is heard instead."""
    top_p: Any
    may_end: Any
    max_ratio: Any
    leaders: Any
    """(B,) the slot whose logits count for this one: its own, or that of the row beside which it is the poorer one."""
    poorer: Any
    """(B,) the slot of the poorer row that speech is pushed away from; its own where there is none."""
    guidance: Any
    """(B,) how far; 1 = not at all."""
    recent: Any
    """(B, K)."""

    @classmethod
    def of(cls, table: Any, positions: int) -> Sheet:
        """table (B, 3P + 7 + K) float64, which holds every integer here exactly; works on tensors and arrays alike."""
        uniforms, numbers = table[:, positions : 3 * positions], 3 * positions
        return cls(
            table[:, :positions], uniforms.reshape(len(table), positions, 2), table[:, numbers], table[:, numbers + 1],
            table[:, numbers + 2], table[:, numbers + 3], table[:, numbers + 4], table[:, numbers + 5],
            table[:, numbers + 6], table[:, numbers + 7 :],
        )  # fmt: skip

    @staticmethod
    def width(positions: int, window: int) -> int:
        return 3 * positions + 7 + window


class ProgramSize(NamedTuple):
    """What a program has room for."""

    batch: int
    room: int
    """N."""
    memory: int
    """M."""
    window: int
    """K."""


class Program:
    """One patch of B rows as a function of a table and a cache that stay where they are."""

    def __init__(self, model: Mars6, level_weights: Sequence[Tensor], size: ProgramSize, compiler: Compiler) -> None:
        """level_weights: `LocalDecoder.level_weight` of each level, put together once."""
        self.model, self.level_weights, self.positions = model, level_weights, model.config.patch_size
        self.cache = Cache.empty(model, size.batch, size.room, size.memory)
        self.device = self.cache.seen.device
        on_gpu = self.device.type == "cuda"
        width = Sheet.width(self.positions, size.window)
        self.host_table = torch.zeros(size.batch, width, dtype=torch.float64, pin_memory=on_gpu)
        self.host_picks = torch.zeros(size.batch, self.positions, dtype=torch.long, pin_memory=on_gpu)
        self.table, self.picks = (host.to(self.device, copy=True) for host in (self.host_table, self.host_picks))
        self.arange = torch.arange(size.room, device=self.device)
        run = compiler(self.patch)
        self.replay = capture(run, self.device) if on_gpu else run

    def run(self, fill: Callable[[Sheet], None]) -> NDArray[np.int64]:
        """Let `fill` write the table, then make a patch: picks (B, P), codes of each position's level or C for the end.

        Free slots are heard and picked for too; it does not matter what.
        """
        self.write(fill)
        self.replay()
        self.host_picks.copy_(self.picks, non_blocking=True)
        self.wait()
        return self.host_picks.numpy().copy()

    def write(self, fill: Callable[[Sheet], None]) -> None:
        """Let `fill` write the table, all zeros before, and send it."""
        self.host_table.zero_()
        fill(Sheet.of(self.host_table.numpy(), self.positions))
        self.table.copy_(self.host_table, non_blocking=True)

    def wait(self) -> None:
        """Until the device has done all it was asked for; the host may not write a table that is still on its way."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def patch(self) -> None:
        """Hear the patches of the table and pick the next ones, without the host."""
        sheet = Sheet.of(self.table, self.positions)
        self.picks.copy_(self.pick(self.hear(sheet), sheet))

    def hear(self, sheet: Sheet) -> Tensor:
        """The patches go into the cache -> (B, D), what the next ones are made from."""
        decoder, cache = self.model.global_decoder, self.cache
        places = sheet.places.long()  # (B,)
        x = decoder.patch_embedding(sheet.tokens.long().unsqueeze(1), places - 1)  # (B, 1, D)
        x = torch.where((places == 0).view(-1, 1, 1), decoder.start, x)
        keys, values = cache.seen.unbind(0)  # (L, B, H, N, d) each
        layers, batch, heads, _, width = keys.shape
        target = places.view(batch, 1, 1, 1).expand(batch, heads, 1, width)
        past = [PlacedCache(keys[layer], values[layer], target) for layer in range(layers)]
        memory = tuple(map(KVCache, *(part.unbind(0) for part in cache.memory.unbind(0))))
        heard = self.arange <= places.unsqueeze(1)  # (B, N), the patch itself included
        x, _ = decoder.step(x, past, heard, memory, cache.memory_mask)
        return x.squeeze(1)

    def pick(self, vectors: Tensor, sheet: Sheet) -> Tensor:
        """vectors (B, D) -> picks (B, P). C, the end, makes the rest of its row meaningless; C + 1 tells of a NaN."""
        config, local = self.model.config, self.model.local_decoder
        forbidden = sheet.may_end == 0
        leaders, poorer, recent = sheet.leaders.long(), sheet.poorer.long(), sheet.recent.long()
        guidance = sheet.guidance.float().unsqueeze(1)
        ended = torch.zeros_like(forbidden)
        picks: list[Tensor] = []
        token, heard = None, cast("tuple[KVCache, ...]", ())
        for position, level in enumerate(config.position_levels):
            x, heard = local.listen(vectors, token, heard)
            logits = F.linear(x, self.level_weights[level]).float()
            logits = guidance * logits[leaders] + (1 - guidance) * logits[poorer]
            logits[:, -1].masked_fill_(forbidden, -torch.inf)
            uniforms = sheet.uniforms[:, position, 0].contiguous()
            if level == 0:
                pick = repetition_aware_sample(
                    logits, recent, top_p=sheet.top_p, max_ratio=sheet.max_ratio, uniforms=uniforms,
                    second_uniforms=sheet.uniforms[:, position, 1].contiguous(),
                )  # fmt: skip
                recent = torch.cat((recent, pick.unsqueeze(1)), dim=1)[:, 1:]
            else:
                pick = draw(keep_nucleus(logits, sheet.top_p), uniforms)
            ended = ended | (pick >= config.codebook_size)
            token = torch.where(ended, config.eos, pick + level * config.codebook_size)
            picks.append(pick)
        return torch.stack(picks, dim=1)


def capture(function: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The same work as a CUDA graph, to be replayed. Runs the function several times, on whatever its inputs hold."""
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_RUNS):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the device meanwhile
            function()
    return graph.replay


def as_written(function: Callable[[], None]) -> Callable[[], None]:
    """The compiler that compiles nothing."""
    return function


class StaticEngine:
    """A `PatchStepper` over a PyTorch MARS6, made for a GPU. Several threads may use it, one patch at a time."""

    @torch.inference_mode()
    def __init__(self, model: Mars6, compiler: Compiler = as_written) -> None:
        """The model is used as it is, where it lies, and put in evaluation mode.

        `compiler`, for instance `torch.compile`, may make one patch quicker before it is captured.
        """
        self.model, self.compiler = model.eval(), compiler
        reference = next(model.parameters())
        self.device, self.dtype = reference.device, reference.dtype
        self._level_weights = [model.local_decoder.level_weight(i) for i in range(len(model.config.patch_layout))]
        self._programs: OrderedDict[ProgramSize, Program] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def config(self) -> Mars6Config:
        return self.model.config

    @torch.inference_mode()
    def start(self, prompts: Sequence[Prompt]) -> StaticState:
        """Encode the texts and hear the prefixes but for their last patches, which the first step will hear."""
        batch = collate(prompts)
        memory, mask = self.model.encode(
            self.tensor(batch.text_ids),
            self.tensor(batch.text_lengths),
            self.tensor(batch.identity).to(self.dtype),
            self.tensor(batch.style).to(self.dtype),
        )
        remembered = self.model.global_decoder.remember(memory)
        cache = Cache(self.hear_prefixes(batch, remembered, mask), stack(remembered), mask)
        pending = np.zeros((len(prompts), self.config.patch_size), np.int64)  # of place 0, which is the start vector's
        for row, prompt in enumerate(prompts):
            pending[row] = prompt.prefix_tokens[-1] if len(prompt.prefix_tokens) else 0
        berths = Berths(tuple((cache, row) for row in range(len(prompts))))
        return StaticState(berths, batch.prefix_lengths, batch.text_lengths + self.model.num_slots, pending)

    def hear_prefixes(self, batch: PromptBatch, memory: tuple[KVCache, ...], mask: Tensor) -> Tensor:
        """Keys and values (2, L, rows, H, T, d) of the start vector and all patches of the prefixes but the last."""
        decoder = self.model.global_decoder
        if not batch.prefix.shape[1]:
            return stack(memory)[..., :0, :]
        x = decoder.embed(self.tensor(batch.prefix))[:, :-1]
        _, seen = decoder.prefill(x, memory, mask)
        return stack(seen)

    @torch.inference_mode()
    def sample_patch(self, state: StaticState, draws: PatchDraws) -> tuple[NDArray[np.int64], StaticState]:
        """Tokens (rows, P) of the next patches, all on the device, and the state that has made them."""
        return self.sample_guided_patch(state, draws, weight=1.0)

    @torch.inference_mode()
    def sample_guided_patch(
        self, state: StaticState, draws: PatchDraws, weight: float
    ) -> tuple[NDArray[np.int64], StaticState]:
        """The same for a state with two rows (or, with weight 1, one) to each draw, see `engine.guided`."""
        each = len(state.places) // len(draws.uniforms)

        def own(values: NDArray[Any]) -> NDArray[Any]:
            """Values of the draws -> of all rows."""
            return np.repeat(values, each, axis=0)

        with self._lock:
            program = self.program_for(state, draws.recent.shape[1])
            slots = self.move_in(state, program)
            leaders = slots[::each]

            def fill(sheet: Sheet) -> None:
                fill_patches(sheet, slots, state)
                sheet.leaders[slots], sheet.poorer[slots] = (
                    own(np.array(leaders)),
                    own(np.array(slots[each - 1 :: each])),
                )
                sheet.uniforms[slots], sheet.top_p[slots] = own(draws.uniforms), own(draws.top_p)
                sheet.may_end[slots], sheet.max_ratio[slots] = own(draws.may_end), own(draws.max_ratio)
                sheet.recent[slots], sheet.guidance[slots] = own(draws.recent), weight

            picks = program.run(fill)[leaders]
        config = self.config
        assert (picks <= config.codebook_size).all(), "the model's logits are NaN or infinite"
        ended = np.maximum.accumulate(picks == config.codebook_size, axis=1)
        tokens = np.where(ended, config.eos, picks + np.array(config.position_levels) * config.codebook_size)
        return tokens, StaticState(state.berths, state.places + 1, state.texts, None)

    @torch.inference_mode()
    def local_logits(self, state: StaticState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], StaticState]:
        """tokens (rows, p) -> logits (rows, C + 1) of position p, and the state that has heard the p tokens."""
        position = tokens.shape[1]
        if position == 0:
            with self._lock:
                program = self.program_for(state, window=1)
                slots = self.move_in(state, program)
                program.write(lambda sheet: fill_patches(sheet, slots, state))
                vectors = program.hear(Sheet.of(program.table, self.config.patch_size))[program.cache.index(slots)]
                program.wait()
            state = StaticState(state.berths, state.places + 1, state.texts, None, InPatch(vectors))
        assert state.patch is not None, "tokens are heard one after the other"
        vectors, heard = state.patch
        logits, heard = self.model.local_decoder.step(vectors, self.tensor(tokens[:, -1]) if position else None, heard)
        after = StaticState(state.berths, state.places, state.texts, None, InPatch(vectors, heard))
        return logits.float().cpu().numpy(), after

    def append(self, state: StaticState, patches: NDArray[np.int64]) -> StaticState:
        """patches (rows, P), finished ones; they are heard when the next ones are asked for."""
        return StaticState(state.berths, state.places, state.texts, np.asarray(patches, np.int64))

    @torch.inference_mode()
    def select(self, state: StaticState, rows: Sequence[int]) -> StaticState:
        """Only these rows. Nothing is copied: they stay in their slots."""
        rows = list(rows)
        patch = state.patch
        if patch is not None:
            index = torch.tensor(rows, dtype=torch.long, device=self.device)
            patch = InPatch(patch.vectors[index], tuple(cache.select(index) for cache in patch.tokens))
        pending = None if state.pending is None else state.pending[rows]
        berths = Berths(tuple(state.berths.cells[row] for row in rows))
        return StaticState(berths, state.places[rows], state.texts[rows], pending, patch)

    def join(self, states: Sequence[StaticState]) -> StaticState:
        """The rows of all states, none of them within a patch. Nothing is copied until they make one."""
        pending = [state.pending for state in states]
        return StaticState(
            Berths(tuple(cell for state in states for cell in state.berths.cells)),
            np.concatenate([state.places for state in states]),
            np.concatenate([state.texts for state in states]),
            np.concatenate([patches for patches in pending if patches is not None]),
        )

    def program_for(self, state: StaticState, window: int) -> Program:
        """The program whose slots, places and memory are just enough for the rows; made when first needed."""
        batch, room = bucket(len(state.places)), bucket(int(state.places.max()) + 1, SMALLEST_ROOM)
        size = ProgramSize(batch, room, bucket(int(state.texts.max()), SMALLEST_MEMORY), window)
        if size not in self._programs:
            while len(self._programs) >= MAX_PROGRAMS:
                self._programs.popitem(last=False)
            self._programs[size] = Program(self.model, self._level_weights, size, self.compiler)
        self._programs.move_to_end(size)
        return self._programs[size]

    def move_in(self, state: StaticState, program: Program) -> list[int]:
        """Bring every row of the state into the program's cache -> its slots. Others make way where it matters."""
        cache, berths = program.cache, state.berths
        slots, moved = (berths.slots, []) if berths.are_in(cache) else free_slots(berths, cache)
        staying: dict[int, int] | None = None
        for other in list(cache.tenants):
            if not moved and other.berths is berths and (other.places <= state.places).all():
                continue  # the common case, and the quick one
            if staying is None:
                staying = {slots[row]: int(n) for row, n in enumerate(state.places) if row not in moved}
            if other is not state and other.is_disturbed(cache, staying):
                self.move_out(other)
        if moved:
            copy_rows(state, moved, cache, [slots[row] for row in moved])
            state.settle(cache, slots)
        return slots

    def move_out(self, state: StaticState) -> None:
        """Bring every row of the state into a cache of its own."""
        rows = range(len(state.places))
        own = Cache.empty(self.model, len(rows), int(state.places.max()), int(state.texts.max()))
        copy_rows(state, rows, own, rows)
        state.settle(own, rows)

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """On the model's device."""
        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)


def free_slots(berths: Berths, cache: Cache) -> tuple[list[int], list[int]]:
    """The slot in `cache` for each row, its own if it lies there; and the rows that must be moved to get there."""
    slots = [slot if kept is cache else None for kept, slot in berths.cells]
    moved = [row for row, slot in enumerate(slots) if slot is None or slot in slots[:row]]  # a row may be there twice
    taken = {slot for row, slot in enumerate(slots) if row not in moved}
    free = iter([slot for slot in range(len(cache.memory_mask)) if slot not in taken])
    return [next(free) if row in moved else cast("int", slot) for row, slot in enumerate(slots)], moved


def copy_rows(state: StaticState, rows: Sequence[int], cache: Cache, slots: Sequence[int]) -> None:
    """Copy what these rows know into these slots of `cache`."""
    goals = dict(zip(rows, slots, strict=True))
    for source in {state.berths.cells[row][0] for row in rows}:
        some = [row for row in rows if state.berths.cells[row][0] is source]
        there, here = [state.berths.slots[row] for row in some], [goals[row] for row in some]
        cache.take(source, there, here, int(state.places[some].max()))


def fill_patches(sheet: Sheet, slots: Sequence[int], state: StaticState) -> None:
    """Write what the rows have to hear."""
    assert state.pending is not None, "a finished patch must be appended before the next is made"
    sheet.tokens[slots], sheet.places[slots] = state.pending, state.places


def stack(caches: Sequence[KVCache]) -> Tensor:
    """Caches (rows, H, S, d) of L layers -> (2, L, rows, H, S, d)."""
    return torch.stack((torch.stack([cache.keys for cache in caches]), torch.stack([cache.values for cache in caches])))
