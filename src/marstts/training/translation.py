"""A trained model's words for one codec's codes → its words for another's, learnt from recordings that both have heard.

Upstream: the same recordings tokenised twice (`data.shards`).  Downstream: `training.pretrain`, which begins with it.
New codes make a model's tokens meaningless, but not what it knows of text, voices and time. A new code means what the
old codes meant that stood in its place; a new embedding means the old one that a linear map foretells from it.
Not in the paper, whose codec never changed.
Shapes: C codes per level, old or new · N recordings · E embedding size, old or new · D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.data.shards import Corpus
from marstts.errors import DataError
from marstts.mars6.model import Mars6

TOKEN_TABLES = (
    "global_decoder.patch_embedding.tokens.weight",
    "local_decoder.tokens.weight",
    "local_decoder.output.weight",
)
"""A row for every code of every level, coarse to fine, then one for the end of speech."""


@dataclass(frozen=True, eq=False)
class HeardTwice:
    """Recordings of the training split that are in both corpora; where they are in each."""

    before: Corpus
    after: Corpus
    places: tuple[tuple[int, int], ...]


def translated(model: Mars6, before: Corpus, after: Corpus) -> dict[str, Tensor]:
    """The state of `model`, which speaks the codes of `before`, for a model that speaks those of `after`.

    DataError where nothing can be compared: another patch layout or patch rate, codes that are not the model's, no
    recording of the training split in both.
    """
    check_comparable(model, before, after)
    pairs = HeardTwice(before, after, common_places(before, after))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    shares = [shares_of_old_codes(count) for count in count_together(pairs)]
    for name in TOKEN_TABLES:
        state[name] = translate_rows(state[name], shares)
    for kind, changed in (
        ("identity", before.identity_encoder != after.identity_encoder),
        ("style", before.style_encoder != after.style_encoder),
    ):
        if changed:
            translate_input(state, f"encoder.slots.{kind}.input", *embeddings_of(pairs, kind))
    return state


def check_comparable(model: Mars6, before: Corpus, after: Corpus) -> None:
    """DataError if patches of the two corpora are not of the same moments, or the first are not the model's."""
    old, new = before.codec, after.codec
    if (old.patch_layout, old.patch_rate) != (new.patch_layout, new.patch_rate):
        raise DataError(
            f"codes can be translated between codecs with the same patches, but those of {old.name} are "
            f"{old.patch_layout} at {old.patch_rate:.3g} Hz and those of {new.name} {new.patch_layout} at "
            f"{new.patch_rate:.3g} Hz"
        )
    if model.config.codebook_size != old.codebook_size:
        raise DataError(
            f"the model to begin with knows {model.config.codebook_size} codes a level, but {old.name}, whose shards "
            f"are given, has {old.codebook_size}; give the shards that it learnt from"
        )


def common_places(before: Corpus, after: Corpus) -> tuple[tuple[int, int], ...]:
    """Where the recordings of `after`'s training split are in both corpora; DataError if nowhere."""
    known = {utterance.id: index for index, utterance in enumerate(before.utterances)}
    both = [
        (known[utterance.id], index)
        for index, utterance in enumerate(after.utterances)
        if utterance.split == "train" and utterance.id in known
    ]
    if not both:
        raise DataError("no recording of the training split is in both sets of shards; tokenize one manifest twice")
    return tuple(both)


def count_together(pairs: HeardTwice) -> list[NDArray[np.int64]]:
    """Per level (C new, C old): how often they stand in the same place; a last patch that one lacks is passed over."""
    old_size, new_size = pairs.before.codec.codebook_size, pairs.after.codec.codebook_size
    counts = [np.zeros(new_size * old_size, np.int64) for _ in pairs.after.codec.patch_layout]
    for there, here in pairs.places:
        for count, old, new in zip(counts, pairs.before.codes_of(there), pairs.after.codes_of(here), strict=True):
            length = min(len(old), len(new))
            np.add.at(count, new[:length] * old_size + old[:length], 1)
    return [count.reshape(new_size, old_size) for count in counts]


def shares_of_old_codes(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(C new, C old) counts -> rows that sum to one; a code that was never heard may be any, as often as they are."""
    heard = counts.sum(axis=1, keepdims=True)
    everything = counts.sum(axis=0, keepdims=True) / max(1, counts.sum())
    return np.where(heard > 0, counts / np.maximum(heard, 1), everything)


def translate_rows(table: Tensor, shares: list[NDArray[np.float64]]) -> Tensor:
    """(levels * C old + 1, D) -> (levels * C new + 1, D): of every new code the mean of the old ones in its place."""
    *levels, end = table.split([share.shape[1] for share in shares] + [1])
    rows = [torch.from_numpy(share) @ level.double() for share, level in zip(shares, levels, strict=True)]
    return torch.cat([*rows, end.double()]).to(table.dtype)


def embeddings_of(pairs: HeardTwice, kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The old (N, E) and new (N, E) embeddings, `identity` or `style`, of the recordings heard twice."""
    column = ("identity", "style").index(kind)
    there, here = (np.array(places) for places in zip(*pairs.places, strict=True))
    old, new = pairs.before.voices_of(there)[column], pairs.after.voices_of(here)[column]
    return old.astype(np.float64), new.astype(np.float64)


def translate_input(state: dict[str, Tensor], layer: str, old: NDArray[np.float64], new: NDArray[np.float64]) -> None:
    """Let a linear layer of the state that read `old` embeddings (N, E) make the same of `new` ones (N, E).

    As nearly as a linear map from new to old can, by least squares.
    """
    constant = np.ones((len(new), 1))
    solution = torch.from_numpy(np.linalg.lstsq(np.hstack([new, constant]), old, rcond=None)[0])  # (E new + 1, E old)
    weight, bias = state[f"{layer}.weight"], state[f"{layer}.bias"]
    state[f"{layer}.bias"] = (bias.double() + weight.double() @ solution[-1]).to(bias.dtype)
    state[f"{layer}.weight"] = (weight.double() @ solution[:-1].T).to(weight.dtype)
