"""Model FLOPs utilization (MFU): floating-point operations by formula, and the peak of a device.

Upstream: sizes of model and batch.  Downstream: the log of `task`, `cost_estimate`.
A multiplication with its addition counts as two operations; norms, activations, softmax and padding are left out.
Shapes: B batch · S text tokens · T patches · D width.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from marstts.io.precision import Precision, supported
from marstts.mars6.config import Conditioning, Mars6Config

TRAINING_PASSES = 3
"""A backward pass costs twice the forward one."""

SPEAKER_SLOTS = 2


def forward_flops(config: Mars6Config, text_lengths: Tensor, patch_lengths: Tensor) -> float:
    """Operations of a forward pass over rows of text_lengths (B,) tokens and patch_lengths (B,) patches."""
    width, inner = config.width, config.feed_forward_factor * config.width
    slots, patches = (text_lengths + SPEAKER_SLOTS).double(), patch_lengths.double()  # (B,)
    feed_forward, attention = 2 * width * inner, 4 * width * width  # multiplications per token
    encoder = config.encoder_layers * (slots * (attention + feed_forward) + 2 * width * slots * slots)
    per_patch = attention + 2 * width * width + feed_forward  # of cross-attention only queries and output
    memory = 2 * width * width * slots + 2 * width * patches * slots
    global_decoder = config.global_layers * (patches * per_patch + 2 * width * patches * patches + memory)
    positions = config.patch_size
    local = config.local_layers * (positions * (attention + feed_forward) + 2 * width * positions * positions)
    ends = width * width + positions * width * (config.codebook_size + 1)  # local input and logits
    embedding = (patches - 1) * positions * config.patch_token_width * width
    total = encoder + global_decoder + patches * (local + ends) + embedding
    return 2 * float((total + speaker_multiplications(config)).sum())


def speaker_multiplications(config: Mars6Config) -> int:
    """Multiplications of the input layers of the speaker embeddings, per row."""
    half, width = config.width // 2, config.width
    projections = half * (config.identity_size + config.style_size) + 4 * half * width
    return projections + (2 * width * width if config.conditioning is Conditioning.FUSED else 0)


def measured_peak(device: torch.device, precision: Precision, rounds: int = 4) -> float:
    """Operations per second in a product of square matrices: what the device reaches when nothing else matters."""
    size = 512 if device.type == "cpu" else 4096  # enough for a time that can be measured
    dtype = torch.bfloat16 if supported(device.type, precision) is Precision.BF16 else torch.float32
    matrix = torch.ones(size, size, device=device, dtype=dtype)
    fastest = float("inf")
    for _ in range(rounds):
        started = time.monotonic()
        float((matrix @ matrix)[0, 0])  # reading the result waits for it
        fastest = min(fastest, time.monotonic() - started)
    return 2 * size**3 / fastest
