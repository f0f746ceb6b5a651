"""Embeddings of phone tokens for a model that was trained on letters: means of the letters that they are written with.

Upstream: the pronunciation table.  Downstream: `run_folder.init_from`.
Deviation from the paper, whose text is BPE alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from marstts.mars6.model import Mars6
from marstts.text.phones import CHARACTERS, FALLING, PHONE_TOKENS, RISING
from marstts.text.pronunciation.dictionary import entries
from marstts.text.tokenizers.bpe import BPE

MARK_SCALE = 0.7
"""Of the embedding of the punctuation mark that a mark of pitch begins with."""


def with_phone_embeddings(model: Mars6, tokenizer: BPE) -> Mars6:
    """The model with a row of the text embedding for each phone of the tokenizer, whose last ids these are.

    A row is the mean of the embeddings of the phone's letters, weighted by how often it is written with them. The marks
    of a rise and of a fall begin near a question mark and a full stop, whose pitch they have.
    """
    letters = letters_of_phones()
    old = model.encoder.text_embedding.weight.detach()
    rows = torch.zeros(tokenizer.vocab_size, old.shape[1])
    rows[: len(old)] = old
    ids = tokenizer.special_tokens
    for phone, character in CHARACTERS.items():
        for letter, weight in letters[phone].items():
            rows[ids[character]] += weight * old[tokenizer.encode(letter)[0]]
    for mark, character in ((RISING, "?"), (FALLING, ".")):
        rows[ids[mark]] = MARK_SCALE * old[tokenizer.encode(character)[0]]
    extended = copy.deepcopy(model)
    extended.config = model.config.model_copy(update={"text_vocab_size": tokenizer.vocab_size})
    extended.encoder.text_embedding = nn.Embedding.from_pretrained(rows, freeze=False)
    assert len(old) + len(PHONE_TOKENS) == tokenizer.vocab_size, "phones are the only new tokens"
    return extended


def train_phones_faster(model: Mars6, optimizer: torch.optim.Optimizer, lr_scale: float, *, alone: bool) -> None:
    """Put the text embeddings into a parameter group with a learning rate of its own; letters do not change.

    alone: nor does anything else.
    """
    weight = model.encoder.text_embedding.weight
    if alone:
        model.requires_grad_(False)
        weight.requires_grad_(True)
    letters = len(weight) - len(PHONE_TOKENS)
    weight.register_hook(lambda gradient: torch.cat([torch.zeros_like(gradient[:letters]), gradient[letters:]]))
    for group in optimizer.param_groups:
        group["params"] = [each for each in group["params"] if each is not weight and not alone]
    optimizer.add_param_group({"params": [weight], "weight_decay": 0.0, "lr_scale": lr_scale})


def letters_of_phones() -> Mapping[str, Mapping[str, float]]:
    """The ratio of each letter among those that a phone is written with, by words of as many letters as phones."""
    words = [(word, phones) for word, phones in entries() if len(word) == len(phones)]
    counts: dict[str, dict[str, float]] = {phone: {} for phone in CHARACTERS}
    for word, phones in words:
        for letter, phone in zip(word, phones, strict=True):
            counts[phone][letter] = counts[phone].get(letter, 0.0) + 1.0
    return {phone: sharpened(letters) for phone, letters in counts.items()}


def sharpened(letters: Mapping[str, float]) -> dict[str, float]:
    """The most frequent letters of a phone, by the squares of their counts: chance pairs are rare."""
    squares: NDArray[np.float64] = np.array(list(letters.values())) ** 2
    return dict(zip(letters, (squares / squares.sum()).tolist(), strict=True))
