"""The measurements of a benchmark: one value for each process that measures.

Upstream: `cli.benchmark`.  Downstream: `measures`, which runs one in a separate process.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from marstts.generation.engine import EngineKind
from marstts.io.config import Config


class Measure(str, Enum):
    """Kinds of measurement, one per process."""

    TOKENS = "tokens"
    """Speed of token generation, for one text of every length, and for several texts in a batch."""

    SPEECH = "speech"
    """Speed from text to audio, for a text of every length."""

    CONCURRENCY = "concurrency"
    """Latency of the first audible sample, with several concurrent callers."""

    MEMORY = "memory"
    """Peak memory of loading and speaking."""

    COLD_START = "cold-start"
    """Time from the start of a `marstts speak` process to its first sample."""


class BenchmarkScale(Config):
    """Lengths, batch sizes and repetitions of a benchmark."""

    lengths: tuple[float, ...] = (2, 5, 10, 20, 60)
    """Seconds of speech, in ascending order."""

    batches: tuple[int, ...] = (1, 8)
    """Texts in a batch."""

    gpu_batches: tuple[int, ...] = (1, 8, 64)

    concurrency: tuple[int, ...] = (1, 4, 16)
    """Threads that ask for speech at the same time."""

    reference_seconds: float = 10.0
    """Length at which batches and memory are measured."""

    caller_seconds: float = 4.0
    """Length of each request of a caller."""

    requests: int = 12
    """Measured requests of all callers together, at least; each caller makes one more, unmeasured, to warm up."""

    runs: int = 2
    """Runs of each measurement up to the reference length; longer ones have one run. The fastest counts, since
    disturbances only make a run slower."""

    def of(self, engine: EngineKind) -> dict[str, Any]:
        """The fields of a `Case`; PyTorch on a CPU is measured with one text of the reference length only."""
        batches = self.gpu_batches if engine is EngineKind.CUDA else self.batches
        slow = {"lengths": (self.reference_seconds,), "batches": (1,)} if engine is EngineKind.TORCH else {}
        return {**self.model_dump(), "batches": batches, **slow}


QUICK = BenchmarkScale(
    lengths=(2, 5), concurrency=(1, 2), batches=(1, 2), gpu_batches=(1, 2), reference_seconds=2.0, caller_seconds=1.0,
    requests=1, runs=1,
)  # fmt: skip
"""Enough to test the benchmark itself; too little for reliable figures."""


class Case(BenchmarkScale):
    """One measurement of one model on one engine."""

    measure: Measure

    model: str
    """Name or folder of the bundle."""

    label: str
    """Name of the model in tables."""

    engine: str
    """A `generation.engine.EngineKind`."""

    weights: str
    """Format of the weights in computation, as tables name it: "float32", "int8", …"""
