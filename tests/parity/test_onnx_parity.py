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

from marstts.engine.onnx import OnnxEngine
from marstts.mars6.generate import SamplingConfig, generate
from marstts.mars6.graphs import export_mars6
from marstts.mars6.model import Mars6


def test_cached_batched_greedy_tokens(
    name: str,
    pytestconfig: pytest.Config,
    record: dict[str, Any],
    tensors: dict[str, Tensor],
    models: dict[str, Mars6],
    tmp_path: Path,
) -> None:
    if name != "main" and pytestconfig.getoption("golden_folder", None) is None:
        pytest.skip("compared with --fixtures DIR")
    runs, io = greedy_runs(record[name]), of(name, tensors)
    assert runs
    export_mars6(in_first_language(models[name], io), tmp_path)
    engine = OnnxEngine(tmp_path)
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
