"""The static engine against the PyTorch engine with NumPy sampling: the same uniforms, the same tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engine_inputs import CONFIG, OFFSETS, model_with, prompts
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from marstts.generation import sampling
from marstts.generation.engine import Engine, PatchSampler, SamplingInputs
from marstts.generation.loop import generate, sample_positions
from marstts.generation.request import Generated, Limits, SamplingConfig, StopReason
from marstts.mars6.config import Conditioning
from marstts.mars6.engines import cuda, sampling_torch
from marstts.mars6.engines.classifier_free_guidance import GuidedEngine, GuidedPatchSampler, drop_speaker
from marstts.mars6.engines.cuda import StaticEngine, bucket
from marstts.mars6.engines.cuda_step import BucketSize, CapturedStep, SlotCache, as_written
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.prompt import Prompt

FUSED = CONFIG.model_copy(update={"conditioning": Conditioning.FUSED})
LENGTHS = ((6, 0), (9, 4), (4, 1))
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few patches fill one and need the next."""
    monkeypatch.setattr(cuda, "MIN_CAPACITY", 4)
    monkeypatch.setattr(cuda, "MIN_MEMORY", 4)


def speak(engine: Engine, some: list[Prompt], top_p: list[float], limits: list[Limits]) -> list[Generated]:
    return generate(
        engine, some, top_p=top_p, limits=limits, rngs=[np.random.default_rng(4 + row) for row in range(len(some))],
        sampling=SamplingConfig(ras_window=5, ras_max_ratio=0.3),
    )  # fmt: skip


def draws(rows: int, seed: int = 0) -> SamplingInputs:
    rng = np.random.default_rng(seed)
    return SamplingInputs(
        uniforms=rng.random((rows, 7, 2)), top_p=np.full(rows, 0.8), may_end=np.zeros(rows, bool),
        recent=rng.integers(-1, 13, (rows, 3)), max_ratio=np.full(rows, 0.4),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, FUSED], ids=["two_slots", "fused"])
def test_sampling_a_whole_patch_equals_position_by_position(config):
    model, some = model_with(config), prompts((*LENGTHS, (7, 2), (5, 9)))
    top_p, limits = [0.0, 0.5, 0.9, 1.0, 0.7], [Limits(0, 11), Limits(6, 20), Limits(0, 9), Limits(2, 30), Limits(9, 9)]
    slow, fast = TorchEngine(model), StaticEngine(model)
    assert isinstance(fast, PatchSampler) and not isinstance(slow, PatchSampler)
    expected, got = speak(slow, some, top_p, limits), speak(fast, some, top_p, limits)
    for one, other in zip(expected, got, strict=True):
        assert np.array_equal(one.tokens, other.tokens) and one.stop is other.stop
    assert len({len(one.tokens) for one in expected}) > 2 and {one.stop for one in expected} == {
        StopReason.EOS,
        StopReason.MAX_PATCHES,
    }


def test_position_by_position_equals_the_torch_engine():
    model, some = model_with(), prompts()
    whole, single = StaticEngine(model), StaticEngine(model)
    state, other = whole.start(some), single.start(some)
    for seed in range(2):
        patch, state = whole.sample_patch(state, draws(3, seed))
        same, other = sample_positions(single, other, draws(3, seed))
        assert np.array_equal(patch, same)
        state, other = whole.append(state, patch), single.append(other, same)


def test_batches_that_take_turns_do_not_influence_each_other():
    """Both need the same captured step, whose cache holds one of them at a time."""
    model, some = model_with(), prompts()
    fast, slow = StaticEngine(model), TorchEngine(model)
    orders = [[0, 1, 2], [2, 0, 1]]
    states = [fast.start([some[row] for row in order]) for order in orders]
    expected = [slow.start([some[row] for row in order]) for order in orders]
    for turn in range(6):
        for batch in (0, 1):
            inputs = draws(3, 10 * turn + batch)
            got, state = fast.sample_patch(states[batch], inputs)
            correct, reference = sample_positions(slow, expected[batch], inputs)
            assert np.array_equal(got, correct)
            states[batch], expected[batch] = fast.append(state, got), slow.append(reference, correct)
    assert len(fast.captured) == 2, "one for each capacity that was needed"


def test_rows_are_selected_in_any_order_but_only_once():
    model, some, rows = model_with(), prompts(), [2, 0]
    fast, slow = StaticEngine(model), TorchEngine(model)
    patch, state = fast.sample_patch(fast.start(some), draws(3))
    slow_state = slow.select(slow.append(slow.start(some), patch), rows)
    fast_state = fast.select(fast.append(state, patch), rows)
    got, fast_state = fast.next_logits(fast_state, np.zeros((2, 0), np.int64))
    expected, slow_state = slow.next_logits(slow_state, np.zeros((2, 0), np.int64))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    got, _ = fast.next_logits(fast.select(fast_state, [1]), np.array([[4]]))
    expected, _ = slow.next_logits(slow.select(slow_state, [1]), np.array([[4]]))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    with pytest.raises(AssertionError, match="more than once"):
        fast.select(fast.start(some), [1, 1])


def test_a_request_takes_the_slot_of_a_finished_one():
    model, some = model_with(), prompts(((6, 0), (5, 0), (4, 0)))
    fast, slow = StaticEngine(model), TorchEngine(model)
    patch, state = fast.sample_patch(fast.start(some), draws(3))
    joined = fast.join([fast.select(fast.append(state, patch), [0, 2]), fast.start(some[1:2])])
    reference = slow.append(slow.start(some), patch)
    reference = slow.join([slow.select(reference, [0, 2]), slow.start(some[1:2])])
    got, state = fast.sample_patch(joined, draws(3, 1))
    expected, reference = sample_positions(slow, reference, draws(3, 1))
    assert np.array_equal(got, expected)
    got, _ = fast.sample_patch(fast.append(state, got), draws(3, 2))
    expected, _ = sample_positions(slow, slow.append(reference, expected), draws(3, 2))
    assert np.array_equal(got, expected)


def test_dropped_graphs_leave_their_batches_usable(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRAPHS", 1)
    model, some = model_with(), prompts()
    fast, slow = StaticEngine(model), TorchEngine(model)
    patch, state = fast.sample_patch(fast.start(some), draws(3))
    fast.sample_patch(fast.start(some[:1]), draws(1))
    assert len(fast.captured) == 1
    got, _ = fast.sample_patch(fast.append(state, patch), draws(3, 1))
    expected, _ = sample_positions(slow, slow.append(slow.start(some), patch), draws(3, 1))
    assert np.array_equal(got, expected)


def test_a_running_batch_stays_in_its_slots(monkeypatch):
    engine, patch = StaticEngine(model_with()), np.tile(OFFSETS, (3, 1))
    _, state = engine.sample_patch(engine.start(prompts(((6, 0),) * 3)), draws(3))

    def no_copies(*_: object) -> None:
        raise AssertionError("a running batch was copied")

    monkeypatch.setattr(SlotCache, "copy_from", no_copies)
    for _ in range(2):
        _, state = engine.sample_patch(engine.append(state, patch), draws(3))
    [size] = engine.captured
    assert size.batch == 4


class Watch(TorchDispatchMode):
    """Writes down every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.seen.append(operation.name())
        return operation(*args, **(kwargs or {}))


def test_sampling_a_patch_never_synchronizes_with_the_host():
    """A synchronization would wait for the device, and could not be captured."""
    engine = StaticEngine(model_with())
    engine.sample_patch(engine.start(prompts()), draws(3))
    [program] = engine.captured.values()
    looks = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero", "aten::masked_select"}
    with torch.inference_mode(), Watch() as watch:
        program.patch()
        assert len(watch.seen) > 100 and not looks & set(watch.seen)
        assert program.picks.sum() >= 0
    assert looks & set(watch.seen), "the watch sees who looks"


def test_all_tensors_of_a_patch_are_on_the_device():
    """Runs on the "meta" device: mixing it with host tensors fails, and so does reading a value."""
    with torch.inference_mode():
        model = model_with().to("meta")
        weights = [model.local_decoder.level_weight(level) for level in range(3)]
        program = CapturedStep(model, weights, BucketSize(4, 8, 8, 3), as_written)
        program.patch()
        assert program.picks.device.type == "meta"
        program.arange = program.arange.new_zeros(8, device="cpu")
        with pytest.raises(RuntimeError, match="device"):
            program.patch()


@pytest.mark.parametrize("rows", [2, 33, 64])
def test_tokens_are_the_same_in_batches_of_any_size(rows: int):
    model, some = model_with(), prompts([(4 + row % 5, row % 3) for row in range(rows)])
    fast, slow = StaticEngine(model), TorchEngine(model)
    got, state = fast.sample_patch(fast.start(some), draws(rows))
    assert [size.batch for size in fast.captured] == [bucket(rows)]
    correct, slow_state = sample_positions(slow, slow.start(some), draws(rows))
    assert np.array_equal(got, correct)
    got, _ = fast.sample_patch(fast.append(state, got), draws(rows, 1))
    correct, _ = sample_positions(slow, slow.append(slow_state, correct), draws(rows, 1))
    assert np.array_equal(got, correct)


class Tape(TorchDispatchMode):
    """A CUDA graph simulated on a CPU: operations are recorded once, and replayed on the same tensors."""

    def __init__(self, patch: Callable[[], None]) -> None:
        super().__init__()
        self.seen: list[tuple[Any, Any, Any, Any]] = []
        with self:
            patch()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.seen.append((operation, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        """Results replace those that were recorded; what was there before the recording is what it is."""
        results: dict[int, torch.Tensor] = {}

        def current(value: Any) -> Any:
            return results.get(id(value), value)

        for operation, args, kwargs, recorded in self.seen:
            made = operation(*tree_map(current, args), **tree_map(current, kwargs))
            for old, new in zip(tree_leaves(recorded), tree_leaves(made), strict=True):
                results[id(old)] = new


@pytest.mark.parametrize("weight", [1.0, 6.0])
@pytest.mark.slow
def test_replaying_a_captured_patch_gives_the_same_tokens(weight: float):
    """All decisions that differ from patch to patch are made in tensors."""
    model, some = model_with(), prompts()
    tapes: list[Tape] = []

    def record(patch: Callable[[], None]) -> Callable[[], None]:
        tapes.append(Tape(patch))
        return tapes[-1].replay

    expected, got = (
        speak(
            GuidedEngine(engine, drop_speaker(np.ones(5, np.float32), np.ones(9, np.float32)), weight),
            some, [0.0, 0.5, 0.9], [Limits(4, 12)] * 3,
        )
        for engine in (StaticEngine(model), StaticEngine(model, record))
    )  # fmt: skip
    for one, other in zip(expected, got, strict=True):
        assert np.array_equal(one.tokens, other.tokens)
    assert len(tapes) > 1 and sum(len(one.tokens) for one in got) > 20


def test_the_patch_is_compiled_before_it_runs():
    calls = []

    def compiler(patch):
        return lambda: (calls.append("patch"), patch())

    engine = StaticEngine(model_with(), compiler)
    expected, _ = StaticEngine(engine.model).sample_patch(StaticEngine(engine.model).start(prompts()), draws(3))
    got, _ = engine.sample_patch(engine.start(prompts()), draws(3))
    assert np.array_equal(got, expected) and calls == ["patch"]


def test_a_row_that_joins_a_running_batch_gets_the_same_tokens():
    model, some = model_with(), prompts()
    fast, slow = StaticEngine(model), TorchEngine(model)
    patch, state = fast.sample_patch(fast.start(some[:2]), draws(2))
    slow_state = slow.append(slow.start(some[:2]), patch)
    joined = fast.join([fast.append(state, patch), fast.start(some[2:])])
    slow_joined = slow.join([slow_state, slow.start(some[2:])])
    patch, state = fast.sample_patch(joined, draws(3, 1))
    expected, _ = sample_positions(slow, slow_joined, draws(3, 1))
    assert np.array_equal(patch, expected)
    patch, _ = fast.sample_patch(fast.select(fast.append(state, patch), [2, 1]), draws(2, 2))
    expected, _ = sample_positions(slow, slow.select(slow.append(slow_joined, expected), [2, 1]), draws(2, 2))
    assert np.array_equal(patch, expected)


def test_logits_that_are_not_finite_are_reported():
    model = model_with()
    with torch.no_grad():
        model.global_decoder.start[0] = torch.nan
    engine = StaticEngine(model)
    with pytest.raises(AssertionError, match="NaN"):
        engine.sample_patch(engine.start(prompts()), draws(3))


@pytest.mark.parametrize("known, dtype", [(True, torch.bfloat16), (False, torch.float16)])
def test_half_precision_uses_a_type_of_the_gpu(known, dtype, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: known)
    assert cuda.half_precision() is dtype
    engine = StaticEngine(model_with().to(cuda.half_precision()))
    results = speak(engine, prompts(), [0.5] * 3, [Limits(3, 6)] * 3)
    assert all(3 <= len(one.tokens) <= 6 for one in results)


@pytest.mark.slow
def test_guided_patches_equal_guided_positions():
    model, some = model_with(), prompts((*LENGTHS, (7, 2), (5, 9)))
    fast, slow = (
        GuidedEngine(engine, drop_speaker(np.ones(5, np.float32), np.ones(9, np.float32)), weight=6.0)
        for engine in (StaticEngine(model), TorchEngine(model))
    )
    assert isinstance(fast.engine, GuidedPatchSampler) and not isinstance(slow.engine, GuidedPatchSampler)
    top_p, limits = [0.0, 0.5, 0.9, 1.0, 0.7], [Limits(0, 11), Limits(6, 20), Limits(0, 9), Limits(2, 30), Limits(9, 9)]
    expected, got = speak(slow, some, top_p, limits), speak(fast, some, top_p, limits)
    plain = speak(StaticEngine(model), some, top_p, limits)
    for one, other in zip(expected, got, strict=True):
        assert np.array_equal(one.tokens, other.tokens) and one.stop is other.stop
    assert any(not np.array_equal(one.tokens, other.tokens) for one, other in zip(plain, got, strict=True))


def test_buckets_are_powers_of_two():
    assert [bucket(size) for size in (1, 2, 3, 33, 64)] == [1, 2, 4, 64, 64]
    assert [bucket(size, 128) for size in (1, 128, 129, 600)] == [128, 128, 256, 1024]


def test_tensor_sampling_decides_as_numpy_does():
    rng = np.random.default_rng(1)
    for _ in range(40):
        logits = (3 * rng.standard_normal((9, 57))).astype(np.float32).round(1)  # rounded, so that some are equal
        logits[rng.random(logits.shape) < 0.2] = -np.inf
        top_p, uniforms = rng.choice([0, 0.2, 0.5, 0.9, 1.0, 1.5], 9), rng.random((2, 9))
        recent, max_ratio = rng.integers(-1, 57, (9, 3)), rng.choice([0.0, 0.33, 0.34, 1.0], 9)
        choices = {
            "top_p": top_p, "max_ratio": max_ratio, "uniforms": uniforms[0], "second_uniforms": uniforms[1],
        }  # fmt: skip
        expected = sampling.repetition_aware_sample(logits, recent, **choices)
        got = sampling_torch.repetition_aware_sample(
            torch.tensor(logits), torch.tensor(recent), **{name: torch.tensor(value) for name, value in choices.items()}
        )
        assert np.array_equal(got, expected)
        kept = sampling_torch.keep_nucleus(torch.tensor(logits), torch.tensor(top_p))
        assert np.array_equal(kept, sampling.keep_nucleus(logits, top_p))


def test_repetition_ratios_round_as_numpy_does():
    for known in range(1, 11):
        for equal in range(known + 1):
            recent = np.array([[-1] * (10 - known) + [7] * equal + [8] * (known - equal)])
            got = sampling_torch.repetition_ratio(torch.tensor(recent), torch.tensor([7]))
            assert got.item() == sampling.repetition_ratio(recent, np.array([7]))[0]


@needs_gpu
def test_a_captured_patch_equals_the_uncaptured_function():
    model, some = model_with(), prompts()
    expected = speak(StaticEngine(model), some, [0.0, 0.5, 0.9], [Limits(4, 12)] * 3)
    got = speak(StaticEngine(model.cuda()), some, [0.0, 0.5, 0.9], [Limits(4, 12)] * 3)
    for one, other in zip(expected, got, strict=True):
        assert np.array_equal(one.tokens, other.tokens)


@needs_gpu
def test_replaying_a_captured_patch_does_not_block_the_host():
    engine = StaticEngine(model_with().cuda().bfloat16())
    engine.sample_patch(engine.start(prompts()), draws(3))
    [program] = engine.captured.values()
    torch.cuda.set_sync_debug_mode("error")
    try:
        program.write(lambda table: None)
        program.replay()
    finally:
        torch.cuda.set_sync_debug_mode("default")
