"""A small model, prompts for it, and generation with any engine; the slow version, without caches, is here too."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from marstts.generation.engine import Engine
from marstts.generation.loop import generate
from marstts.generation.request import Generated, Limits, SamplingConfig
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Mars6Prompt

CONFIG = Mars6Config(
    text_vocab_size=31, codebook_size=13, width=24, encoder_layers=1, global_layers=2, local_layers=2,
    heads=3, local_heads=2, identity_size=5, style_size=9,
)  # fmt: skip
OFFSETS = np.array(CONFIG.position_levels) * CONFIG.codebook_size


def model_with(config: Mars6Config = CONFIG) -> Mars6:
    torch.manual_seed(3)
    model = Mars6(config)
    with torch.no_grad():  # codes sharp, so that rounding decides nothing, and end of speech rare
        model.local_decoder.output.weight[:-1] *= 4
    return model


def prompts(lengths=((6, 0), (9, 4), (4, 1))) -> list[Mars6Prompt]:
    """(text tokens, prefix patches) of each row."""
    rng = np.random.default_rng(0)
    return [
        Mars6Prompt(
            rng.integers(0, 31, text), rng.normal(size=5).astype(np.float32), rng.normal(size=9).astype(np.float32),
            rng.integers(0, 13, (prefix, 7)) + OFFSETS,
        )
        for text, prefix in lengths
    ]  # fmt: skip


def speak(
    engine: Engine[Any], some: list[Mars6Prompt], top_p: float, seeds: list[int], patches: int = 8
) -> list[Generated]:
    return generate(
        engine, some, top_p=[top_p] * len(some), limits=[Limits(0, patches)] * len(some),
        rngs=[np.random.default_rng(seed) for seed in seeds],
        sampling=SamplingConfig(ras_max_ratio=1.0 if top_p == 0 else 0.09),
    )  # fmt: skip


@torch.no_grad()
def slow_greedy(model: Mars6, prompt: Mars6Prompt, patches: int) -> list[list[int]]:
    """No caches, no batch: the teacher-forced model rerun for every single token."""
    config, tokens_so_far = model.config, prompt.prefix_tokens.tolist()
    for _ in range(patches):
        patch = [config.eos] * 7
        for position, level in enumerate(config.position_levels):
            tokens = torch.tensor([[*tokens_so_far, patch]])
            output = model(
                torch.as_tensor(prompt.text_ids)[None], torch.tensor([len(prompt.text_ids)]),
                torch.as_tensor(prompt.identity)[None], torch.as_tensor(prompt.style)[None],
                tokens, torch.tensor([tokens.shape[1]]),
            )  # fmt: skip
            pick = int(torch.cat(output.logits, dim=1)[-1, position].argmax())
            if pick == config.codebook_size:
                return tokens_so_far[len(prompt.prefix_tokens) :]
            patch[position] = pick + level * config.codebook_size
        tokens_so_far.append(patch)
    return tokens_so_far[len(prompt.prefix_tokens) :]
