"""The cases of a benchmark, measured one after the other, each in a separate process.

Upstream: `cli.benchmark`, which chooses models and measurements.  Downstream: `report`.
This process loads neither models nor PyTorch, and waits while others measure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from marstts import models
from marstts.bundle import find_bundle, model_folder, read_info
from marstts.errors import BenchmarkError
from marstts.generation.engine import EngineKind
from marstts.io.stored_tensors import stored_tensors
from marstts_lab.benchmark.plan import BenchmarkScale, Case, Measure

INT8_TYPES = {"U8", "I8"}
"""Names of eight-bit integers in safetensors."""


class BenchmarkedModel(NamedTuple):
    """A model to measure."""

    label: str
    """Name in tables."""

    source: str
    """Name or folder of a bundle."""


def named_models(names: Iterable[str]) -> list[BenchmarkedModel]:
    """Bundles by name or folder."""
    return [BenchmarkedModel(find_bundle(name).name, name) for name in names]


def plan_cases(
    model: BenchmarkedModel, engines: Sequence[EngineKind], measures: Sequence[Measure], scale: BenchmarkScale
) -> list[Case]:
    """The cases of a model in order."""
    found = []
    for engine in engines:
        for measure in measures:
            if engine is EngineKind.TORCH and measure is not Measure.TOKENS:
                continue
            if measure is Measure.COLD_START and engine is not EngineKind.ONNX:
                continue
            found.append(
                Case(
                    measure=measure, model=model.source, label=model.label, engine=engine.value,
                    weights=weights_of(model, engine), **scale.of(engine),
                )
            )  # fmt: skip
    return found


def weights_of(model: BenchmarkedModel, engine: EngineKind) -> str:
    """Format of the weights that an engine computes with."""
    return "int8" if engine is EngineKind.ONNX and is_int8(model) else "float32"


def is_int8(model: BenchmarkedModel) -> bool:
    """Whether any weights are eight-bit integers."""
    folder = find_bundle(model.source)
    files = model_folder(folder, read_info(folder)).glob("*.safetensors")
    return any(tensor.dtype in INT8_TYPES for path in files for tensor in stored_tensors(path).values())


def has_graphs(model: BenchmarkedModel) -> bool:
    """Whether ONNX Runtime can run the model."""
    return models.has_graphs(find_bundle(model.source))


def run_case(case: Case) -> list[dict[str, Any]]:
    """The rows of a case; a single row with the reason where the case failed."""
    try:
        rows: list[dict[str, Any]] = json.loads(
            run_python(["-m", "marstts_lab.benchmark.measures"], case.model_dump_json()).splitlines()[-1]
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
