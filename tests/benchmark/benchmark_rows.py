"""Cases of a toy model, and rows as a benchmark makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marstts_lab.benchmark.plan import Case, Measure


def make_case(bundle: Path, measure: Measure, engine: str = "onnx", **changes: Any) -> Case:
    """A short measurement of a bundle."""
    values: dict[str, Any] = {
        "measure": measure, "model": str(bundle), "label": "toy", "engine": engine, "weights": "float32",
        "lengths": (0.3, 0.6), "batches": (1, 3), "concurrency": (1, 2), "reference_seconds": 0.3,
        "caller_seconds": 0.4, "requests": 1, "runs": 1,
    }  # fmt: skip
    return Case(**{**values, **changes})


def make_row(
    measure: Measure, model: str = "70m", engine: str = "onnx", weights: str = "int8", **figures: Any
) -> dict[str, Any]:
    """A row with these figures."""
    return {"measure": measure.value, "model": model, "engine": engine, "weights": weights, **figures}


def tokens_row(seconds: float, rtf: float, batch: int = 1, **variant: Any) -> dict[str, Any]:
    """A row of token generation."""
    figures = {"tokens_per_second": 82 * batch / rtf, "first_patch_seconds": 0.01}
    return make_row(Measure.TOKENS, batch=batch, seconds=seconds, rtf=rtf, **figures, **variant)
