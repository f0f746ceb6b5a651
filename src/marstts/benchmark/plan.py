"""What is measured: one value for each process that measures.

Upstream: `cli.benchmark`.  Downstream: `measures`, which measures it, in a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from marstts.config import Config
from marstts.synthesis.loading import Engine


class Measure(str, Enum):
    """What one process finds out."""

    TOKENS = "tokens"
    """How fast tokens come, for one text of every length, and for several at once."""

    SPEECH = "speech"
    """How fast audio comes from text, and when the first of it, for a text of every length."""

    CALLERS = "callers"
    """When the first audible sample comes, with several callers at once."""

    MEMORY = "memory"
    """How much memory loading and speaking takes at most."""

    START = "start"
    """How soon the first sample leaves `marstts speak`, counted from the start of its process."""

    NAIVE = "naive"
    """How fast tokens come the slow, obvious way."""


class Case(Config):
    """One measurement of one model in one way to run it."""

    measure: Measure

    model: str
    """Name or folder of the bundle."""

    label: str
    """What the model is called in tables."""

    engine: str
    """A `synthesis.loading.Engine`."""

    weights: str
    """What the model computes with, as tables name it: "float32", "int8", …"""

    lengths: tuple[float, ...]
    """Seconds of speech, in ascending order."""

    batches: tuple[int, ...] = (1,)
    """Texts at once."""

    callers: tuple[int, ...] = (1,)
    """Threads that ask for speech at once."""

    reference_seconds: float = 10.0
    """The length at which batches, naive mode and memory are measured."""

    caller_seconds: float = 4.0
    """How much each caller asks for at a time."""

    requests: int = 5
    """How often all callers together ask at least; each asks at least once more than that, unmeasured, to warm up."""

    runs: int = 2
    """Runs of each measurement up to the reference length, and one run of longer ones; the fastest counts, for what
    disturbs a machine only makes it slower."""

    naive_every: int = 10
    """The naive mode is timed at every n-th patch only; what a patch costs depends on its number, and smoothly."""


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    lengths: tuple[float, ...] = (2, 5, 10, 20, 60)
    callers: tuple[int, ...] = (1, 4, 16)
    batches: tuple[int, ...] = (1, 8)
    gpu_batches: tuple[int, ...] = (1, 8, 64)
    reference_seconds: float = 10.0
    caller_seconds: float = 4.0
    requests: int = 12
    runs: int = 2

    def of(self, engine: Engine, is_yardstick: bool) -> dict[str, Any]:
        """The fields of a `Case`; what is there for comparison says one text of the reference length and no more."""
        batches = self.gpu_batches if engine is Engine.CUDA else self.batches
        return {
            "lengths": (self.reference_seconds,) if is_yardstick else self.lengths,
            "batches": (1,) if is_yardstick else batches,
            "callers": self.callers,
            "reference_seconds": self.reference_seconds,
            "caller_seconds": self.caller_seconds,
            "requests": self.requests,
            "runs": self.runs,
        }


QUICK = Extent(
    lengths=(2, 5), callers=(1, 2), batches=(1, 2), gpu_batches=(1, 2), reference_seconds=2.0, caller_seconds=1.0,
    requests=1, runs=1,
)  # fmt: skip
"""Enough to see that everything works; too little for figures to be believed."""
