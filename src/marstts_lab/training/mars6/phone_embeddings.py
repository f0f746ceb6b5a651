"""Embeddings of phone tokens, and of letters with phones, for a model that was trained on letters.

Upstream: the pronunciation table.  Downstream: `run_folder.init_from`.
Deviation from the paper, whose text is BPE alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from marstts.mars6.model import Mars6
from marstts.text.phones import CHARACTERS, FALLING, PAIR_LETTERS, PAIR_TOKENS, PHONE_TOKENS, RISING
from marstts.text.pronunciation.dictionary import entries
from marstts.text.tokenizers.bpe import BPE

PHONES_OF_A_LETTER = len(PAIR_TOKENS) // len(PAIR_LETTERS)
"""Tokens of each letter: one for each phone, and one where it is silent."""

MARK_SCALE = 0.7
"""Of the embedding of the punctuation mark that a mark of pitch begins with."""


def with_phone_embeddings(model: Mars6, tokenizer: BPE) -> Mars6:
    """The model with a row of the text embedding for each phone token of the tokenizer that it has none for.

    The row of a phone is the mean of the embeddings of its letters, weighted by how often it is written with them. The
    marks of a rise and of a fall begin near a question mark and a full stop, whose pitch they have. That of a letter
    with a phone is the letter's, so that the model reads what it read before.
    """
    letters, ids = letters_of_phones(), tokenizer.special_tokens
    old = model.encoder.text_embedding.weight.detach()
    rows = torch.zeros(tokenizer.vocab_size, old.shape[1])
    rows[: len(old)] = old
    if ids[PHONE_TOKENS[0]] >= len(old):
        for phone, character in CHARACTERS.items():
            for letter, weight in letters[phone].items():
                rows[ids[character]] += weight * old[tokenizer.encode(letter)[0]]
        for mark, character in ((RISING, "?"), (FALLING, ".")):
            rows[ids[mark]] = MARK_SCALE * old[tokenizer.encode(character)[0]]
    if PAIR_TOKENS[0] in ids:
        by_letter = torch.stack([old[tokenizer.encode(letter)[0]] for letter in PAIR_LETTERS])
        rows[pair_rows(tokenizer)] = by_letter.repeat_interleave(PHONES_OF_A_LETTER, dim=0)
    extended = copy.deepcopy(model)
    extended.config = model.config.model_copy(update={"text_vocab_size": tokenizer.vocab_size})
    extended.encoder.text_embedding = nn.Embedding.from_pretrained(rows, freeze=False)
    return extended


def pair_rows(tokenizer: BPE) -> slice:
    """The ids of letters with phones, which are the last ones."""
    first = tokenizer.special_tokens[PAIR_TOKENS[0]]
    assert tokenizer.vocab_size == first + len(PAIR_TOKENS), "letters with phones are the last tokens"
    return slice(first, tokenizer.vocab_size)


def train_phones_faster(
    model: Mars6, optimizer: torch.optim.Optimizer, lr_scale: float, tokenizer: BPE, *, alone: bool
) -> None:
    """Put the text embeddings into a parameter group with a learning rate of its own; letters do not change.

    A phone moves the rows of all letters equally that it is read with: a hint, whatever the letter. Their gradient is
    the mean over the letters, and AdamW's steps, which are the same for equal gradients, keep them so.
    alone: nothing but the embeddings of phones is trained; of a model that reads letters with phones, nothing but the
    marks of intonation.
    """
    weight = model.encoder.text_embedding.weight
    if alone:
        model.requires_grad_(False)
        weight.requires_grad_(True)
    first = tokenizer.special_tokens[PHONE_TOKENS[0]]
    pairs = pair_rows(tokenizer) if PAIR_TOKENS[0] in tokenizer.special_tokens else slice(0, 0)

    marks = [tokenizer.special_tokens[mark] for mark in (RISING, FALLING)]

    def of_phones(gradient: Tensor) -> Tensor:
        kept = gradient.clone()
        kept[:first] = 0.0
        if alone and pairs.stop:
            kept = torch.zeros_like(gradient)
            kept[marks] = gradient[marks]
        elif pairs.stop:
            by_letter = gradient[pairs].view(len(PAIR_LETTERS), PHONES_OF_A_LETTER, -1)
            kept[pairs] = by_letter.mean(dim=0).repeat(len(PAIR_LETTERS), 1)
        return kept

    weight.register_hook(of_phones)
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
