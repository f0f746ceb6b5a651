"""The ONNX engine against the PyTorch engine and the teacher-forced model, all with the same weights."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_inputs import CONFIG, OFFSETS, model_with, prompts, slow_greedy, speak
from safetensors.torch import load_file

from marstts.errors import CheckpointError, ConfigError
from marstts.generation.engine import SamplingInputs
from marstts.generation.loop import sample_positions
from marstts.io.precision import WeightFormat
from marstts.mars6.bundled import parse_settings
from marstts.mars6.config import Conditioning
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.export.graphs import export_mars6
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import collate
from marstts.onnx.export import lossless_format
from marstts.onnx.session import open_session

pytestmark = pytest.mark.slow  # exports another model; other tests run the engine on the toy bundle

NOTHING = np.zeros((3, 0), np.int64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mars6")


@pytest.fixture(scope="module")
def model(folder: Path) -> Mars6:
    """The model whose export lies in `folder`, in single precision, which its weights need."""
    model = model_with(CONFIG)
    assert lossless_format(model) is WeightFormat.FLOAT32
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export_mars6(model, folder, WeightFormat.FLOAT32)
    stored = load_file(folder / "mars6.safetensors")
    assert stored.keys() == before.keys() and all(torch.equal(stored[name], before[name]) for name in stored)
    return model


@pytest.fixture(scope="module")
def engine(folder: Path, model: Mars6) -> OnnxEngine:
    return OnnxEngine(folder)


def patch_of(codes: list[int]) -> np.ndarray:
    """One patch per row, all its codes the same: (B,) -> (B, 7)."""
    return np.array(codes)[:, None] + OFFSETS


def test_greedy_tokens_equal_the_torch_engines_and_the_uncached_models(model: Mars6, engine: OnnxEngine):
    results = speak(engine, prompts(), 0.0, [0, 1, 2])
    references = speak(TorchEngine(model), prompts(), 0.0, [0, 1, 2])
    for prompt, result, reference in zip(prompts(), results, references, strict=True):
        assert np.array_equal(result.tokens, reference.tokens)
        assert result.tokens.tolist() == slow_greedy(model, prompt, 8)
    assert min(len(result.tokens) for result in results) > 2


def test_logits_equal_the_torch_engines_at_every_position(model: Mars6, engine: OnnxEngine):
    steppers = [engine, TorchEngine(model)]
    states = [engine.start(prompts()) for engine in steppers]
    patch = np.array([[1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1], [0, 12, 0, 12, 0, 12, 0]]) + OFFSETS
    for _ in range(3):
        for position in range(7):
            got, correct = (
                engine.next_logits(state, patch[:, :position]) for engine, state in zip(steppers, states, strict=True)
            )
            states = [got[1], correct[1]]
            np.testing.assert_allclose(got[0], correct[0], atol=2e-4)
            assert got[0].shape == (3, 14) and got[0].dtype == np.float32
        states = [engine.append(state, patch) for engine, state in zip(steppers, states, strict=True)]


def draws_for(batch: int, rng: np.random.Generator, **fixed) -> SamplingInputs:
    """Random sampling inputs: each row has another top-p, history and permission to end."""
    drawn = {
        "uniforms": rng.random((batch, 7, 2)),
        "top_p": rng.choice([0.0, 0.2, 0.6, 0.95, 1.0, 1.5], batch),
        "may_end": rng.random(batch) < 0.5,
        "recent": rng.integers(-1, 13, (batch, 5)),
        "max_ratio": rng.choice([0.0, 0.21, 0.34, 1.0], batch),
    }
    return SamplingInputs(**(drawn | fixed))


def test_a_patch_sampled_in_one_run_equals_one_made_position_by_position(engine: OnnxEngine):
    rng, state = np.random.default_rng(1), engine.start(prompts())
    ends = 0
    for _ in range(60):
        draws = draws_for(3, rng)
        tokens, after = engine.sample_patch(state, draws)
        expected, _ = sample_positions(engine, state, draws)
        assert np.array_equal(tokens, expected)
        ends += (tokens == CONFIG.eos).any(axis=1).sum()
        state = engine.append(after, np.where(tokens == CONFIG.eos, OFFSETS, tokens))
    assert ends > 5, "ends of speech are among what was compared"


def test_the_published_conditioning_is_exported_too(tmp_path: Path):
    """The encoder alone differs."""
    shallow = {"encoder_layers": 1, "global_layers": 1, "local_layers": 1}
    model = model_with(CONFIG.model_copy(update={"conditioning": Conditioning.FUSED, **shallow})).eval()
    export_mars6(model, tmp_path, WeightFormat.FLOAT32)
    batch = collate(prompts())
    arrays = {
        "text_ids": batch.text_ids,
        "text_lengths": batch.text_lengths,
        "identity": batch.identity,
        "style": batch.style,
    }
    keys, values, mask = open_session(tmp_path / "encoder.onnx").run(None, arrays)
    with torch.no_grad():
        memory, memory_mask = model.encode(*map(torch.from_numpy, arrays.values()))
        [remembered] = model.global_decoder.project_kv(memory)
    np.testing.assert_allclose(keys[0], remembered.keys, atol=1e-5)
    np.testing.assert_allclose(values[0], remembered.values, atol=1e-5)
    assert np.array_equal(mask, memory_mask)


def test_a_state_can_be_continued_in_two_ways(engine: OnnxEngine):
    """The second continuation must not overwrite the first one's cache, though both started in one buffer."""
    start = engine.start(prompts())
    left = engine.append(start, patch_of([1, 2, 3]))
    right = engine.append(start, patch_of([9, 8, 7]))
    alone = engine.append(engine.append(engine.start(prompts()), patch_of([1, 2, 3])), patch_of([4, 5, 6]))
    later = engine.append(left, patch_of([4, 5, 6]))
    other = engine.append(right, patch_of([4, 5, 6]))
    np.testing.assert_allclose(later.vectors, alone.vectors, atol=1e-5)
    assert not np.allclose(other.vectors, alone.vectors, atol=1e-3)


def test_later_patches_leave_a_state_unchanged(engine: OnnxEngine):
    before = engine.start(prompts())
    first, _ = engine.next_logits(before, NOTHING)
    after = engine.append(before, patch_of([1, 2, 3]))
    engine.append(after, patch_of([3, 2, 1]))
    engine.next_logits(engine.select(after, [1]), NOTHING[:1])
    again, _ = engine.next_logits(before, NOTHING)
    assert np.array_equal(first, again)
    assert np.array_equal(engine.append(before, patch_of([1, 2, 3])).vectors, after.vectors)


def test_selecting_rows_within_a_patch_keeps_their_caches(engine: OnnxEngine):
    _, state = engine.next_logits(engine.append(engine.start(prompts()), patch_of([1, 2, 3])), NOTHING)
    tokens = np.array([[1], [2], [3]])
    expected, whole = engine.next_logits(state, tokens)
    got, part = engine.next_logits(engine.select(state, [2, 0]), tokens[[2, 0]])
    np.testing.assert_allclose(got, expected[[2, 0]], atol=1e-5)
    further, less = engine.append(whole, patch_of([4, 5, 6])), engine.append(part, patch_of([6, 4]))
    np.testing.assert_allclose(less.vectors, further.vectors[[2, 0]], atol=1e-5)


def test_weights_are_float16_only_where_that_is_exact():
    model = torch.nn.Linear(2, 2, bias=False)
    model.weight.data = torch.tensor([[1.0, 0.1], [0.5, -2.0]])
    assert lossless_format(model) is WeightFormat.FLOAT32
    model.weight.data = model.weight.data.half().float()
    assert lossless_format(model) is WeightFormat.FLOAT16


def test_weights_are_stored_once(folder: Path, engine: OnnxEngine):
    parameters = sum(parameter.numel() for parameter in Mars6(CONFIG).parameters())
    assert (folder / "mars6.safetensors").stat().st_size < 4 * parameters + 20_000
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.onnx")}
    assert set(sizes) == {"encoder.onnx", "global.onnx", "local.onnx", "patch.onnx"} and max(sizes.values()) < 60_000


def test_the_engine_runs_without_torch(folder: Path, engine: OnnxEngine):
    code = (
        "import sys; from pathlib import Path; from marstts.mars6.engines.onnx import OnnxEngine\n"
        f"OnnxEngine(Path({str(folder)!r})); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_graphs_of_an_older_version_are_refused_with_the_command_to_upgrade(
    folder: Path, model: Mars6, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    shutil.copytree(folder, older)
    shutil.copy(older / "local.onnx", older / "global.onnx")  # a graph that gives no cache
    with pytest.raises(CheckpointError, match=r"older version.*marstts bundle upgrade"):
        OnnxEngine(older)


def test_settings_of_an_older_version_may_have_guidance_1_and_no_other() -> None:
    assert parse_settings({"guidance": 1.0}, "bundle.json") == parse_settings({}, "bundle.json")
    with pytest.raises(ConfigError, match="guidance"):
        parse_settings({"guidance": 2.0}, "bundle.json")
