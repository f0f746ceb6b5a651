"""The static engine against the PyTorch engine with NumPy sampling: the same uniforms, the same tokens."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from marstts import sampling
from marstts.engine import static, tensor_sampling
from marstts.engine.guided import GuidedEngine, GuidedPatchStepper, by_nobody
from marstts.engine.static import StaticEngine, bucket
from marstts.engine.torch import TorchEngine
from marstts.mars6.config import Conditioning, Mars6Config
from marstts.mars6.generate import (
    Generated,
    Limits,
    PatchDraws,
    PatchStepper,
    SamplingConfig,
    Stepper,
    StopReason,
    generate,
    sample_positions,
)
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt

CONFIG = Mars6Config(
    text_vocab_size=31, codebook_size=13, width=24, encoder_layers=1, global_layers=2, local_layers=2,
    heads=3, local_heads=2, identity_size=5, style_size=9,
)  # fmt: skip
FUSED = CONFIG.model_copy(update={"conditioning": Conditioning.FUSED})
OFFSETS = np.array(CONFIG.position_levels) * CONFIG.codebook_size
LENGTHS = ((6, 0), (9, 4), (4, 1))
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def model_with(config: Mars6Config = CONFIG) -> Mars6:
    torch.manual_seed(3)
    model = Mars6(config)
    with torch.no_grad():  # codes sharp, so that rounding decides nothing, and end of speech rare
        model.local_decoder.output.weight[:-1] *= 4
    return model


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few patches fill one and need the next."""
    monkeypatch.setattr(static, "SMALLEST_ROOM", 4)
    monkeypatch.setattr(static, "SMALLEST_MEMORY", 4)


def prompts(lengths=LENGTHS) -> list[Prompt]:
    """(text tokens, prefix patches) of each row."""
    rng = np.random.default_rng(0)
    return [
        Prompt(
            rng.integers(0, 31, text), rng.normal(size=5).astype(np.float32), rng.normal(size=9).astype(np.float32),
            rng.integers(0, 13, (prefix, 7)) + OFFSETS,
        )
        for text, prefix in lengths
    ]  # fmt: skip


def speak(stepper: Stepper, some: list[Prompt], top_p: list[float], limits: list[Limits]) -> list[Generated]:
    return generate(
        stepper, some, top_p=top_p, limits=limits, rngs=[np.random.default_rng(4 + row) for row in range(len(some))],
        sampling=SamplingConfig(ras_window=5, ras_max_ratio=0.3),
    )  # fmt: skip


def draws(rows: int, seed: int = 0) -> PatchDraws:
    rng = np.random.default_rng(seed)
    return PatchDraws(
        uniforms=rng.random((rows, 7, 2)), top_p=np.full(rows, 0.8), may_end=np.zeros(rows, bool),
        recent=rng.integers(-1, 13, (rows, 3)), max_ratio=np.full(rows, 0.4),
    )  # fmt: skip


@pytest.mark.parametrize("config", [CONFIG, FUSED], ids=["two_slots", "fused"])
def test_a_whole_patch_at_a_time_says_the_same_as_position_by_position(config):
    model, some = model_with(config), prompts((*LENGTHS, (7, 2), (5, 9)))
    top_p, limits = [0.0, 0.5, 0.9, 1.0, 0.7], [Limits(0, 11), Limits(6, 20), Limits(0, 9), Limits(2, 30), Limits(9, 9)]
    slow, fast = TorchEngine(model), StaticEngine(model)
    assert isinstance(fast, PatchStepper) and not isinstance(slow, PatchStepper)
    expected, got = speak(slow, some, top_p, limits), speak(fast, some, top_p, limits)
    for one, other in zip(expected, got, strict=True):
        assert np.array_equal(one.tokens, other.tokens) and one.stop is other.stop
    assert len({len(one.tokens) for one in expected}) > 2 and {one.stop for one in expected} == set(StopReason)


def test_position_by_position_works_too_and_says_the_same():
    model, some = model_with(), prompts()
    engine, wanted = StaticEngine(model), draws(3)
    whole, after = engine.sample_patch(engine.start(some), wanted)
    single, _ = sample_positions(engine, engine.start(some), wanted)
    assert np.array_equal(whole, single)
    again, _ = sample_positions(engine, engine.append(after, whole), draws(3, 1))
    expected, _ = engine.sample_patch(engine.append(after, whole), draws(3, 1))
    assert np.array_equal(again, expected)


def test_a_state_can_be_gone_on_from_twice_and_others_keep_what_they_know():
    model, some = model_with(), prompts()
    engine, patch = StaticEngine(model), np.tile(OFFSETS, (3, 1))
    start = engine.start(some)
    first, after = engine.sample_patch(start, draws(3))
    assert np.array_equal(engine.sample_patch(start, draws(3))[0], first)
    one, two = engine.append(after, patch), engine.append(after, patch + 5)
    expected_one, after_one = engine.sample_patch(one, draws(3, 1))
    expected_two, after_two = engine.sample_patch(two, draws(3, 1))  # overwrites what `one` had written
    again_one, _ = engine.sample_patch(engine.append(after_one, patch), draws(3, 2))
    again_two, _ = engine.sample_patch(engine.append(after_two, patch), draws(3, 2))
    stranger = engine.start(some[::-1])
    engine.sample_patch(stranger, draws(3, 3))
    assert np.array_equal(engine.sample_patch(two, draws(3, 1))[0], expected_two)
    assert np.array_equal(engine.sample_patch(one, draws(3, 1))[0], expected_one)

    fresh = TorchEngine(model)
    for middle, last in ((patch, again_one), (patch + 5, again_two)):
        state = fresh.append(fresh.append(fresh.start(some), middle), patch)
        assert np.array_equal(sample_positions(fresh, state, draws(3, 2))[0], last)


def test_rows_are_chosen_in_any_order_and_even_twice():
    model, some, rows = model_with(), prompts(), [2, 0, 2]
    fast, slow = StaticEngine(model), TorchEngine(model)
    patch, state = fast.sample_patch(fast.start(some), draws(3))
    fast_state = fast.select(fast.append(state, patch), rows)
    slow_state = slow.select(slow.append(slow.start(some), patch), rows)
    assert np.array_equal(
        fast.sample_patch(fast_state, draws(3, 1))[0], sample_positions(slow, slow_state, draws(3, 1))[0]
    )
    _, inside = fast.local_logits(fast_state, np.zeros((3, 0), np.int64))
    got, _ = fast.local_logits(fast.select(inside, [1, 2]), np.array([[4], [5]]))
    _, inside = slow.local_logits(slow_state, np.zeros((3, 0), np.int64))
    expected, _ = slow.local_logits(slow.select(inside, [1, 2]), np.array([[4], [5]]))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_row_that_takes_a_freed_slot_leaves_those_alone_who_still_know_it():
    model, some = model_with(), prompts(((6, 0), (5, 0), (4, 0)))
    fast, slow = StaticEngine(model), TorchEngine(model)
    patch, state = fast.sample_patch(fast.start(some), draws(3))
    before = fast.append(state, patch)
    joined = fast.join([fast.select(before, [0, 2]), fast.start(some[1:2])])
    fast.sample_patch(joined, draws(3, 1))
    got, _ = fast.sample_patch(before, draws(3, 2))
    expected, _ = sample_positions(slow, slow.append(slow.start(some), patch), draws(3, 2))
    assert np.array_equal(got, expected)


def test_old_programs_make_way_and_states_survive_them(monkeypatch):
    monkeypatch.setattr(static, "MAX_PROGRAMS", 1)
    model, some = model_with(), prompts()
    fast, slow = StaticEngine(model), TorchEngine(model)
    patch, state = fast.sample_patch(fast.start(some), draws(3))
    fast.sample_patch(fast.start(some[:1]), draws(1))
    assert len(fast._programs) == 1
    got, _ = fast.sample_patch(fast.append(state, patch), draws(3, 1))
    expected, _ = sample_positions(slow, slow.append(slow.start(some), patch), draws(3, 1))
    assert np.array_equal(got, expected)


def test_a_running_batch_stays_in_its_slots_and_leaves_nothing_behind():
    engine, patch = StaticEngine(model_with()), np.tile(OFFSETS, (3, 1))
    _, state = engine.sample_patch(engine.start(prompts(((6, 0),) * 3)), draws(3))
    [(program_size, program)] = engine._programs.items()
    written = program.cache.take
    program.cache.take = None  # not to be called any more
    for _ in range(2):
        _, state = engine.sample_patch(engine.append(state, patch), draws(3))
    program.cache.take = written
    gc.collect()
    assert program_size.batch == 4 and list(program.cache.tenants) == [state]


class Watch(TorchDispatchMode):
    """Writes down every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.seen.append(operation.name())
        return operation(*args, **(kwargs or {}))


def test_nothing_in_a_patch_makes_the_host_look_at_a_value():
    """Whatever did would wait for the device, and could not be captured."""
    engine = StaticEngine(model_with())
    engine.sample_patch(engine.start(prompts()), draws(3))
    [program] = engine._programs.values()
    looks = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero", "aten::masked_select"}
    with torch.inference_mode(), Watch() as watch:
        program.patch()
        assert len(watch.seen) > 100 and not looks & set(watch.seen)
        assert program.picks.sum() >= 0
    assert looks & set(watch.seen), "the watch sees who looks"


def test_nothing_in_a_patch_lies_anywhere_but_on_the_device():
    """On the "meta" device, which has no values: what mixes it with the host's tensors fails, and what looks."""
    with torch.inference_mode():
        model = model_with().to("meta")
        weights = [model.local_decoder.level_weight(level) for level in range(3)]
        program = static.Program(model, weights, static.ProgramSize(4, 8, 8, 3), static.as_written)
        program.patch()
        assert program.picks.device.type == "meta"
        program.arange = program.arange.new_zeros(8, device="cpu")
        with pytest.raises(RuntimeError, match="device"):
            program.patch()


@pytest.mark.parametrize("rows", [2, 33, 64])
def test_batches_of_any_size_say_what_each_row_alone_says(rows: int):
    model, some = model_with(), prompts([(4 + row % 5, row % 3) for row in range(rows)])
    fast, slow = StaticEngine(model), TorchEngine(model)
    got, state = fast.sample_patch(fast.start(some), draws(rows))
    assert [size.batch for size in fast._programs] == [bucket(rows)]
    wanted, slow_state = sample_positions(slow, slow.start(some), draws(rows))
    assert np.array_equal(got, wanted)
    got, _ = fast.sample_patch(fast.append(state, got), draws(rows, 1))
    wanted, _ = sample_positions(slow, slow.append(slow_state, wanted), draws(rows, 1))
    assert np.array_equal(got, wanted)


class Tape(TorchDispatchMode):
    """What a CUDA graph does, on a CPU: operations are recorded once, and replayed on the same tensors."""

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
        """Results take the places of those that were recorded; what was there before the recording is what it is."""
        results: dict[int, torch.Tensor] = {}

        def current(value: Any) -> Any:
            return results.get(id(value), value)

        for operation, args, kwargs, recorded in self.seen:
            made = operation(*tree_map(current, args), **tree_map(current, kwargs))
            for old, new in zip(tree_leaves(recorded), tree_leaves(made), strict=True):
                results[id(old)] = new


@pytest.mark.parametrize("weight", [1.0, 6.0])
def test_a_patch_recorded_once_says_the_same_when_it_is_replayed(weight: float):
    """Nothing that differs from patch to patch is decided outside the tensors."""
    model, some = model_with(), prompts()
    tapes: list[Tape] = []

    def record(patch: Callable[[], None]) -> Callable[[], None]:
        tapes.append(Tape(patch))
        return tapes[-1].replay

    expected, got = (
        speak(
            GuidedEngine(engine, by_nobody(np.ones(5, np.float32), np.ones(9, np.float32)), weight),
            some, [0.0, 0.5, 0.9], [Limits(4, 12)] * 3,
        )
        for engine in (StaticEngine(model), StaticEngine(model, record))
    )  # fmt: skip
    for one, other in zip(expected, got, strict=True):
        assert np.array_equal(one.tokens, other.tokens)
    assert len(tapes) > 1 and sum(len(one.tokens) for one in got) > 20


def test_a_compiler_gets_the_patch_before_anyone_runs_it():
    calls = []

    def compiler(patch):
        return lambda: (calls.append("patch"), patch())

    engine = StaticEngine(model_with(), compiler)
    expected, _ = StaticEngine(engine.model).sample_patch(StaticEngine(engine.model).start(prompts()), draws(3))
    got, _ = engine.sample_patch(engine.start(prompts()), draws(3))
    assert np.array_equal(got, expected) and calls == ["patch"]


def test_a_row_that_joins_a_running_batch_says_what_it_says_alone():
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


def test_a_model_gone_wrong_is_told():
    model = model_with()
    with torch.no_grad():
        model.global_decoder.start[0] = torch.nan
    engine = StaticEngine(model)
    with pytest.raises(AssertionError, match="NaN"):
        engine.sample_patch(engine.start(prompts()), draws(3))


@pytest.mark.parametrize("known, dtype", [(True, torch.bfloat16), (False, torch.float16)])
def test_half_precision_runs_in_what_the_gpu_knows(known, dtype, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: known)
    assert static.half_precision() is dtype
    engine = StaticEngine(model_with().to(static.half_precision()))
    results = speak(engine, prompts(), [0.5] * 3, [Limits(3, 6)] * 3)
    assert all(3 <= len(one.tokens) <= 6 for one in results)


def test_guided_patches_are_made_as_a_whole_and_say_what_guided_positions_say():
    model, some = model_with(), prompts((*LENGTHS, (7, 2), (5, 9)))
    fast, slow = (
        GuidedEngine(engine, by_nobody(np.ones(5, np.float32), np.ones(9, np.float32)), weight=6.0)
        for engine in (StaticEngine(model), TorchEngine(model))
    )
    assert isinstance(fast.stepper, GuidedPatchStepper) and not isinstance(slow.stepper, GuidedPatchStepper)
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
        got = tensor_sampling.repetition_aware_sample(
            torch.tensor(logits), torch.tensor(recent), **{name: torch.tensor(value) for name, value in choices.items()}
        )
        assert np.array_equal(got, expected)
        kept = tensor_sampling.keep_nucleus(torch.tensor(logits), torch.tensor(top_p))
        assert np.array_equal(kept, sampling.keep_nucleus(logits, top_p))


def test_repetition_ratios_round_as_numpy_does():
    for known in range(1, 11):
        for equal in range(known + 1):
            recent = np.array([[-1] * (10 - known) + [7] * equal + [8] * (known - equal)])
            got = tensor_sampling.repetition_ratio(torch.tensor(recent), torch.tensor([7]))
            assert got.item() == sampling.repetition_ratio(recent, np.array([7]))[0]


@needs_gpu
def test_a_captured_patch_says_what_the_same_function_says_uncaptured():
    model, some = model_with(), prompts()
    expected = speak(StaticEngine(model), some, [0.0, 0.5, 0.9], [Limits(4, 12)] * 3)
    got = speak(StaticEngine(model.cuda()), some, [0.0, 0.5, 0.9], [Limits(4, 12)] * 3)
    for one, other in zip(expected, got, strict=True):
        assert np.array_equal(one.tokens, other.tokens)


@needs_gpu
def test_replaying_a_captured_patch_makes_the_host_wait_for_nothing():
    engine = StaticEngine(model_with().cuda().bfloat16())
    engine.sample_patch(engine.start(prompts()), draws(3))
    [program] = engine._programs.values()
    torch.cuda.set_sync_debug_mode("error")
    try:
        program.write(lambda sheet: None)
        program.replay()
    finally:
        torch.cuda.set_sync_debug_mode("default")
