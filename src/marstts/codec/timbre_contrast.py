"""Contrast of timbre embeddings in synthesis: what distinguishes a voice from the mean of all voices, scaled.

Upstream: a codec's `config.json`.  Downstream: `mini`. Another factor is in the weights, set at
export (`training.codec.timbre_contrast`); the two multiply.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat, model_validator

from marstts.io.config import Config


class TimbreContrast(Config):
    """The factor of what distinguishes timbre embeddings from their mean, where the decoder is conditioned on them.

    More contrast makes voices more distinct and words less clear (`training.codec.timbre_contrast`). Embeddings in
    voice files stay what they are.
    """

    factor: float = Field(ge=0, le=4)
    """Factor of the part that is orthogonal to the mean; 1 = unchanged, 0 = the mean voice."""

    mean: tuple[FiniteFloat, ...] = Field(min_length=1, max_length=4096)
    """(V,) the mean timbre embedding of many speakers, of any length above 0."""

    @model_validator(mode="after")
    def _mean_has_a_direction(self) -> TimbreContrast:
        if not any(self.mean):
            raise ValueError("the mean timbre embedding has only zeros")
        return self

    def apply(self, embedding: NDArray[np.float32]) -> NDArray[np.float32]:
        """The embedding (V,) with this contrast; its norm stays."""
        direction = np.array(self.mean) / np.linalg.norm(self.mean)
        common = (embedding @ direction) * direction
        changed = common + self.factor * (embedding - common)
        norm = max(float(np.linalg.norm(changed)), 1e-9)
        return np.asarray(changed * (float(np.linalg.norm(embedding)) / norm), np.float32)
