"""Codec transfer: the weights of a trained model, adapted to the codes of another codec or to other encoders.

Upstream: the same recordings, tokenized twice (`data.shards`).  Downstream: `run_folder.init_from`.
New codes make a model's token embeddings meaningless, but not its weights for text, voices and time. The embedding
of a new code becomes the mean of the old codes that co-occur with it. Input layers of new speaker embeddings are mapped
by least squares. Not in the paper, whose codec never changed.
Shapes: C codes per level, old or new · N recordings · E embedding size, old or new · D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.data.corpus import Corpus
from marstts.errors import DataError
from marstts.mars6.model import Mars6

TOKEN_TABLES = (
    "global_decoder.patch_embedding.tokens.weight",
    "local_decoder.tokens.weight",
    "local_decoder.output.weight",
)
"""Tensors with a row for every code of every level, coarse to fine, then one for the end of speech."""


@dataclass(frozen=True, eq=False)
class ParallelCorpus:
    """The recordings of the training split that are in both corpora, and their indices in each."""

    before: Corpus
    after: Corpus
    indices: tuple[tuple[int, int], ...]


def transfer_state(model: Mars6, before: Corpus, after: Corpus) -> dict[str, Tensor]:
    """The state of `model`, trained on the codes of `before`, for a model of the codes of `after`.

    DataError where nothing can be compared: another patch layout or patch rate, codes that are not the model's, no
    recording of the training split in both.
    """
    check_comparable(model, before, after)
    parallel = ParallelCorpus(before, after, common_indices(before, after))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if before.codec.name != after.codec.name:  # else the codes are the same
        weights = [normalize_rows(counts) for counts in code_cooccurrence(parallel)]
        for name in TOKEN_TABLES:
            state[name] = transfer_rows(state[name], weights)
    for role in ("identity", "style"):
        if before.encoders[role].name != after.encoders[role].name:
            transfer_input(state, f"encoder.slots.{role}.input", *embeddings_of(parallel, role))
    return state


def check_comparable(model: Mars6, before: Corpus, after: Corpus) -> None:
    """DataError if patches of the two corpora differ in layout or rate, or the old codes are not the model's."""
    old, new = before.codec, after.codec
    if (old.patch_layout, old.patch_rate) != (new.patch_layout, new.patch_rate):
        raise DataError(
            f"transfer needs codecs with the same patches, but those of {old.name} are {old.patch_layout} at "
            f"{old.patch_rate:.3g} Hz and those of {new.name} {new.patch_layout} at {new.patch_rate:.3g} Hz"
        )
    if model.config.codebook_size != old.codebook_size:
        raise DataError(
            f"the initial model has {model.config.codebook_size} codes a level, but {old.name}, whose shards are "
            f"given, has {old.codebook_size}; give the shards that it was trained on"
        )


def common_indices(before: Corpus, after: Corpus) -> tuple[tuple[int, int], ...]:
    """Indices in both corpora of the recordings of `after`'s training split; DataError if there are none."""
    known = {name: index for index, name in enumerate(before.utterances.strings("id"))}
    labels = zip(after.utterances.strings("id"), after.utterances.strings("split"), strict=True)
    both = [(known[name], index) for index, (name, split) in enumerate(labels) if split == "train" and name in known]
    if not both:
        raise DataError("no recording of the training split is in both sets of shards; tokenize one manifest twice")
    return tuple(both)


def code_cooccurrence(parallel: ParallelCorpus) -> list[NDArray[np.int64]]:
    """Per level (C new, C old): how often two codes co-occur; a last patch that one lacks is skipped."""
    old_size, new_size = parallel.before.codec.codebook_size, parallel.after.codec.codebook_size
    counts = [np.zeros(new_size * old_size, np.int64) for _ in parallel.after.codec.patch_layout]
    for there, here in parallel.indices:
        for count, old, new in zip(counts, parallel.before.codes_of(there), parallel.after.codes_of(here), strict=True):
            length = min(len(old), len(new))
            np.add.at(count, new[:length] * old_size + old[:length], 1)
    return [count.reshape(new_size, old_size) for count in counts]


def normalize_rows(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(C new, C old) counts -> rows that sum to one; a code that never occurs gets the distribution of all codes."""
    occurs = counts.sum(axis=1, keepdims=True)
    overall = counts.sum(axis=0, keepdims=True) / max(1, counts.sum())
    return np.where(occurs > 0, counts / np.maximum(occurs, 1), overall)


def transfer_rows(table: Tensor, weights: list[NDArray[np.float64]]) -> Tensor:
    """(levels * C old + 1, D) -> (levels * C new + 1, D): the mean of the old codes that co-occur with each new one."""
    *levels, end = table.split([level.shape[1] for level in weights] + [1])
    rows = [torch.from_numpy(weight) @ level.double() for weight, level in zip(weights, levels, strict=True)]
    return torch.cat([*rows, end.double()]).to(table.dtype)


def embeddings_of(parallel: ParallelCorpus, role: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The old (N, E) and new (N, E) embeddings of a role, of the common recordings."""
    there, here = (np.array(indices) for indices in zip(*parallel.indices, strict=True))
    old, new = parallel.before.embeddings_of(there)[role], parallel.after.embeddings_of(here)[role]
    return old.astype(np.float64), new.astype(np.float64)


def transfer_input(state: dict[str, Tensor], layer: str, old: NDArray[np.float64], new: NDArray[np.float64]) -> None:
    """Adapt a linear layer of the state from `old` embeddings (N, E) to `new` ones (N, E), in place.

    Its outputs stay as near as a linear map from new to old embeddings can bring them, by least squares.
    """
    constant = np.ones((len(new), 1))
    solution = torch.from_numpy(np.linalg.lstsq(np.hstack([new, constant]), old, rcond=None)[0])  # (E new + 1, E old)
    weight, bias = state[f"{layer}.weight"], state[f"{layer}.bias"]
    state[f"{layer}.bias"] = (bias.double() + weight.double() @ solution[-1]).to(bias.dtype)
    state[f"{layer}.weight"] = (weight.double() @ solution[:-1].T).to(weight.dtype)
