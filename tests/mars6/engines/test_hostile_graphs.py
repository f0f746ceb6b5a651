"""Graphs that compute other outputs than their bundle states end in one sentence, wherever the engine runs them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from marstts.errors import CheckpointError
from marstts.generation.engine import SamplingInputs
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.prompt import Mars6Prompt

Change = Callable[[onnx.GraphProto], None]


def replace_output(graph: onnx.GraphProto, *nodes: onnx.NodeProto) -> None:
    """Compute the first output by `nodes`, which read its old value as "kept"."""
    name = graph.output[0].name
    for node in graph.node:
        node.output[:] = ["kept" if output == name else output for output in node.output]
    nodes[-1].output[:] = [name]
    graph.node.extend(nodes)


def repeat_output(graph: onnx.GraphProto) -> None:
    graph.output.append(graph.output[0])


def double_the_rank(graph: onnx.GraphProto) -> None:
    shape = helper.make_node("Shape", ["kept"], ["shape"])
    longer = helper.make_node("Concat", ["shape", "shape"], ["longer"], axis=0)
    replace_output(graph, shape, longer, helper.make_node("Expand", ["kept", "longer"], [""]))


def add(number: int | float, data_type: int) -> Change:
    def change(graph: onnx.GraphProto) -> None:
        kind = helper.tensor_dtype_to_np_dtype(data_type)
        graph.initializer.append(numpy_helper.from_array(np.array(number, kind), "number"))
        replace_output(graph, helper.make_node("Add", ["kept", "number"], [""]))

    return change


def compute_text(graph: onnx.GraphProto) -> None:
    graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    replace_output(graph, helper.make_node("Cast", ["kept"], [""], to=TensorProto.STRING))


def run(folder: Path) -> None:
    """Run each of the four graphs once."""
    engine = OnnxEngine(folder)
    config = engine.config
    identity, style = np.ones(config.identity_size, np.float32), np.ones(config.style_size, np.float32)
    prompt = Mars6Prompt(np.arange(5), identity, style, np.zeros((0, config.patch_size), np.int64))
    state = engine.start([prompt])
    engine.next_logits(state, np.zeros((1, 0), np.int64))
    inputs = SamplingInputs(
        uniforms=np.full((1, config.patch_size, 2), 0.5),
        top_p=np.ones(1),
        may_end=np.ones(1, bool),
        recent=np.zeros((1, 2), np.int64),
        max_ratio=np.ones(1),
    )
    patch, state = engine.sample_patch(state, inputs)
    engine.append(state, patch)


@pytest.fixture
def folder(toy_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_bundle / "mars6", tmp_path / "mars6"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encoder", "global", "patch", "local"])
@pytest.mark.parametrize("change", [repeat_output, double_the_rank, compute_text])
def test_other_outputs_are_refused_in_one_sentence(name: str, change: Change, folder: Path) -> None:
    edit(folder / f"{name}.onnx", change)
    with pytest.raises(CheckpointError, match=rf"{name}\.onnx: this (ONNX )?graph cannot be"):
        run(folder)


@pytest.mark.parametrize("number", [2**40, -(2**40), 10_000])
def test_tokens_outside_the_vocabulary_are_refused(number: int, folder: Path) -> None:
    edit(folder / "patch.onnx", add(number, TensorProto.INT64))
    with pytest.raises(CheckpointError, match=r"patch\.onnx: this graph cannot be run"):
        run(folder)


def edit(path: Path, change: Change) -> None:
    model = onnx.load(path, load_external_data=False)
    change(model.graph)
    path.write_bytes(model.SerializeToString())
