"""Batches of MARS5's training: rows of a plan to padded tensors.

Upstream: `data.batching` (which utterances), a corpus (their codes and words).  Downstream: `tasks`.
Both models read the same rows: text, the codes of all levels, and how many initial frames are the reference.
Shapes: B rows · S text ids · T frames · N joint ids · L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.errors import ConfigError
from marstts.mars5.objective import ObjectiveConfig, reference_length, training_tokens
from marstts.mars5.prompt import prompt_string
from marstts.mars5.text import JointVocabulary, SpeechBPE
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.batching import TrainingItem
from marstts_lab.data.corpus import Corpus


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs of one training step; tensors on one device."""

    text_ids: Tensor
    """(B, S) padded with 0."""

    text_lengths: Tensor
    """(B,)."""

    tokens: Tensor
    """(B, N) of the AR: text, speech and its end, padded with 0."""

    token_lengths: Tensor
    """(B,)."""

    codes: Tensor
    """(B, T, L) padded with the padding class."""

    lengths: Tensor
    """(B,) frames."""

    reference_lengths: Tensor
    """(B,) initial frames that stand for the speaker."""

    @property
    def references(self) -> Tensor:
        """(B, R, L): the frames up to the longest reference."""
        return self.codes[:, : int(self.reference_lengths.max())]

    def to(self, device: torch.device) -> Batch:
        """The same on another device."""
        return Batch(*(getattr(self, part.name).to(device, non_blocking=True) for part in fields(self)))


class Collator:
    """Rows of a plan to a batch; the reference's length is a function of `seed` and the batch's number."""

    def __init__(self, corpus: Corpus, vocabulary: JointVocabulary, objective: ObjectiveConfig, seed: int) -> None:
        self.corpus, self.vocabulary, self.objective, self.seed = corpus, vocabulary, objective, seed

    def __call__(self, items: Sequence[TrainingItem], number: int) -> Batch:
        """The batch of this number, on the CPU."""
        rng = np.random.default_rng([self.seed, number])
        codes = [frames_of(self.corpus, item.parts) for item in items]
        texts = [self.text_ids(item) for item in items]
        tokens = [
            training_tokens(text.tolist(), rows[:, 0], self.vocabulary) for text, rows in zip(texts, codes, strict=True)
        ]
        return Batch(
            text_ids=pad(texts, 0),
            text_lengths=lengths_of(texts),
            tokens=pad(tokens, 0),
            token_lengths=lengths_of(tokens),
            codes=pad(codes, self.vocabulary.speech.codebook_size),
            lengths=lengths_of(codes),
            reference_lengths=torch.tensor([reference_length(len(rows), rng, self.objective) for rows in codes]),
        )

    def text_ids(self, item: TrainingItem) -> NDArray[np.int64]:
        """(S,) ids of the string the models read."""
        return np.array(self.vocabulary.text.encode(prompt_string(" ".join(item.texts))), dtype=np.int64)


def frames_of(corpus: Corpus, parts: Sequence[int]) -> NDArray[np.int64]:
    """(T, L) codes of utterances, one after the other."""
    return np.concatenate([np.stack(corpus.codes_of(part), axis=1) for part in parts])


def pad(arrays: Sequence[NDArray[np.int64]], value: int) -> Tensor:
    """Arrays (n, ...) of different lengths -> (B, max n, ...)."""
    padded = np.full((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), value, dtype=np.int64)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(padded)


def lengths_of(arrays: Sequence[NDArray[np.int64]]) -> Tensor:
    """(B,)."""
    return torch.tensor([len(array) for array in arrays])


def train_vocabulary(corpus: Corpus, text_vocab_size: int, speech_vocab_size: int) -> JointVocabulary:
    """Both tokenizers, trained on the training split; DataError where it yields too few merges."""
    from marstts.mars5.text import END_OF_TEXT, START_OF_TEXT

    check_codec(corpus)
    train = corpus.split("train")
    text = BPE.train([utterance.text for utterance in train.utterances], text_vocab_size, [START_OF_TEXT, END_OF_TEXT])
    streams = (train.codes_of(index)[0].tolist() for index in range(len(train)))
    return JointVocabulary(text, SpeechBPE.train(streams, speech_vocab_size, corpus.codec.codebook_size))


def check_codec(corpus: Corpus) -> None:
    """Raise ConfigError unless all levels of the codec have the same rate."""
    if set(corpus.codec.patch_layout) != {1}:
        raise ConfigError(
            f"codec {corpus.codec.name} has {corpus.codec.patch_layout} codes per frame on its levels, but MARS5 needs "
            "one on each: tokenize the corpus with another codec"
        )
