"""The published model's tokens, from graphs that need no PyTorch.

Every export takes seconds: of the usual folder only the small model is compared, of one given by --fixtures all are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_runs import greedy_runs, in_first_language, limits_of, of, prompt_of
from torch import Tensor

from marstts.generation.loop import generate
from marstts.generation.request import SamplingConfig
from marstts.io.precision import WeightFormat
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.export.graphs import export_mars6
from marstts.mars6.export.quantize import BLOCKS, quantize
from marstts.mars6.model import Mars6

pytestmark = pytest.mark.slow

EXPORTED: dict[str, Path] = {}
"""Folders of what was exported in this session."""


@pytest.fixture
def exported(
    name: str,
    pytestconfig: pytest.Config,
    tensors: dict[str, Tensor],
    models: dict[str, Mars6],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    if name != "main" and pytestconfig.getoption("golden_folder", None) is None:
        pytest.skip("compared with --fixtures DIR")
    if name not in EXPORTED:
        EXPORTED[name] = tmp_path_factory.mktemp(name)
        export_mars6(in_first_language(models[name], of(name, tensors)), EXPORTED[name], WeightFormat.FLOAT32)
    return EXPORTED[name]


def test_cached_batched_greedy_tokens(
    name: str, exported: Path, record: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    runs, io = greedy_runs(record[name]), of(name, tensors)
    assert runs
    engine = OnnxEngine(exported)
    spoken = generate(
        engine,
        [prompt_of(run, io) for run in runs],
        top_p=[0.0] * len(runs),
        limits=[limits_of(run) for run in runs],
        rngs=[np.random.default_rng(0) for _ in runs],
        sampling=SamplingConfig(ras_max_ratio=1.0),
    )
    for run, generated in zip(runs, spoken, strict=True):
        assert generated.tokens.tolist() == run["tokens"], run["name"]


def test_int8_agrees_with_single_precision(
    name: str, exported: Path, record: dict[str, Any], tensors: dict[str, Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    """Both engines get the published model's tokens and predict the same token at every position."""
    engine, io = OnnxEngine(exported), of(name, tensors)
    if engine.config.width % BLOCKS[-1]:
        pytest.skip(f"int8 needs widths that are multiples of {BLOCKS[-1]}, not {engine.config.width}")
    quantize(exported, exported / "int8")
    engines = [engine, OnnxEngine(exported / "int8")]
    same, errors = [], []
    for run in greedy_runs(record[name]):
        states = [engine.start([prompt_of(run, io)]) for engine in engines]
        for patch in np.array(run["tokens"])[:, None]:
            for position in range(patch.shape[1]):
                pairs = [e.next_logits(s, patch[:, :position]) for e, s in zip(engines, states, strict=True)]
                (wide, narrow), states = (logits[0] for logits, _ in pairs), [state for _, state in pairs]
                same.append((position, wide.argmax() == narrow.argmax()))
                errors.append(np.sqrt(np.mean((narrow - wide) ** 2)) / wide.std())
            states = [engine.append(state, patch) for engine, state in zip(engines, states, strict=True)]
    first = np.mean([is_same for position, is_same in same if position == 0])
    every = np.mean([is_same for _, is_same in same])
    with capsys.disabled():
        print(
            f"\n{name}, int8 against float32 over {len(same)} positions: the same first token {first:.1%}, the same "
            f"token {every:.1%}, logit error {np.mean(errors):.2%} of the logits' spread, at most {np.max(errors):.2%}"
        )
    assert same and np.mean(errors) < 0.1, "how often tokens agree depends on how sure the recorded model is of them"
