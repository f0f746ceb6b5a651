"""Batches of training items: a pure function of (seed, step), independent of codec and model.

An item is one utterance, or several concatenated utterances of one speaker and style, which trains a model to continue
from a prefix of any length (deep cloning). Its embeddings come from a reference: often another utterance of the same
speaker and style, so that a model cannot rely on an embedding of the very audio that it predicts. Items of similar
length share a batch, and all batches hold about the same number of patches, or of items.

Upstream: `data.corpus`.  Downstream: `training.mars6`, which makes tensors of the items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.errors import DataError
from marstts.io.config import Config
from marstts.text.pronunciation.mixing import PhoneMixingConfig, mix_phones
from marstts_lab.data.corpus import Corpus

FINAL_PUNCTUATION = ".!?,;:… "


class BatchingConfig(Config):
    """Composition of batches."""

    patches_per_batch: int = Field(1200, gt=0)
    """Approximate number of patches in a batch, end-of-speech included and padding excluded."""

    batch_size: int = Field(0, ge=0)
    """Items in a batch (plus or minus one), whatever their length; 0 = by patches."""

    max_patches: int = Field(300, gt=0)
    """Longer utterances are left out, and utterances are concatenated only up to this length."""

    concat_probability: float = Field(0.2, ge=0.0, le=1.0)
    """Fraction of the items that are several utterances of one speaker and style, as far as there are enough."""

    max_concat: int = Field(2, ge=2)
    """Most utterances in an item; all numbers from two on are equally frequent. A model does badly at what it was not
    trained on: with pairs of short utterances it cannot continue from a long reference."""

    cross_reference_probability: float = Field(0.7, ge=0.0, le=1.0)
    """Probability that the embeddings come from another utterance of the same speaker and style."""

    lower_case_probability: float = Field(0.05, ge=0.0, le=1.0)
    """Probability that the text of an item is in lower case."""

    strip_final_punctuation_probability: float = Field(0.1, ge=0.0, le=1.0)
    """Probability that the text of an item loses its final punctuation."""

    text_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """CFG dropout: probability that an item has no text. The model is then also trained on unconditional rows, which
    guidance distillation extrapolates from."""

    phones: PhoneMixingConfig | None = None
    """Words of the texts in phones, drawn at random, for models whose tokenizer has phones; None = letters only."""


@dataclass(frozen=True)
class TrainingItem:
    """One row of a batch, by indices into the corpus."""

    parts: tuple[int, ...]
    """The concatenated utterances."""

    reference: int
    """The utterance whose embeddings condition the row."""

    texts: tuple[str, ...]
    """The text of each part; joined by one space they are the text of the row. Empty where the text is dropped."""

    letters: tuple[str, ...] | None = None
    """The texts before words of them became phones; None where none did."""


class BatchSampler:
    """The batches of a corpus; `items(step)` depends on seed and step alone."""

    def __init__(
        self, corpus: Corpus, config: BatchingConfig, seed: int, read_text: Callable[[str], str] = str.strip
    ) -> None:
        """`read_text` makes of an utterance's text what a model is to read, when a batch needs it."""
        self.corpus, self.config, self.seed, self.read_text = corpus, config, seed, read_text
        self.lengths = corpus.num_patches + 1  # the end-of-speech patch
        self.usable = np.flatnonzero(self.lengths <= config.max_patches)
        if not len(self.usable):
            raise DataError(
                f"no utterance of the corpus is at most {config.max_patches} patches long; raise max_patches"
            )
        self.groups = group_by_speaker_and_style(corpus, self.usable)
        self.group_of, self.index_in_group = np.zeros((2, len(corpus)), dtype=np.int64)
        for number, group in enumerate(self.groups):
            self.group_of[group], self.index_in_group[group] = number, np.arange(len(group))
        self.batches_per_epoch = max(1, round(self.size_of_epoch()))
        self.plan = lru_cache(maxsize=2)(self._plan)

    def size_of_epoch(self) -> float:
        """The approximate number of batches that all usable utterances fill."""
        if not self.config.batch_size:
            return float(self.lengths[self.usable].sum()) / self.config.patches_per_batch
        rows = make_rows(self.groups, self.lengths, self.config, np.random.default_rng([self.seed, 0, 0]))
        return len(rows) / self.config.batch_size

    def items(self, step: int) -> list[TrainingItem]:
        """The rows of the batch of this step."""
        epoch, position = divmod(step, self.batches_per_epoch)
        rng = np.random.default_rng([self.seed, 1, step])
        return [self.finish(parts, rng) for parts in self.plan(epoch)[position]]

    def finish(self, parts: tuple[int, ...], rng: np.random.Generator) -> TrainingItem:
        """Draw the reference and the spelling of a row."""
        draws = rng.random(5)  # always the same number, so that options do not disturb one another
        reference = parts[0]
        group = self.groups[self.group_of[reference]]
        if len(group) > len(parts) and draws[0] < self.config.cross_reference_probability:
            index = int(draws[1] * (len(group) - len(parts)))
            for used in sorted(self.index_in_group[list(parts)]):  # the parts of a row are of one group
                index += index >= used
            reference = int(group[index])
        texts = [self.read_text(self.corpus.utterances[part].text) for part in parts]
        if draws[2] < self.config.lower_case_probability:
            texts = [text.lower() for text in texts]
        if draws[3] < self.config.strip_final_punctuation_probability:
            texts[-1] = texts[-1].rstrip(FINAL_PUNCTUATION) or texts[-1]
        if draws[4] < self.config.text_dropout:
            texts = [""]
        if self.config.phones is None:
            return TrainingItem(parts, reference, tuple(texts))
        mixed = [mix_phones(text, self.config.phones, rng) for text in texts]
        return TrainingItem(parts, reference, tuple(mixed), tuple(texts))

    def _plan(self, epoch: int) -> list[list[tuple[int, ...]]]:
        """The batches of one epoch, in training order; every usable utterance occurs once."""
        rng = np.random.default_rng([self.seed, 0, epoch])
        rows = make_rows(self.groups, self.lengths, self.config, rng)
        lengths = np.array([row_length(row, self.lengths) for row in rows])
        order = np.lexsort((rng.random(len(rows)), lengths))  # by length, equals in random order
        sizes = np.ones_like(lengths) if self.config.batch_size else lengths[order]
        runs = cut_evenly(sizes, self.batches_per_epoch)
        batches = [[rows[i] for i in order[run]] for run in runs]
        return [batches[i] for i in rng.permutation(len(batches))]


def group_by_speaker_and_style(corpus: Corpus, indices: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The indices, by speaker and style, groups in order of first appearance."""
    groups: dict[tuple[str, str], list[int]] = {}
    chosen = corpus.utterances.select(indices)
    labels = zip(chosen.strings("speaker"), chosen.strings("style"), strict=True)
    for index, label in zip(indices.tolist(), labels, strict=True):
        groups.setdefault(label, []).append(index)
    return [np.array(group) for group in groups.values()]


def make_rows(
    groups: Sequence[NDArray[np.int64]], lengths: NDArray[np.int64], config: BatchingConfig, rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """All utterances of the groups, each once, alone or concatenated with random others of its group."""
    rows: list[tuple[int, ...]] = []
    for group in groups:
        left = rng.permutation(group).tolist()
        while left:
            is_joined = rng.random() < config.concat_probability
            row = left[: int(rng.integers(2, config.max_concat + 1))] if is_joined else left[:1]
            while len(row) > 1 and row_length(row, lengths) > config.max_patches:
                row = row[:-1]
            rows.append(tuple(row))
            left = left[len(row) :]
    return rows


def row_length(row: Sequence[int], lengths: NDArray[np.int64]) -> int:
    """Patches of a row: its parts, and one end-of-speech patch in all (each of `lengths` counts one)."""
    return int(sum(lengths[index] for index in row)) - len(row) + 1


def cut_evenly(lengths: NDArray[np.int64], num_runs: int) -> list[slice]:
    """Cut rows into `num_runs` consecutive runs of about equal total length; with too few rows some runs repeat.

    A run is never empty: each takes at least the row in the middle of its share.
    """
    ends = np.cumsum(lengths)
    bounds = np.searchsorted(ends - lengths / 2, ends[-1] * np.arange(num_runs + 1) / num_runs)
    starts = np.minimum(bounds[:-1], len(lengths) - 1)
    stops = np.maximum(bounds[1:], starts + 1)
    return [slice(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]
