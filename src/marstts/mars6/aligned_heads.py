"""Aligned heads: which heads of the global decoder's cross-attention follow the text, measured on generated speech.

Upstream: a trained model and prompts.  Downstream: `Mars6Config.aligned_heads`, which the engines read.
A model trained with guided attention has such heads; others may have found some by themselves. A head
is scored on takes that it was not chosen for: all of its attention must be on text, most of it on few tokens, and the
place it looks at must rise with time.
Shapes: L layers · H heads · T patches · S text tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig
from marstts.mars6.encoder import FusedSlot
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Mars6Prompt, collate, prompt_string
from marstts.text.tokenizers.bpe import BPE

MIN_ON_TEXT = 0.9
"""Share of a head's attention that is on the text, not on the speaker's slots."""

MIN_PEAK = 0.5
"""Mean of the highest attention of each patch."""

MIN_MONOTONICITY = 0.97
"""Correlation of time and the place attended to. Guided heads of mini have 0.995, its other heads below 0.95."""

CALIBRATION_TEXTS = (
    "The old sailor gave them a map of the sea.",
    "Where did you put the keys to the garden shed?",
    "It was raining, and nobody had thought of bringing an umbrella.",
    "Seven small boats were lying in the harbor that morning.",
)


def name_aligned_heads(model: Mars6, tokenizer: BPE, quality: int | None = 48_000) -> None:
    """Name the aligned heads in the model's configuration, if it names none, by speaking the calibration texts."""
    if not model.config.aligned_heads:
        model.align(calibrated_heads(model, tokenizer, quality))


def calibrated_heads(model: Mars6, tokenizer: BPE, quality: int | None) -> tuple[tuple[int, int], ...]:
    """(layer, head) that follow the calibration texts, spoken by no one in particular."""
    identity, style = calibration_speaker(model)
    prompts = [
        Mars6Prompt(
            np.asarray(tokenizer.encode(prompt_string(text, quality=quality)), dtype=np.int64),
            identity,
            style,
            np.zeros((0, model.config.patch_size), np.int64),
        )
        for text in CALIBRATION_TEXTS
    ]
    return find_aligned_heads(model, prompts)


def calibration_speaker(model: Mars6) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embeddings (E1,), (E2,) of no one: the trained null speaker where the model has one, else zeros."""
    if isinstance(model.encoder.slots, FusedSlot):
        identity, style = model.encoder.slots.null_speaker(1)
        return identity[0].detach().float().cpu().numpy(), style[0].detach().float().cpu().numpy()
    return np.zeros(model.config.identity_size, np.float32), np.zeros(model.config.style_size, np.float32)


def find_aligned_heads(model: Mars6, prompts: Sequence[Mars6Prompt]) -> tuple[tuple[int, int], ...]:
    """(layer, head) of every head that follows the text of the prompts, whose speech is generated; may be none."""
    scores = np.mean([score_heads(attention) for attention in spoken_attention(model, prompts)], axis=0)
    good = (scores >= np.array([MIN_ON_TEXT, MIN_PEAK, MIN_MONOTONICITY])).all(axis=2)
    return tuple((int(layer), int(head)) for layer, head in np.argwhere(good))


@torch.inference_mode()
def spoken_attention(model: Mars6, prompts: Sequence[Mars6Prompt]) -> list[NDArray[np.float32]]:
    """Generate each prompt, then attention (L, H, T, S) of all heads, by one pass over the generated patches."""
    engine = TorchEngine(model)
    limits = [Limits(0, 12 + 2 * len(prompt.text_ids)) for prompt in prompts]
    rngs = [np.random.default_rng(index) for index in range(len(prompts))]
    sampling = SamplingConfig()
    made = generate(engine, prompts, top_p=[0.2] * len(prompts), limits=limits, rngs=rngs, sampling=sampling)
    return [forced_attention(model, prompt, one.tokens) for prompt, one in zip(prompts, made, strict=True)]


@torch.inference_mode()
def forced_attention(model: Mars6, prompt: Mars6Prompt, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """Attention (L, H, T, S) of all heads to the text, by one pass over patches tokens (T, P) that a model has made."""
    batch = collate([prompt])
    memory, mask = model.encode(
        torch.as_tensor(batch.text_ids), torch.as_tensor(batch.text_lengths),
        torch.as_tensor(batch.identity), torch.as_tensor(batch.style),
    )  # fmt: skip
    x = model.global_decoder.embed(torch.as_tensor(tokens[None]))
    layers = model.global_decoder(x, memory, mask, tuple(range(model.config.global_layers))).cross_attention
    return torch.cat(layers)[..., model.num_slots :].numpy()


def score_heads(attention: NDArray[np.float32]) -> NDArray[np.float64]:
    """attention (L, H, T, S) -> (L, H, 3): share on the text, mean peak, monotonicity."""
    on_text = attention.sum(axis=3)
    place = attention @ np.arange(attention.shape[3], dtype=np.float32) / np.maximum(on_text, 1e-6)  # (L, H, T)
    time = np.arange(attention.shape[2]) - (attention.shape[2] - 1) / 2
    centered = place - place.mean(axis=2, keepdims=True)
    norms = np.linalg.norm(centered, axis=2) * np.linalg.norm(time)
    correlation = centered @ time / np.maximum(norms, 1e-9)
    return np.stack([on_text.mean(axis=2), attention.max(axis=3).mean(axis=2), correlation], axis=2)
