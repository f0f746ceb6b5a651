"""One patch as a function over tensors that never move, which a CUDA graph captures and replays.

Upstream: `mars6.model.Mars6`.  Downstream: `cuda`, which decides which rows use which slots.
A patch of the 70M shape is about eight hundred small kernels. Launching each of them takes the host longer than running
them takes a GPU, so everything between two patches of tokens is captured once: the global step, seven local steps,
sampling with its second draw, and the stop test. One copy to the device and one back per patch are all that the host
does. Elsewhere than on a GPU the same function runs uncaptured.
Shapes: B slots · P positions of a patch · K recent codes · N positions of the KV cache (start vector and patches)
· M memory positions · D width · C codes per level · L, H, d global layers, heads and head width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from marstts.mars6.engines.sampling_torch import draw, keep_nucleus, repetition_aware_sample
from marstts.mars6.model import Mars6
from marstts.nn.kv_cache import KVCache

WARM_UP_RUNS = 3
"""Runs before a capture, in which the libraries choose their kernels and allocate their workspaces."""

Compiler = Callable[[Callable[[], None]], Callable[[], None]]


class StaticKVCache(NamedTuple):
    """A `nn.kv_cache.Past` of one layer that is written in place, each row at its own position."""

    keys: Tensor
    """(B, H, N, d)."""

    values: Tensor
    positions: Tensor
    """(B, H, 1, d), position of the next patch."""

    def extended(self, later: KVCache) -> KVCache:
        """All N positions, one of them new; a mask must hide what is not yet written."""
        self.keys.scatter_(2, self.positions, later.keys)
        self.values.scatter_(2, self.positions, later.values)
        return KVCache(self.keys, self.values)


class SlotCache:
    """The global decoder's KV caches of B slots: of patches and of the memory."""

    def __init__(self, seen: Tensor, memory: Tensor, memory_mask: Tensor) -> None:
        """seen keys and values (2, L, B, H, N, d), memory (2, L, B, H, M, d), memory_mask (B, M) True = attend."""
        self.seen, self.memory, self.memory_mask = seen, memory, memory_mask

    @classmethod
    def empty(cls, model: Mars6, batch: int, capacity: int, memory: int) -> SlotCache:
        """Empty slots; each attends to one position of an empty memory, because a softmax needs at least one."""
        config, like = model.config, model.global_decoder.start
        shape = (2, config.global_layers, batch, config.heads)
        width = config.width // config.heads
        mask = torch.zeros(batch, memory, dtype=torch.bool, device=like.device)
        mask[:, 0] = True
        return cls(like.new_zeros(*shape, capacity, width), like.new_zeros(*shape, memory, width), mask)

    @property
    def num_slots(self) -> int:
        """B."""
        return len(self.memory_mask)

    def copy_from(self, source: SlotCache, rows: Sequence[int], slots: Sequence[int], length: int) -> None:
        """Copy `rows` of another cache, their first `length` positions, into `slots` of this one."""
        here, there = self.index(slots), self.index(rows)
        self.seen[:, :, here, :, :length] = source.seen[:, :, there, :, :length]
        shared = min(self.memory.shape[4], source.memory.shape[4])  # the rest is padding in either
        self.memory[:, :, here, :, :shared] = source.memory[:, :, there, :, :shared]
        self.memory_mask[here] = False
        self.memory_mask[here, :shared] = source.memory_mask[there, :shared]

    def index(self, slots: Sequence[int]) -> Tensor:
        """Slots as an index tensor on the cache's device."""
        return torch.tensor(slots, dtype=torch.long, device=self.seen.device)


class StepInputs(NamedTuple):
    """All that a patch needs from the host, as views of one table, so that it is sent in one copy."""

    tokens: Any
    """(B, P) the patch to append."""
    uniforms: Any
    """(B, P, 2)."""
    positions: Any
    """(B,) position of the patch; position 0 is the start vector's."""
    top_p: Any
    may_end: Any
    max_ratio: Any
    leaders: Any
    """(B,) the slot of the conditional row: its own, or that of the row it is the unconditional twin of."""
    unconditional: Any
    """(B,) the slot of the unconditional row; its own without guidance."""
    guidance: Any
    """(B,) weight of guidance; 1 = none."""
    recent: Any
    """(B, K)."""

    @classmethod
    def of(cls, table: Any, positions: int) -> StepInputs:
        """Views of table (B, 3P + 7 + K), a tensor or array of float64, which holds every integer here exactly."""
        uniforms, numbers = table[:, positions : 3 * positions], 3 * positions
        return cls(
            table[:, :positions], uniforms.reshape(len(table), positions, 2), table[:, numbers], table[:, numbers + 1],
            table[:, numbers + 2], table[:, numbers + 3], table[:, numbers + 4], table[:, numbers + 5],
            table[:, numbers + 6], table[:, numbers + 7 :],
        )  # fmt: skip

    @staticmethod
    def width(positions: int, window: int) -> int:
        """Columns of the table."""
        return 3 * positions + 7 + window


class BucketSize(NamedTuple):
    """Capacity of a captured step."""

    batch: int
    capacity: int
    """N."""
    memory: int
    """M."""
    window: int
    """K."""


class CapturedStep:
    """One patch of B slots as a function of a table and a cache at fixed addresses."""

    def __init__(self, model: Mars6, level_weights: Sequence[Tensor], size: BucketSize, compiler: Compiler) -> None:
        """level_weights: `LocalDecoder.level_weight` of each level, computed once."""
        self.model, self.level_weights, self.positions = model, level_weights, model.config.patch_size
        self.cache = SlotCache.empty(model, size.batch, size.capacity, size.memory)
        self.device = self.cache.seen.device
        on_gpu = self.device.type == "cuda"
        width = StepInputs.width(self.positions, size.window)
        self.host_table = torch.zeros(size.batch, width, dtype=torch.float64, pin_memory=on_gpu)
        self.host_picks = torch.zeros(size.batch, self.positions, dtype=torch.long, pin_memory=on_gpu)
        self.table, self.picks = (host.to(self.device, copy=True) for host in (self.host_table, self.host_picks))
        self.host_attention = torch.zeros(size.batch, size.memory, pin_memory=on_gpu)
        self.attention = self.host_attention.to(self.device, copy=True)
        """(B, M) of the aligned heads; zeros where the model has none."""
        self.arange = torch.arange(size.capacity, device=self.device)
        run = compiler(self.patch)
        self.replay = capture(run, self.device) if on_gpu else run

    def run(self, fill: Callable[[StepInputs], None]) -> NDArray[np.int64]:
        """Fill the table, then compute a patch -> picks (B, P), codes of each position's level or C for the end.

        Free slots are computed, too; their values do not matter.
        """
        self.write(fill)
        self.replay()
        self.host_picks.copy_(self.picks, non_blocking=True)
        self.fetch_attention()
        self.wait()
        return self.host_picks.numpy().copy()

    def fetch_attention(self) -> None:
        """Copy the attention of the last step to the host; `wait` before it is read."""
        if self.model.config.aligned_heads:
            self.host_attention.copy_(self.attention, non_blocking=True)

    def write(self, fill: Callable[[StepInputs], None]) -> None:
        """Fill the table, all zeros before, and send it to the device."""
        self.host_table.zero_()
        fill(StepInputs.of(self.host_table.numpy(), self.positions))
        self.table.copy_(self.host_table, non_blocking=True)

    def wait(self) -> None:
        """Wait for the device; the host may not write a table that is still being sent."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def patch(self) -> None:
        """Append the patches of the table and sample the next ones, without the host."""
        inputs = StepInputs.of(self.table, self.positions)
        self.picks.copy_(self.sample(self.decode_step(inputs), inputs))

    def decode_step(self, inputs: StepInputs) -> Tensor:
        """Append the patches to the cache -> (B, D), the vectors of the next ones."""
        decoder, cache = self.model.global_decoder, self.cache
        positions = inputs.positions.long()  # (B,)
        x = decoder.patch_embedding(inputs.tokens.long().unsqueeze(1), positions - 1)  # (B, 1, D)
        x = torch.where((positions == 0).view(-1, 1, 1), decoder.start, x)
        keys, values = cache.seen.unbind(0)  # (L, B, H, N, d) each
        layers, batch, heads, _, width = keys.shape
        target = positions.view(batch, 1, 1, 1).expand(batch, heads, 1, width)
        past = [StaticKVCache(keys[layer], values[layer], target) for layer in range(layers)]
        memory = tuple(map(KVCache, *(part.unbind(0) for part in cache.memory.unbind(0))))
        attended = self.arange <= positions.unsqueeze(1)  # (B, N), the patch itself included
        x, _, attention = decoder.step(x, past, attended, memory, cache.memory_mask)
        if attention is not None:
            self.attention.copy_(attention.squeeze(1))
        return x.squeeze(1)

    def sample(self, vectors: Tensor, inputs: StepInputs) -> Tensor:
        """Sample from vectors (B, D) -> picks (B, P). After C, the end, a row is meaningless; C + 1 marks a NaN."""
        config, local = self.model.config, self.model.local_decoder
        forbidden = inputs.may_end == 0
        leaders, unconditional, recent = inputs.leaders.long(), inputs.unconditional.long(), inputs.recent.long()
        guidance = inputs.guidance.float().unsqueeze(1)
        ended = torch.zeros_like(forbidden)
        picks: list[Tensor] = []
        token, past = None, cast("tuple[KVCache, ...]", ())
        for position, level in enumerate(config.position_levels):
            x, past = local.hidden_states(vectors, token, past)
            logits = F.linear(x, self.level_weights[level]).float()
            logits = guidance * logits[leaders] + (1 - guidance) * logits[unconditional]
            logits[:, -1].masked_fill_(forbidden, -torch.inf)
            uniforms = inputs.uniforms[:, position, 0].contiguous()
            if level == 0:
                pick = repetition_aware_sample(
                    logits, recent, top_p=inputs.top_p, max_ratio=inputs.max_ratio, uniforms=uniforms,
                    second_uniforms=inputs.uniforms[:, position, 1].contiguous(),
                )  # fmt: skip
                recent = torch.cat((recent, pick.unsqueeze(1)), dim=1)[:, 1:]
            else:
                pick = draw(keep_nucleus(logits, inputs.top_p), uniforms)
            ended = ended | (pick >= config.codebook_size)
            token = torch.where(ended, config.eos, pick + level * config.codebook_size)
            picks.append(pick)
        return torch.stack(picks, dim=1)


def capture(function: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Capture a function as a CUDA graph -> its replay. Runs the function several times, whatever its inputs hold."""
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
    """A compiler that returns the function unchanged."""
    return function
