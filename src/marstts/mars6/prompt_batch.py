"""Prompts of different lengths as one padded batch, for all engines.

Upstream: `mars6.prompt`.  Downstream: `engines`, which run the model as a `generation.engine.Engine`.
Shapes: B rows · S text tokens · T prefix patches · P positions of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.mars6.prompt import Prompt

TEXT_PADDING = 0
"""Any id would do: padded text is never attended to."""

PATCH_PADDING = -100
"""Padding instead of a token; the patch embedding ignores it."""


@dataclass(frozen=True, eq=False)
class PromptBatch:
    """Prompts side by side, padded at the end."""

    text_ids: NDArray[np.int64]
    """(B, S)."""

    text_lengths: NDArray[np.int64]
    """(B,)."""

    identity: NDArray[np.float32]
    """(B, E1)."""

    style: NDArray[np.float32]
    """(B, E2)."""

    prefix: NDArray[np.int64]
    """(B, T, P), T = 0 if no prompt has a prefix."""

    prefix_lengths: NDArray[np.int64]
    """(B,)."""


def collate(prompts: Sequence[Prompt]) -> PromptBatch:
    """At least one prompt, all for the same model, as a batch."""
    assert prompts, "a batch has at least one row"
    text_lengths = np.array([len(prompt.text_ids) for prompt in prompts], dtype=np.int64)
    prefix_lengths = np.array([len(prompt.prefix_tokens) for prompt in prompts], dtype=np.int64)
    text_ids = np.full((len(prompts), text_lengths.max()), TEXT_PADDING, dtype=np.int64)
    patch_size = prompts[0].prefix_tokens.shape[1]
    prefix = np.full((len(prompts), prefix_lengths.max(), patch_size), PATCH_PADDING, dtype=np.int64)
    for row, prompt in enumerate(prompts):
        text_ids[row, : text_lengths[row]] = prompt.text_ids
        prefix[row, : prefix_lengths[row]] = prompt.prefix_tokens
    return PromptBatch(
        text_ids=text_ids,
        text_lengths=text_lengths,
        identity=np.stack([prompt.identity for prompt in prompts]),
        style=np.stack([prompt.style for prompt in prompts]),
        prefix=prefix,
        prefix_lengths=prefix_lengths,
    )
