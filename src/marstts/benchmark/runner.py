"""The cases of a benchmark, measured one after the other, each in a separate process.

Upstream: `cli.benchmark`, which chooses models and measurements.  Downstream: `report`.
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

from marstts import models
from marstts.benchmark.plan import BenchmarkScale, Case, Measure
from marstts.benchmark.random_model import int8_bundle
from marstts.bundle import find_bundle, model_folder, read_info
from marstts.errors import BenchmarkError
from marstts.generation.engine import EngineKind
from marstts.io.stored_tensors import stored_tensors

SIZES = {"70m": "marstts.benchmark.random_model"}
"""Sizes that can be measured with random weights, and the module that makes a bundle of each."""

INT8_TYPES = {"U8", "I8"}
"""Names of eight-bit integers in safetensors."""


class Model(NamedTuple):
    """A model to measure."""

    label: str
    """Name in tables."""

    source: str
    """Name or folder of a bundle."""

    is_baseline: bool = False
    """Whether its graphs are measured for comparison only, since the int8 version is faster."""


def named_models(names: Iterable[str], cache_dir: Path) -> list[Model]:
    """Bundles by name or folder, each followed by its int8 version where one can be made in `cache_dir`."""
    found = []
    for name in names:
        folder = find_bundle(name)
        found.append(Model(folder.name, name))
        can_be_int8 = read_info(folder).architecture == "mars6" and find_spec("onnx") is not None
        if can_be_int8 and has_graphs(found[-1]) and not is_int8(found[-1]):
            found.append(Model(folder.name, str(int8_bundle(folder, cache_dir))))
    return found


def random_models(size: str, cache_dir: Path) -> list[Model]:
    """A bundle of a size with random weights, and its int8 version; made in `cache_dir` by another process."""
    lines = run_python(["-m", SIZES[size], str(cache_dir)]).splitlines()
    single, int8 = json.loads(lines[-1])
    return [Model(size, single, is_baseline=True), Model(size, int8)]


def plan_cases(
    model: Model, engines: Sequence[EngineKind], measures: Sequence[Measure], scale: BenchmarkScale
) -> list[Case]:
    """The cases of a model in order."""
    found = []
    for engine in engines:
        for measure in measures:
            if is_baseline(model, engine) and measure is not Measure.TOKENS:
                continue
            if measure is Measure.COLD_START and engine is not EngineKind.ONNX:
                continue
            found.append(
                Case(
                    measure=measure, model=model.source, label=model.label, engine=engine.value,
                    weights=weights_of(model, engine), **scale.of(engine, is_baseline(model, engine)),
                )
            )  # fmt: skip
    return found


def is_baseline(model: Model, engine: EngineKind) -> bool:
    """Whether this engine runs the model for comparison only: PyTorch on a CPU always, others by the model."""
    return engine is EngineKind.TORCH or (engine is EngineKind.ONNX and model.is_baseline)


def weights_of(model: Model, engine: EngineKind) -> str:
    """Format of the weights that the engine computes with."""
    return "int8" if is_int8(model) else "float32"


def is_int8(model: Model) -> bool:
    """Whether any weights are eight-bit integers."""
    folder = find_bundle(model.source)
    files = model_folder(folder, read_info(folder)).glob("*.safetensors")
    return any(tensor.dtype in INT8_TYPES for path in files for tensor in stored_tensors(path).values())


def has_graphs(model: Model) -> bool:
    """Whether ONNX Runtime can run the model."""
    return models.has_graphs(find_bundle(model.source))


def run_case(case: Case) -> list[dict[str, Any]]:
    """The rows of a case; a single row with the reason where the case failed."""
    try:
        rows: list[dict[str, Any]] = json.loads(
            run_python(["-m", "marstts.benchmark.measures"], case.model_dump_json()).splitlines()[-1]
        )
    except BenchmarkError as error:
        variant = {"measure": case.measure.value, "model": case.label, "engine": case.engine, "weights": case.weights}
        return [{**variant, "failed": str(error)}]
    return rows


def run_python(arguments: list[str], text: str = "") -> str:
    """Standard output of another Python process; BenchmarkError with the last line of its errors where it fails."""
    done = subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True)
    if done.returncode:
        errors = done.stderr.strip().splitlines() or [
            f"the process ended with code {done.returncode} without a message"
        ]
        raise BenchmarkError(errors[-1])
    return done.stdout
