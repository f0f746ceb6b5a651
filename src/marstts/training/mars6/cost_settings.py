"""Settings of `marstts estimate`: the corpus, the steps, the GPUs. Importing this module needs no PyTorch.

Upstream: `cli.estimate`.  Downstream: `cost_estimate`.
Model FLOPs utilization follows from no formula: `ASSUMED_MFU` and `ASSUMED_OVERHEAD_MS` are assumptions, to be replaced
by the values of a run's log.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from marstts.io.config import Config

ASSUMED_MFU = 0.2
"""Ratio of a device's peak that the model makes use of. Small models reach less than large ones."""

ASSUMED_OVERHEAD_MS = 20.0
"""Milliseconds of a step whatever its batch: starting some thousand kernels, the optimizer, averaging gradients."""

ASSUMED_TOKENIZE_THROUGHPUT = 150.0
"""Seconds of audio that a GPU tokenizes in a second: half of what one CPU thread decodes, resamples and levels."""

ASSUMED_MINING_THROUGHPUT = 5.0
"""Seconds of speech that a process generates in a second, and as many that it scores."""


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet."""

    tflops: float
    """10^12 operations a second: dense matrix products in bf16 (fp16 where there is no bf16), no sparsity."""

    memory_gb: float


GPUS = {
    "h200": Gpu(989, 141),
    "h100": Gpu(989, 80),
    "h100-pcie": Gpu(756, 80),
    "a100": Gpu(312, 80),
    "a100-40": Gpu(312, 40),
    "l40s": Gpu(362, 48),
    "l4": Gpu(121, 24),
    "a10": Gpu(125, 24),
    "rtx4090": Gpu(165, 24),
    "rtx3090": Gpu(71, 24),
    "v100": Gpu(125, 32),
    "t4": Gpu(65, 16),
}


class EstimateConfig(Config):
    """The training whose cost is estimated. Defaults are the paper's (MARS6, Sec. V-A)."""

    hours: float = Field(46_000.0, gt=0.0, le=1e12)
    """Hours of speech in the corpus."""

    seconds_per_utterance: float = Field(12.0, gt=0.0, le=1e6)
    """Mean length of a recording."""

    steps: int = Field(2_000_000, gt=0, le=10**12)
    batch_size: int = Field(96, gt=0, le=10**9)
    """Utterances of a step, on all GPUs together."""

    gpus: int = Field(1, gt=0, le=10**9)
    tflops: float = Field(989.0, gt=0.0, le=1e9)
    """Peak of one GPU, 10^12 operations a second."""

    mfu: float = Field(ASSUMED_MFU, gt=0.0, le=1.0)
    """Model FLOPs utilization while the matrix products run."""

    overhead_ms: float = Field(ASSUMED_OVERHEAD_MS, ge=0.0, le=1e9)
    """Milliseconds of a step in which they do not run."""

    throughput: float | None = Field(None, gt=0.0, le=1e12)
    """Seconds of audio per second and GPU, from a run's log; where given, it decides the hours."""

    corpus_rate: int = Field(16_000, gt=0, le=10**6)
    """Sample rate (Hz) of the recordings on disk."""

    tokenize_throughput: float = Field(ASSUMED_TOKENIZE_THROUGHPUT, gt=0.0, le=1e9)
    """Seconds of audio that a GPU tokenizes in a second."""

    cycles: int = Field(20_000, ge=0, le=10**12)
    """Cycles that are mined for preference training."""

    mining_workers: int = Field(16, gt=0, le=10**9)
    """Processes that generate and score takes."""

    mining_throughput: float = Field(ASSUMED_MINING_THROUGHPUT, gt=0.0, le=1e9)
    """Seconds of speech that such a process generates in a second, and as many that it scores."""
