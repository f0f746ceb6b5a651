"""Codes that a model predicts for recordings by teacher forcing, as input of the codec's decoder.

Upstream: shards of `recipes/mini/predicted_codes.py`, with the utterances of the corpora.  Downstream: `segments`.
Ground-truth-aligned training, as of a vocoder on the spectrograms that a synthesizer predicts by teacher forcing
(arXiv:1712.05884, Sec. 3.1): the codes have the words and the timing of the recording. What they lack of it, above all
who speaks, the decoder has to take from the timbre embedding. Not in the papers.
Shapes: T codes of a level.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.codec.mini import MiniCodecConfig
from marstts.errors import DataError
from marstts.io.config import Config
from marstts_lab.data.corpus import load_corpus
from marstts_lab.training.bounds import Probability


class PredictedCodesConfig(Config):
    """Segments that are decoded from predicted codes instead of the codes of the recording."""

    shards: tuple[str, ...] = Field(min_length=1)
    """Folders of shards whose utterances are those of the corpora."""

    ratio: Probability = 0.6
    """Probability that a segment has predicted codes, where its recording has some."""


class PredictedCodes:
    """The predicted codes of utterances, by their ids."""

    def __init__(self, config: PredictedCodesConfig, model: MiniCodecConfig) -> None:
        """DataError where the shards are of a codec with other codes."""
        self.corpus = load_corpus(*map(Path, config.shards))
        spec = self.corpus.codec
        found = spec.sample_rate, tuple(spec.hop_lengths), spec.codebook_size
        expected = model.sample_rate, tuple(model.hop_lengths), model.codebook_size
        if found != expected:
            raise DataError(
                f"{', '.join(config.shards)}: these codes have sample rate, hops and size {found}, but the codec has "
                f"{expected}; predict codes of a model with this codec"
            )
        self.layout = spec.patch_layout
        self.row = {self.corpus.utterances[i].id: i for i in range(len(self.corpus))}

    def num_patches(self, utterance: str) -> int:
        """Patches of an utterance; 0 where it has no predicted codes."""
        return int(self.corpus.num_patches[self.row[utterance]]) if utterance in self.row else 0

    def of(self, utterance: str, first: int, count: int) -> tuple[NDArray[np.int64], ...]:
        """Per level, the codes (T,) of `count` patches from patch `first` on."""
        levels = self.corpus.codes_of(self.row[utterance])
        return tuple(level[first * n : (first + count) * n] for level, n in zip(levels, self.layout, strict=True))
