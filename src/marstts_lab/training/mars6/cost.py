"""The cost of a MARS6 recipe before it begins: hours of tokenization and training, and disk.

Upstream: a training configuration, hours of speech, number of GPUs.  Downstream: `marstts estimate`.
Operations are counted by PyTorch on one utterance; what follows from no formula is an assumption, named in the line.
Shapes: S text tokens · T patches · P positions · E length of an embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts_lab.training.mars6.config import PretrainConfig

PATCH_RATE = 24_000 / 2048
"""Patches per second of SNAC at 24 kHz, the paper's codec."""

TEXT_TOKENS_PER_SECOND = 5.0
"""People speak 15 characters a second, and a vocabulary of 512 makes a token of three."""

TRAINING_PASSES = 3
"""A backward pass costs twice the forward one."""

ASSUMED_MFU = 0.2
"""Part of a GPU's peak that a model of this size makes use of (model FLOPs utilization)."""

ASSUMED_OVERHEAD_SECONDS = 0.02
"""Time of a step whatever its batch: starting some thousand kernels, the optimizer, averaging gradients."""

ASSUMED_TOKENIZATION = 150.0
"""Seconds of audio that a GPU tokenizes in a second: half of what one CPU thread decodes, resamples and levels."""

SAMPLE_BYTES, FLAC_RATIO = 2, 0.6
"""Bytes of a sample, and the part of them that FLAC leaves: LibriHeavy's 50,000 hours at 16 kHz take 3.5 TB."""

CODE_BYTES, EMBEDDING_BYTES, LINE_BYTES = 2, 2, 400
"""Bytes in a shard: of a code, of a number of an embedding, and of an utterance's text and names."""

CHECKPOINT_BYTES = 16
"""Bytes of a parameter in a checkpoint: float32 weights, their EMA, and the two moments of AdamW."""

GB = 1e9


@dataclass(frozen=True)
class Recipe:
    """What is known of a recipe before it begins."""

    config: PretrainConfig
    hours: float
    """Hours of speech in the corpora."""

    gpus: int = 1
    seconds: float = 12.0
    """Mean length of a recording."""

    corpus_rate: int = 16_000
    """Sample rate (Hz) of the recordings on disk."""

    tflops: float = 989.0
    """Peak of a GPU in 10^12 operations a second, dense in bf16: an H100."""

    throughput: float | None = None
    """Seconds of audio that a GPU trains on in a second, where measured; it replaces what is assumed."""


@dataclass(frozen=True)
class Cost:
    """The estimate; sizes in GB of 10^9 bytes."""

    recipe: Recipe
    tokenization_hours: float
    training_hours: float
    trained_hours: float
    """Hours of audio, repetitions counted."""

    recordings_gb: float
    shards_gb: float
    checkpoints_gb: float

    @property
    def line(self) -> str:
        """The estimate in one line, with what it assumes."""
        recipe = self.recipe
        if recipe.throughput is None:
            basis = (
                f"not measured: {ASSUMED_MFU:.0%} of {recipe.tflops:g} TFLOP/s and "
                f"{1000 * ASSUMED_OVERHEAD_SECONDS:g} ms a step are assumed"
            )
        else:
            basis = f"{recipe.throughput:g} s of audio a second and GPU"
        return (
            f"estimate for {recipe.hours:,.0f} h of speech on {recipe.gpus} GPU{'s' * (recipe.gpus > 1)}: tokenization "
            f"{round_hours(self.tokenization_hours)} ({ASSUMED_TOKENIZATION:g} s of audio a second and GPU assumed), "
            f"training on {self.trained_hours:,.0f} h of audio {round_hours(self.training_hours)} ({basis}); disk: "
            f"recordings {round_gb(self.recordings_gb)}, shards {round_gb(self.shards_gb)}, "
            f"checkpoints {round_gb(self.checkpoints_gb)}"
        )


def estimate(recipe: Recipe) -> Cost:
    """The cost of tokenization and training by a configuration."""
    config, model = recipe.config, recipe.config.model
    patches = math.ceil(recipe.seconds * PATCH_RATE) + 1  # with the end of speech
    batches = config.accumulation_batches or recipe.gpus
    rows = batches * (config.batching.batch_size or config.batching.patches_per_batch / patches)
    trained_seconds = config.loop.steps * rows * recipe.seconds
    flops, parameters = count_operations(model, round(TEXT_TOKENS_PER_SECOND * recipe.seconds), patches)
    if recipe.throughput is None:
        operations = TRAINING_PASSES * flops * config.loop.steps * rows
        computing = operations / (recipe.gpus * recipe.tflops * 1e12 * ASSUMED_MFU)
        training_seconds = computing + config.loop.steps * ASSUMED_OVERHEAD_SECONDS
    else:
        training_seconds = trained_seconds / (recipe.gpus * recipe.throughput)
    seconds = 3600 * recipe.hours
    embeddings = EMBEDDING_BYTES * (model.identity_size + model.style_size)
    utterance_bytes = (embeddings + LINE_BYTES) / recipe.seconds  # per second of speech
    return Cost(
        recipe,
        tokenization_hours=recipe.hours / (recipe.gpus * ASSUMED_TOKENIZATION),
        training_hours=training_seconds / 3600,
        trained_hours=trained_seconds / 3600,
        recordings_gb=seconds * recipe.corpus_rate * SAMPLE_BYTES * FLAC_RATIO / GB,
        shards_gb=seconds * (PATCH_RATE * model.patch_size * CODE_BYTES + utterance_bytes) / GB,
        checkpoints_gb=(config.loop.keep_checkpoints + 1) * CHECKPOINT_BYTES * parameters / GB,  # one is being written
    )


def count_operations(config: Mars6Config, text_tokens: int, patches: int) -> tuple[float, int]:
    """Operations of a forward pass over one utterance of S tokens and T patches, and parameters of the model."""
    model = Mars6(config).eval()
    codes = torch.tensor(config.position_levels) * config.codebook_size  # (P,)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(
            torch.zeros(1, text_tokens, dtype=torch.long),
            torch.tensor([text_tokens]),
            torch.zeros(1, config.identity_size),
            torch.zeros(1, config.style_size),
            codes.repeat(1, patches, 1),
            torch.tensor([patches]),
        )
    return float(counter.get_total_flops()), sum(parameter.numel() for parameter in model.parameters())


def round_gb(size: float) -> str:
    """A size in GB to two digits or to the GB."""
    return f"{size:,.0f} GB" if size >= 10 else f"{size:.2g} GB"


def round_hours(hours: float) -> str:
    """Hours to two digits, in minutes below one hour."""
    if hours < 1:
        return f"{max(1, round(60 * hours))} min"
    digits = 10 ** max(0, len(str(int(hours))) - 2)
    return f"{hours:.1f} h" if hours < 10 else f"{round(hours / digits) * digits:,} h"
