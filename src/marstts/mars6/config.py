"""The sizes and choices that make a MARS6 (arXiv:2501.05787, Sec. III and V-A), and the layout of its patches.

The defaults are the paper's model. Where the paper does not specify a size, the default is that of the published
checkpoint. Only with it has the model the paper's 70M parameters: feed-forward layers are twice as wide as the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from marstts.codec.base import Codes
from marstts.errors import DataError
from marstts.generation.engine import TokenLayout
from marstts.io.config import Config

IDENTITY, STYLE = "identity", "style"
"""Roles of the two speaker embeddings: E1 and E2 of Sec. III-A."""

NUM_SLOTS = 2
"""Places of the memory before the first text token, in either conditioning."""

CONFIG_FILE, WEIGHTS_FILE = "config.json", "mars6.safetensors"
"""Files of a model's folder."""

MAX_LAYERS, MAX_EMBEDDING_SIZE = 256, 2**16


class Conditioning(str, Enum):
    """Form in which the two speaker vectors enter the encoder's sequence."""

    TWO_SLOTS = "two_slots"
    """The paper: each vector is projected to one slot of the encoder's input."""

    FUSED = "fused"
    """The published checkpoint: gated projections, summed into one slot, after a language slot."""


class Mars6Config(Config):
    """Architecture of a MARS6. Shapes: B batch · S encoder slots · T patches · P positions · D width · V vocabulary."""

    text_vocab_size: int = Field(512, gt=0, le=2**20)
    """BPE tokens, special tokens included (Sec. V-A)."""

    codebook_size: int = Field(4096, gt=0, le=2**16)
    """Codes per codec level; the speech vocabulary is `levels * codebook_size + 1`, the last id being EOS."""

    patch_layout: tuple[Annotated[int, Field(ge=1, le=64)], ...] = Field((1, 2, 4), min_length=1, max_length=16)
    """Codes of each level in one patch, coarse to fine (Sec. III-B)."""

    width: int = Field(512, gt=0, le=2**14)
    """D of all three transformers."""

    encoder_layers: int = Field(8, gt=0, le=MAX_LAYERS)
    global_layers: int = Field(8, gt=0, le=MAX_LAYERS)
    local_layers: int = Field(4, gt=0, le=MAX_LAYERS)

    heads: int = Field(8, gt=0, le=1024)
    """Attention heads of encoder and global decoder."""

    local_heads: int = Field(8, gt=0, le=1024)
    """Attention heads of the local decoder."""

    feed_forward_factor: int = Field(2, gt=0, le=64)
    """Width of the feed-forward layers as a multiple of D."""

    identity_size: int = Field(512, gt=0, le=MAX_EMBEDDING_SIZE)
    """E1, length of the speaker-verification embedding (WavLM-SV: 512)."""

    style_size: int = Field(1024, gt=0, le=MAX_EMBEDDING_SIZE)
    """E2, length of the style embedding (MS-CLAP: 1024)."""

    conditioning: Conditioning = Conditioning.TWO_SLOTS
    """Form in which the two embeddings enter the sequence."""

    languages: int = Field(1, gt=0, le=2**12)
    """Rows of the language tables; only `fused` conditioning has them."""

    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Applied in training to attention and feed-forward outputs."""

    aligned_heads: tuple[tuple[int, int], ...] = ()
    """(layer, head) pairs of the global decoder, from 0, whose cross-attention follows the text monotonically.

    `alignment` finds them, and engines report their mean attention. Without any, the model has no word times.
    """

    @cached_property
    def layout(self) -> TokenLayout:
        """The tokens of one patch."""
        return TokenLayout(self.patch_layout, self.codebook_size)

    @property
    def patch_size(self) -> int:
        """P, tokens in one patch (7)."""
        return self.layout.patch_size

    @property
    def position_levels(self) -> tuple[int, ...]:
        """Level of each of the P positions: (0, 1, 1, 2, 2, 2, 2)."""
        return self.layout.position_levels

    @property
    def speech_vocab_size(self) -> int:
        """V, all codes of all levels and EOS."""
        return self.layout.vocab_size

    @property
    def eos(self) -> int:
        """The end-of-speech token, last of the vocabulary."""
        return self.layout.eos

    @property
    def embedding_sizes(self) -> dict[str, int]:
        """Length of the speaker embedding of each role."""
        return {IDENTITY: self.identity_size, STYLE: self.style_size}

    @property
    def patch_token_width(self) -> int:
        """Width of one token inside the patch embedding, floor(2D / P)."""
        return 2 * self.width // self.patch_size

    def _has_head(self, layer: int, head: int) -> bool:
        return 0 <= layer < self.global_layers and 0 <= head < self.heads

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Mars6Config:
        for name in ("heads", "local_heads"):
            if self.width % getattr(self, name):
                raise ValueError(f"{name} ({getattr(self, name)}) must divide width ({self.width})")
        if self.patch_token_width < 1:
            raise ValueError(f"a patch of {self.patch_size} tokens is too large for width {self.width}")
        if bad := [pair for pair in self.aligned_heads if not self._has_head(*pair)]:
            raise ValueError(
                f"aligned_heads has {bad[0]}, but there are {self.global_layers} layers of {self.heads} heads"
            )
        if self.width % 2:
            raise ValueError(f"width ({self.width}) must be even, for sinusoidal positions")
        return self


# Codes per level ↔ patches of tokens: the layout of one L0 frame, coarse to fine.
# MARS6 (arXiv:2501.05787), Sec. III-B.  Deviations: none; the end-of-speech token is a whole patch, as published.
# Patch n of layout (1, 2, 4) is [L0_n, L1_2n, L1_2n+1, L2_4n .. L2_4n+3]; level l's codes are moved up by `l *
# codebook_size`, and the id after the last level means end of speech.


def patchify(codes: Codes, layout: Sequence[int], codebook_size: int) -> NDArray[np.int64]:
    """Codes, one (T * layout[l],) array per level -> tokens (T, P) with level offsets, no end of speech.

    Raises DataError if the levels' lengths do not make whole patches or a code lies outside its codebook.
    """
    check_codes(codes, layout, codebook_size)
    levels = [
        np.asarray(level, dtype=np.int64).reshape(-1, count) + index * codebook_size
        for index, (level, count) in enumerate(zip(codes, layout, strict=True))
    ]
    return np.concatenate(levels, axis=1)


def unpatchify(tokens: NDArray[np.int64], layout: Sequence[int], codebook_size: int) -> Codes:
    """Tokens (T, P) -> codes, one (T * layout[l],) array per level: the inverse of `patchify`.

    Raises DataError if a token is not a code of its position's level (end of speech is not a code).
    """
    if tokens.ndim != 2 or tokens.shape[1] != sum(layout):
        raise DataError(f"expected patches of {sum(layout)} tokens, got an array of shape {tokens.shape}")
    edges = np.cumsum([0, *layout])
    codes = tuple(
        tokens[:, start:end].reshape(-1) - level * codebook_size for level, (start, end) in enumerate(pairwise(edges))
    )
    check_codes(codes, layout, codebook_size)
    return codes


def eos_patch(config: Mars6Config) -> NDArray[np.int64]:
    """(1, P): the patch that follows the last one of an utterance; every token is end of speech."""
    return np.full((1, config.patch_size), config.eos, dtype=np.int64)


def check_codes(codes: Codes, layout: Sequence[int], codebook_size: int) -> None:
    """Raise DataError, in words, unless `codes` are whole patches of codes within their codebooks."""
    if len(codes) != len(layout):
        raise DataError(f"expected codes on {len(layout)} levels, got {len(codes)}: were they made by another codec?")
    num_patches = len(codes[0]) // layout[0]
    for level, (values, count) in enumerate(zip(codes, layout, strict=True)):
        if len(values) != num_patches * count:
            raise DataError(
                f"level {level} has {len(values)} codes where {num_patches} patches need {num_patches * count}"
            )
        if len(values) and not 0 <= values.min() <= values.max() < codebook_size:
            raise DataError(
                f"level {level} has codes from {values.min()} to {values.max()}; the codebook holds 0 to "
                f"{codebook_size - 1}: were they made by another codec?"
            )
