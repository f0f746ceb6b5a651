"""The codec of mini5: eight levels at 23.4 Hz, the codes of the packaged model's codec by frame.

    python recipes/mini5/codec.py SHARDS PHONES OUTPUT

SHARDS are those of `marstts tokenize` with the packaged codec, PHONES the file of `marstts prepare phone-alignments`;
recordings that it lacks are left out. Prints the accuracy of phones by level 0 on the validation split, and by the
network that chooses its codes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts.codec.frame_codec import FRAMES, PACKAGED_CODEC, codes_by_frame, frame_vectors
from marstts.codec.frame_content import MOMENTS, ContentClassifier, Floats
from marstts.data.corpus import Corpus, load_corpus
from marstts.training.codec.frame_codec import frame_codebooks, packaged_tables, write_frame_codec
from marstts.training.codec.frame_content import fit_content, phones_of_frames
from marstts.training.codec.phone_loss import PhoneAlignment, read_phone_alignments

CONTENT_SIZE, HIDDEN_WIDTH = 128, 256

Recordings = list[tuple[Floats, NDArray[np.int64]]]
"""Vectors (T, W) and phones (T, MOMENTS) of each."""


def main(shards: Path, phones: Path, output: Path) -> None:
    corpus, alignments, tables = load_corpus(shards), read_phone_alignments(phones), packaged_tables(PACKAGED_CODEC)
    train, held_out = (recordings_of(corpus.split(name), alignments, tables) for name in ("train", "validation"))
    content = fit_content(train, CONTENT_SIZE, HIDDEN_WIDTH, seed=0)
    write_frame_codec(output, frame_codebooks(tables, content), name="mini5-codec-3", base=corpus.codec.name)
    by_code, by_network = accuracies(content, train, held_out)
    print(f"accuracy of phones: by level 0 {by_code:.3f}, by its network {by_network:.3f}")


def recordings_of(corpus: Corpus, alignments: dict[str, PhoneAlignment], tables: Floats) -> Recordings:
    """Recordings of a split whose phones are known."""
    frame_seconds = corpus.codec.patch_samples / FRAMES / corpus.codec.sample_rate
    recordings = []
    for index, utterance in enumerate(corpus.utterances):
        if alignment := alignments.get(utterance.id):
            vectors = frame_vectors(codes_by_frame(corpus.codes_of(index)), tables)
            recordings.append((vectors, phones_of_frames(alignment, len(vectors), frame_seconds)))
    return recordings


def accuracies(content: ContentClassifier, train: Recordings, held_out: Recordings) -> tuple[float, float]:
    """Shares of moments with the right phone: by the most frequent one of each code, and by the network."""
    size, moments = len(content.centers), np.arange(MOMENTS)
    counts = np.zeros((size, MOMENTS, content.centers.shape[1] // MOMENTS))
    for vectors, phones in train:
        np.add.at(counts, (content.codes(vectors)[:, None], moments, phones), 1)
    frequent = counts.argmax(axis=2)
    phones = np.concatenate([phones for _, phones in held_out])
    by_code = np.concatenate([frequent[content.codes(vectors)] for vectors, _ in held_out])
    likely = [content.root_probabilities(vectors).reshape(len(vectors), MOMENTS, -1) for vectors, _ in held_out]
    return float((by_code == phones).mean()), float((np.concatenate(likely).argmax(axis=2) == phones).mean())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
