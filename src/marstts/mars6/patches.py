"""Codes per level ↔ patches of tokens: the layout of one L0 frame, coarse to fine.

Upstream: `codec.base.Codes`.  Downstream: the two decoders, and `data` which stores patches.
MARS6 (arXiv:2501.05787), Sec. III-B.  Deviations: none; the end-of-speech token is a whole patch, as published.

Patch n of layout (1, 2, 4) is [L0_n, L1_2n, L1_2n+1, L2_4n .. L2_4n+3]; level l's codes are moved up by
`l * codebook_size`, and the id after the last level means end of speech.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marstts.codec.base import Codes
from marstts.errors import DataError
from marstts.mars6.config import Mars6Config


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
