"""The codec of mini5: eight levels at 23.4 Hz, the codes of the packaged model's codec by frame.

    python recipes/mini5/codec.py SHARDS OUTPUT

SHARDS are those of `marstts tokenize` with the packaged codec. Prints how much of the variance level 0 leaves on the
validation split.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from marstts.codec.frame_codec import PACKAGED_CODEC, codes_by_frame, frame_vectors
from marstts.data.corpus import Corpus, load_corpus
from marstts.training.codec.frame_codec import fit_frame_codebooks, packaged_tables, write_frame_codec

CONTENT_SIZE = 128

FINE_WEIGHT = 0.4
"""Weight of the finest codes in the distances of level 0, which should follow the phones."""


def main(shards: Path, output: Path) -> None:
    corpus = load_corpus(shards)
    tables = packaged_tables(PACKAGED_CODEC)
    weights = np.repeat(np.float32([1, 1, FINE_WEIGHT, FINE_WEIGHT]), tables.shape[2])
    train, held_out = (frames_of(corpus.split(name)) for name in ("train", "validation"))
    codebooks = fit_frame_codebooks(train, tables, weights, CONTENT_SIZE, np.random.default_rng(0))
    write_frame_codec(output, codebooks, name="mini5-codec-2", base=corpus.codec.name)
    vectors = frame_vectors(held_out, tables)
    left = np.square(vectors - codebooks.content[codebooks.split(held_out)[:, 0]]).sum()
    total = np.square(vectors - vectors.mean(axis=0)).sum()
    print(f"level 0: {left / total:.3f} of the variance left")


def frames_of(corpus: Corpus) -> np.ndarray:
    """(N, 4) codes of the base by frame, of all utterances."""
    return np.concatenate([codes_by_frame(corpus.codes_of(index)) for index in range(len(corpus))])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
