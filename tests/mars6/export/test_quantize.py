"""Int8 MARS6: close to single precision, independent of other rows, refused where it cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from marstts.bundle import TOKENIZER_FILE, load_bundle
from marstts.errors import CheckpointError
from marstts.generation.engine import EngineKind, SamplingInputs
from marstts.generation.loop import sample_positions
from marstts.io.precision import WeightFormat
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.export.quantize import add_blocks, is_int8
from marstts.mars6.prompt import Mars6Prompt
from marstts.models import export_like, load_for_training, open_engine, upgrade_bundle
from marstts.text.tokenizers.bpe import BPE

pytestmark = pytest.mark.slow

LEVELS = np.repeat([0, 1, 2], (1, 2, 4)) * 64


@pytest.fixture(scope="module")
def int8_bundle(toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "int8"
    upgrade_bundle(toy_bundle, folder, WeightFormat.INT8)
    return folder


@pytest.fixture(scope="module")
def engines(toy_bundle: Path, int8_bundle: Path) -> dict[str, OnnxEngine]:
    return {"float32": OnnxEngine(toy_bundle / "mars6"), "int8": OnnxEngine(int8_bundle / "mars6")}


def prompts(count: int) -> list[Mars6Prompt]:
    rng = np.random.default_rng(0)
    return [
        Mars6Prompt(
            rng.integers(0, 270, 5 + row), rng.normal(size=5).astype(np.float32), rng.normal(size=7).astype(np.float32),
            rng.integers(0, 64, (2 * row, 7)) + LEVELS,
        )
        for row in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(("inputs", "blocks"), [(48, 3), (64, 1), (256, 4)])
def test_rounding_in_blocks_leaves_at_most_half_a_step_per_weight(inputs: int, blocks: int):
    weight = np.random.default_rng(0).normal(size=(5, inputs)).astype(np.float16)
    weight[3] = 0
    tensors: dict[str, np.ndarray] = {}
    add_blocks(tensors, "w", weight)
    assert tensors["w"].shape == (5, blocks, inputs // blocks) and tensors["w"].dtype == np.uint8
    steps = tensors["w.scale"]
    back = (tensors["w"].astype(np.float32) - 128) * steps[:, :, None]
    error = np.abs(back - weight.reshape(back.shape))
    assert (error <= steps[:, :, None] / 2 * 1.0001).all() and (back[3] == 0).all()


def test_widths_that_make_no_blocks_are_refused():
    with pytest.raises(CheckpointError, match="w has 40 inputs; int8 needs multiples of 16"):
        add_blocks({}, "w", np.zeros((2, 40), np.float16))


def test_int8_logits_are_close_to_those_in_single_precision(engines: dict[str, OnnxEngine]):
    tokens = np.random.default_rng(1).integers(0, 64, (3, 7)) + LEVELS
    states = {name: engine.append(engine.start(prompts(3)), tokens) for name, engine in engines.items()}
    for position in range(7):
        logits = {}
        for name, engine in engines.items():
            logits[name], states[name] = engine.next_logits(states[name], tokens[:, :position])
        error = np.abs(logits["int8"] - logits["float32"]).max() / logits["float32"].std()
        assert 0 < error < 0.1, position


def test_int8_patches_equal_the_same_model_position_by_position(engines: dict[str, OnnxEngine]):
    engine, rng = engines["int8"], np.random.default_rng(2)
    state = engine.start(prompts(3))
    for _ in range(20):
        draws = SamplingInputs(
            rng.random((3, 7, 2)), rng.choice([0.0, 0.3, 1.0], 3), rng.random(3) < 0.5, rng.integers(-1, 64, (3, 4)),
            rng.choice([0.0, 0.3], 3),
        )  # fmt: skip
        tokens, after = engine.sample_patch(state, draws)
        assert np.array_equal(tokens, sample_positions(engine, state, draws)[0])
        state = engine.append(after, np.where(tokens == engine.config.eos, LEVELS, tokens))


def test_an_int8_bundle_is_smaller_and_self_contained(toy_bundle: Path, int8_bundle: Path):
    weights = load_file(int8_bundle / "mars6" / "mars6.safetensors")
    rounded = [name for name, weight in weights.items() if weight.dtype == np.uint8]
    assert len(rounded) == 2 * 7 + 1 * 5 + 3, "two global layers, a local one, and the logits of three levels"
    assert not any(name.startswith("encoder.") for name in rounded), "a voice is not rounded"
    assert is_int8(int8_bundle / "mars6") and not is_int8(toy_bundle / "mars6")
    sizes = [(folder / "mars6" / "mars6.safetensors").stat().st_size for folder in (int8_bundle, toy_bundle)]
    assert sizes[0] < sizes[1]
    before, after = load_bundle(toy_bundle).info, load_bundle(int8_bundle).info
    assert after.revision != before.revision
    same = {"revision": "", "provenance": {}}
    assert after.model_copy(update=same) == before.model_copy(update=same)


def test_int8_weights_are_trained_further_from_what_is_spoken(int8_bundle: Path, toy_bundle: Path, tmp_path: Path):
    model, wide = load_for_training(int8_bundle), load_for_training(toy_bundle).state_dict()
    for name, weight in model.state_dict().items():
        largest = float(wide[name].abs().max())
        np.testing.assert_allclose(weight.numpy(), wide[name].numpy(), atol=0.51 * largest / 127, err_msg=name)
    export_like(
        int8_bundle,
        tmp_path / "again",
        model,
        BPE.load(int8_bundle / TOKENIZER_FILE),
        name="toy",
        weights=WeightFormat.INT8,
    )
    stored, again = (load_file(folder / "mars6" / "mars6.safetensors") for folder in (int8_bundle, tmp_path / "again"))
    assert stored.keys() == again.keys()
    for name in stored:
        np.testing.assert_allclose(again[name], stored[name], rtol=1e-3, atol=1e-6, err_msg=name)


def test_a_graph_and_pytorch_read_the_same_int8_weights(int8_bundle: Path, engines: dict[str, OnnxEngine]):
    tokens = np.random.default_rng(1).integers(0, 64, (3, 7)) + LEVELS
    logits = [
        engine.next_logits(engine.append(engine.start(prompts(3)), tokens), tokens[:, :0])[0]
        for engine in (engines["int8"], open_engine(int8_bundle, EngineKind.TORCH))
    ]
    assert np.abs(logits[0] - np.asarray(logits[1])).max() / logits[0].std() < 0.1


def test_an_int8_bundle_gets_the_graphs_of_this_version(int8_bundle: Path, tmp_path: Path):
    upgrade_bundle(int8_bundle, tmp_path / "new")
    for name in ("global.onnx", "mars6.safetensors"):
        assert (tmp_path / "new" / "mars6" / name).read_bytes() == (int8_bundle / "mars6" / name).read_bytes()


def test_int8_weights_cannot_be_quantized_again(int8_bundle: Path, toy_bundle: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match="int8 already"):
        upgrade_bundle(int8_bundle, tmp_path / "again", WeightFormat.INT8)
    bare = tmp_path / "bare"
    upgrade_bundle(toy_bundle, bare)
    (bare / "mars6" / "encoder.onnx").unlink()
    with pytest.raises(CheckpointError, match="without graphs"):
        upgrade_bundle(bare, tmp_path / "more", WeightFormat.INT8)
