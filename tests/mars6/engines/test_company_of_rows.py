"""The numbers of a row do not depend on the rows that share its batch, bit for bit, in floating point and in int8.

Tokens alone would not show it: they change only where a rounding error happens to decide. In int8 they change often,
for activations are rounded to other integers. So the vectors that patches are made from are compared.
"""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from marstts.io.stored_tensors import stored_tensors
from marstts.mars6.config import WEIGHTS_FILE
from marstts.mars6.engines.onnx import OnnxEngine, OnnxState
from marstts.mars6.export.decoder_graphs import embed_patches
from marstts.mars6.prompt import Mars6Prompt
from marstts.onnx.build import GraphBuilder
from marstts.onnx.session import open_session

pytestmark = pytest.mark.slow

TEXTS, PREFIXES = (5, 31, 47, 18, 64), (0, 60, 3, 57, 21)
"""Tokens of the texts, and patches of the prefixes: some caches grow beyond the first step of their capacity."""

STEPS = 6


@pytest.fixture(scope="module")
def engine() -> OnnxEngine:
    return OnnxEngine(Path(str(files("marstts"))) / "models_data/mini/mars6")


@pytest.fixture(scope="module")
def prompts(engine: OnnxEngine) -> list[Mars6Prompt]:
    rng = np.random.default_rng(0)
    return [
        Mars6Prompt(
            rng.integers(0, engine.config.text_vocab_size, text),
            rng.normal(size=engine.config.identity_size).astype(np.float32),
            rng.normal(size=engine.config.style_size).astype(np.float32),
            patches(engine, rng, prefix),
        )
        for text, prefix in zip(TEXTS, PREFIXES, strict=True)
    ]


def patches(engine: OnnxEngine, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    levels = np.array(engine.config.position_levels) * engine.config.codebook_size
    return rng.integers(0, engine.config.codebook_size, (count, engine.config.patch_size)) + levels


def run(engine: OnnxEngine, state: OnnxState, rows: list[int]) -> NDArray[np.float32]:
    """(STEPS + 1, B, D): the vectors at the start and after each of a few patches, which are those of `rows`."""
    appended = [patches(engine, np.random.default_rng(row), STEPS) for row in rows]
    vectors = [state.vectors]
    for step in range(STEPS):
        state = engine.append(state, np.stack([one[step] for one in appended]))
        vectors.append(state.vectors)
    return np.stack(vectors)


@pytest.fixture(scope="module")
def alone(engine: OnnxEngine, prompts: list[Mars6Prompt]) -> NDArray[np.float32]:
    """(STEPS + 1, 5, D) of rows that run alone."""
    vectors = [run(engine, engine.start([prompt]), [row]) for row, prompt in enumerate(prompts)]
    return np.concatenate(vectors, axis=1)


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [4, 2, 0], [3, 1], [1, 0, 3, 2]], ids=str)
def test_rows_in_company_have_the_bits_of_rows_alone(
    engine: OnnxEngine, prompts: list[Mars6Prompt], alone: NDArray[np.float32], rows: list[int]
) -> None:
    together = engine.join([engine.start([prompts[row]]) for row in rows])
    assert np.array_equal(run(engine, together, rows), alone[:, rows])


def test_prompts_that_are_started_together_have_the_bits_of_prompts_alone(
    engine: OnnxEngine, prompts: list[Mars6Prompt], alone: NDArray[np.float32]
) -> None:
    assert np.array_equal(run(engine, engine.start(prompts), [*range(5)]), alone)


def test_embeddings_of_patches_do_not_depend_on_their_row(engine: OnnxEngine, tmp_path: Path) -> None:
    """Sines are computed several at a time: those of some positions differ where a row begins within such a group."""
    source = Path(str(files("marstts"))) / "models_data/mini/mars6"
    graph = GraphBuilder(stored_tensors(source / WEIGHTS_FILE), WEIGHTS_FILE)
    inputs = (
        graph.input("patches", "INT64", ["batch", "places", engine.config.patch_size]),
        graph.input("first", "INT64", ["batch"]),
    )
    graph.output(embed_patches(graph, engine.config, *inputs), "x", "FLOAT")
    shutil.copyfile(source / WEIGHTS_FILE, tmp_path / WEIGHTS_FILE)
    graph.save(tmp_path / "embedding.onnx")
    session = open_session(tmp_path / "embedding.onnx")
    codes, first = patches(engine, np.random.default_rng(0), 300)[:, None], np.arange(1, 301)
    [together] = session.run(None, {"patches": codes, "first": first})
    for row in range(300):
        [alone] = session.run(None, {"patches": codes[[row]], "first": first[[row]]})
        assert np.array_equal(alone[0], together[row]), row


def test_rows_differ(alone: NDArray[np.float32]) -> None:
    assert len(np.unique(alone.reshape(-1, alone.shape[2]), axis=0)) == alone.shape[0] * alone.shape[1]
