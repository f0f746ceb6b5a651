"""The sampler as ONNX nodes must pick what `generation.sampling` picks, on its short way and on its long one."""

import numpy as np
import pytest
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from marstts.generation.sampling import NO_ID, draw, keep_nucleus, repetition_aware_sample
from marstts.mars6.export.sampling_graph import TOP_K, sample, sampler_inputs
from marstts.onnx.build import GraphBuilder

IDS, WINDOW = 300, 6


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> InferenceSession:
    """logits and inputs of the rows -> picks, as at one position of a patch; `coarsest`: whether it is level 0."""
    g = GraphBuilder({}, "none")
    sampler = sampler_inputs(g, IDS, 1)
    logits, is_coarsest = g.input("logits", "FLOAT", ["batch", IDS]), g.input("coarsest", "BOOL", [])
    position = g.constant(np.int64(0))
    g.output(sample(g, sampler, logits, position, "recent", is_coarsest, IDS), "picks", "INT64")
    path = tmp_path_factory.mktemp("sampler") / "sampler.onnx"
    g.save(path)
    return InferenceSession(str(path))


def picks(session: InferenceSession, logits: NDArray[np.float32], coarsest: bool, **rows: NDArray[np.generic]):
    may_end = np.ones(len(logits), bool)
    inputs = {"logits": logits, "coarsest": np.array(coarsest), "may_end": may_end}
    return session.run(None, inputs | rows)[0][:, 0]


def some_rows(rng: np.random.Generator, sharpness: list[float]) -> dict[str, NDArray[np.generic]]:
    count = len(sharpness)
    return {
        "logits": (rng.normal(size=(count, IDS)) * np.array(sharpness)[:, None]).astype(np.float32),
        "uniforms": rng.random((count, 1, 2)),
        "top_p": rng.choice([0.0, 0.2, 0.5, 0.9, 1.0], count),
        "recent": np.full((count, WINDOW), NO_ID),
        "max_ratio": np.full(count, 0.09),
    }


SHARP, FLAT, MIXED = [6.0] * 4, [0.1] * 4, [6.0, 0.1, 3.0, 0.5]


@pytest.mark.parametrize("sharpness", [SHARP, FLAT, MIXED], ids=["sharp", "flat", "mixed"])
def test_picks_are_those_of_the_plain_sampler(session: InferenceSession, sharpness: list[float]):
    rng = np.random.default_rng(0)
    for _ in range(50):
        rows = some_rows(rng, sharpness)
        expected = draw(keep_nucleus(rows["logits"], rows["top_p"]), rows["uniforms"][:, 0, 0])
        assert np.array_equal(picks(session, coarsest=False, **rows), expected)


@pytest.mark.parametrize("size", [TOP_K - 1, TOP_K, TOP_K + 1])
def test_a_nucleus_about_as_large_as_top_k_is_kept_whole(session: InferenceSession, size: int):
    """Whichever way is taken, the last id of the nucleus can be drawn and the next one cannot."""
    logits = -0.01 * np.arange(IDS, dtype=np.float32)[None].repeat(2, axis=0)
    weights = np.exp(logits[0].astype(np.float64))
    top_p = np.full(2, (weights[: size - 1].sum() + 0.5 * weights[size - 1]) / weights.sum())
    uniforms = np.array([[[1 - 1e-9, 0.0]], [[0.0, 0.0]]])
    rows = {"recent": np.full((2, WINDOW), NO_ID), "max_ratio": np.full(2, 0.09)}
    assert picks(session, logits, False, top_p=top_p, uniforms=uniforms, **rows).tolist() == [size - 1, 0]


def test_repetitive_picks_are_drawn_again_from_all_ids(session: InferenceSession):
    rng = np.random.default_rng(1)
    again = 0
    for _ in range(50):
        rows = some_rows(rng, MIXED)
        most_probable = rows["logits"].argmax(axis=1)
        rows["recent"] = np.where(rng.random((4, WINDOW)) < 0.5, most_probable[:, None], NO_ID)
        first, second = rows["uniforms"][:, 0].T
        expected = repetition_aware_sample(
            rows["logits"], rows["recent"], top_p=rows["top_p"], max_ratio=rows["max_ratio"],
            uniforms=first, second_uniforms=second,
        )  # fmt: skip
        assert np.array_equal(picks(session, coarsest=True, **rows), expected)
        again += int((expected != draw(keep_nucleus(rows["logits"], rows["top_p"]), first)).sum())
    assert again > 20
