"""The published model's tokens, from graphs that need no PyTorch. Only the narrow model: every export takes seconds."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from marstts.engine.onnx import OnnxEngine
from marstts.mars6.generate import Limits, SamplingConfig, generate
from marstts.mars6.graphs import export_mars6
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt


def test_cached_batched_greedy_tokens(
    record: dict[str, Any], tensors: dict[str, Tensor], models: dict[str, Mars6], tmp_path: Path
) -> None:
    export_mars6(copy.deepcopy(models["main"]), tmp_path)
    names = ("greedy", "greedy_prefix", "greedy_max_len_3", "greedy_single_patch")
    runs = [run for run in record["main"]["generation"] if run["name"] in names]
    words, identity, style = (tensors[f"enc.{name}"][0].numpy() for name in ("text_ids", "speaker", "clap"))
    prefixes = [np.array(run["prefix"] or [], dtype=np.int64).reshape(-1, 7) for run in runs]
    spoken = generate(
        OnnxEngine(tmp_path),
        [Prompt(words, identity, style, prefix) for prefix in prefixes],
        top_p=[0.0] * len(runs),
        limits=[Limits(0, run["max_len"]) for run in runs],
        rngs=[np.random.default_rng(0) for _ in runs],
        sampling=SamplingConfig(ras_max_ratio=1.0),
    )
    assert len(runs) == len(names)
    for run, generated in zip(runs, spoken, strict=True):
        assert generated.tokens.tolist() == run["tokens"], run["name"]
