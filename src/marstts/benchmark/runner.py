"""Which cases there are, and measuring them one after the other, each in a process of its own.

Upstream: `cli.benchmark`, which says what is wanted.  Downstream: `report`.
This process loads neither models nor PyTorch, and waits while others measure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from marstts.benchmark.plan import Case, Extent, Measure
from marstts.benchmark.random_model import int8_bundle
from marstts.checkpoint import GRAPH_FILES, MODEL_FOLDER, find_bundle
from marstts.errors import BenchmarkError
from marstts.mars6.quantise import is_int8 as holds_int8
from marstts.synthesis.loading import Engine

SHAPES = {"70m": "marstts.benchmark.random_model"}
"""Sizes that can be measured with random weights, and the module that makes a bundle of each."""


class Model(NamedTuple):
    """Something to measure."""

    label: str
    """In tables."""

    source: str
    """Name or folder of a bundle."""

    is_yardstick: bool = False
    """Whether its graphs are there for comparison alone: nobody would speak with them who has int8."""


def named_models(names: Iterable[str], work: Path) -> list[Model]:
    """Bundles by name or folder, each followed by its int8 version where one can be made in `work`."""
    models = []
    for name in names:
        models.append(Model(find_bundle(name).name, name))
        if has_graphs(models[-1]) and not is_int8(models[-1]) and find_spec("onnx") is not None:
            models.append(Model(models[-1].label, str(int8_bundle(find_bundle(name), work))))
    return models


def shaped_models(shape: str, work: Path) -> list[Model]:
    """A bundle of a size with random weights, and its int8 version; made in `work`."""
    lines = in_new_process(["-m", SHAPES[shape], str(work)]).splitlines()
    single, int8 = json.loads(lines[-1])
    return [Model(shape, single, is_yardstick=True), Model(shape, int8)]


def cases(
    model: Model, engines: Sequence[Engine], measures: Sequence[Measure], extent: Extent, naive: bool
) -> list[Case]:
    """What to measure of a model, in which order; the naive mode once, where it is asked for."""
    found = []
    for engine in engines:
        for measure in measures:
            if measure is Measure.NAIVE or (is_yardstick(model, engine) and measure is not Measure.TOKENS):
                continue
            if measure is Measure.START and engine is not Engine.ONNX:
                continue
            found.append(
                Case(
                    measure=measure, model=model.source, label=model.label, engine=engine.value,
                    weights=weights_of(model, engine), **extent.of(engine, is_yardstick(model, engine)),
                )
            )  # fmt: skip
    if naive and Measure.NAIVE in measures:
        found.append(
            Case(
                measure=Measure.NAIVE, model=model.source, label=model.label, engine=Engine.TORCH.value,
                weights="float32", **extent.of(Engine.TORCH, is_yardstick=True),
            )
        )  # fmt: skip
    return found


def is_yardstick(model: Model, engine: Engine) -> bool:
    """Whether this way to run the model is there for comparison: PyTorch on a CPU is nobody's choice either."""
    return engine is Engine.TORCH or (engine is Engine.ONNX and model.is_yardstick)


def weights_of(model: Model, engine: Engine) -> str:
    """What the engine computes this model with."""
    if engine is Engine.CUDA:
        return "half"
    return "int8" if is_int8(model) else "float32"


def is_int8(model: Model) -> bool:
    """Whether any weights were rounded to eight bits."""
    return holds_int8(find_bundle(model.source) / MODEL_FOLDER)


def has_graphs(model: Model) -> bool:
    folder = find_bundle(model.source) / MODEL_FOLDER
    return all((folder / graph).is_file() for graph in GRAPH_FILES)


def measured(case: Case) -> list[dict[str, Any]]:
    """The rows of a case; a single row that says why, where it failed."""
    try:
        rows: list[dict[str, Any]] = json.loads(
            in_new_process(["-m", "marstts.benchmark.child"], case.model_dump_json()).splitlines()[-1]
        )
    except BenchmarkError as error:
        about = {"measure": case.measure.value, "model": case.label, "engine": case.engine, "weights": case.weights}
        return [{**about, "failed": str(error)}]
    return rows


def in_new_process(arguments: list[str], text: str = "") -> str:
    """What another Python prints; BenchmarkError with the last line of its complaint where it fails."""
    done = subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True)
    if done.returncode:
        complaint = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode} and said nothing"]
        raise BenchmarkError(complaint[-1])
    return done.stdout
