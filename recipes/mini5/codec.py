"""The codec of mini5: eight levels at 23.4 Hz by k-means on the codes of the packaged model's codec.

    python recipes/mini5/codec.py SHARDS OUTPUT

SHARDS are those of `marstts tokenize` with the packaged codec. Prints how much of the vectors' variance each level
leaves unexplained on the validation split, and how many of the packaged codec's codes come back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from marstts.codec.residual import PACKAGED_CODEC, FrameVectors, quantize
from marstts.data.corpus import Corpus, load_corpus
from marstts.training.codec.residual import fit_codebooks, packaged_tables, write_residual_codec

LEVELS, CODES, FIRST_CODES, FRAMES_PER_PATCH = 8, 256, 128, 2

FINE_WEIGHT = 0.4
"""Weight of the finest codes in the distances of level 0, which should follow the phones."""


def main(shards: Path, output: Path) -> None:
    corpus = load_corpus(shards)
    tables, layout = packaged_tables(PACKAGED_CODEC), corpus.codec.patch_layout
    frames = FrameVectors(tables, layout, FRAMES_PER_PATCH)
    weights = np.repeat(np.float32([1, 1, FINE_WEIGHT, FINE_WEIGHT]), tables.shape[2])
    train, held_out = (vectors_of(corpus.split(name), frames) for name in ("train", "validation"))
    codebooks = fit_codebooks(train, weights, LEVELS, CODES, FIRST_CODES, np.random.default_rng(0))
    write_residual_codec(
        output, tables, codebooks, weights, name="mini5-codec-1", base=corpus.codec.name,
        frames_per_patch=FRAMES_PER_PATCH,
    )  # fmt: skip
    codes = quantize(held_out, codebooks, weights)
    decoded = np.zeros_like(held_out)
    for level, entries in enumerate(codebooks):
        decoded += entries[codes[:, level]]
        left = np.square(held_out - decoded).sum() / np.square(held_out - held_out.mean(axis=0)).sum()
        print(f"level {level}: {left:.3f} of the variance left")
    for level, (one, other) in enumerate(zip(frames.codes(decoded), frames.codes(held_out), strict=True)):
        print(f"codes of the packaged codec's level {level} that come back: {(one == other).mean():.3f}")


def vectors_of(corpus: Corpus, frames: FrameVectors) -> np.ndarray:
    """(N, W), of all utterances."""
    return np.concatenate([frames.vectors(corpus.codes_of(index)) for index in range(len(corpus))])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
