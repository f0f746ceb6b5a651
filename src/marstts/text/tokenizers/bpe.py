"""Byte-pair encoding: strings in, ids of the text vocabulary out.

Upstream: `normalize` and the prompt string built in `mars6.prompt`.  Downstream: the encoder's text embedding.
MARS6 (arXiv:2501.05787), Sec. V-A: BPE with 512 entries.  Byte-level, so every text has an encoding and
`decode(encode(text)) == text`.  Text is first cut with the GPT-4 pattern, as in the published tokenizer: a token may
begin with a space but never reaches into the next word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from marstts.errors import CheckpointError, DataError
from marstts.io.files import write_file
from marstts.io.reading import parse_object, printable_name, printable_text, read_text

NUM_BYTES = 256

MAX_FILE_BYTES = 64 * 2**20
MAX_VOCAB_SIZE = 2**20

WORD_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
"""Units that merges do not cross: contractions, words with one space or mark in front, up to three digits, marks."""


class BPE:
    """A byte-level vocabulary: special tokens, the 256 bytes, and merges of them.

    All knowledge of ids lies in the wrapped `Tokenizer`, so a vocabulary numbered by others fits in here as well.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, special_tokens: Sequence[str]) -> BPE:
        """Train merges on `lines` until there are `vocab_size` entries, special tokens included.

        The same lines give the same vocabulary, whatever their order.  Special tokens take the ids from 0.
        Raises DataError where `vocab_size` cannot be reached: too small for the bytes, or too large for the text.
        """
        num_fixed = NUM_BYTES + len(special_tokens)
        if vocab_size < num_fixed:
            raise DataError(
                f"a vocabulary of {vocab_size} was asked for; {NUM_BYTES} bytes and {len(special_tokens)} special "
                f"tokens need at least {num_fixed}"
            )
        tokenizer = byte_level(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[special_token(token) for token in special_tokens],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        if tokenizer.get_vocab_size() < vocab_size:
            raise DataError(
                f"the text yields a vocabulary of only {tokenizer.get_vocab_size()} where {vocab_size} was asked "
                f"for: "
                f"give more text or ask for less"
            )
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path | str) -> BPE:
        """Read what `save` wrote; CheckpointError if it is missing or anything else."""
        name = printable_name(path)
        text = read_text(path, MAX_FILE_BYTES, CheckpointError)
        values = parse_object(text, name, CheckpointError)
        try:
            check_settings(values)
            tokenizer = Tokenizer.from_str(text)
            check_vocabulary(tokenizer.get_vocab(with_added_tokens=True))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises Exception, and its panics are not even that
            reason = printable_text(str(error), 200) or type(error).__name__
            raise CheckpointError(f"{name}: expected a tokenizer.json, but {reason}") from error
        return cls(tokenizer)

    def save(self, path: Path | str) -> None:
        """Write the vocabulary as one JSON file (the format of Hugging Face `tokenizers`), atomically."""
        write_file(path, self._tokenizer.to_str(pretty=True) + "\n", CheckpointError)

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included: rows of the text embedding."""
        return self._tokenizer.get_vocab_size()

    @property
    def special_tokens(self) -> dict[str, int]:
        """Each special token and its id, in the order of ids."""
        added = self._tokenizer.get_added_tokens_decoder()
        return {added[index].content: index for index in sorted(added)}

    def with_special_tokens(self, tokens: Sequence[str]) -> BPE:
        """This vocabulary with more special tokens after its last id; those that it has already stay as they are."""
        extended = Tokenizer.from_str(self._tokenizer.to_str())
        extended.add_special_tokens([special_token(token) for token in tokens if token not in self.special_tokens])
        return BPE(extended)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens are recognized wherever they are written out in it."""
        return self._tokenizer.encode(_without_lone_surrogates(text)).ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of `encode`, and first character and last + 1 of each; bytes of a character share its place."""
        encoding = self._tokenizer.encode(_without_lone_surrogates(text))
        return encoding.ids, encoding.offsets

    def encode_plain(self, text: str) -> list[int]:
        """Ids of `text` in which special tokens are strings like any others."""
        plain = Tokenizer.from_str(self._tokenizer.to_str())
        plain.encode_special_tokens = True
        return plain.encode(_without_lone_surrogates(text)).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The string of `ids`, special tokens written out; byte sequences cut in half show as replacement marks."""
        assert all(0 <= index < self.vocab_size for index in ids), "ids come from this vocabulary"
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


def byte_level(model: models.BPE) -> Tokenizer:
    """`model` between the step that cuts text into words of byte symbols and the one that undoes it."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def check_settings(values: dict[str, Any]) -> None:
    """Raise ValueError where a tokenizer.json does anything to a text that `byte_level` does not.

    Patterns from a file may take exponential time, and its steps may recurse without bound.
    """
    expected = json.loads(byte_level(models.BPE()).to_str())
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding"):
        if values.get(name) != expected[name]:
            raise ValueError(f"its {name} is not the one of this project")
    model = values.get("model")
    settings = {key: value for key, value in expected["model"].items() if key not in ("vocab", "merges")}
    if not isinstance(model, dict) or any(model.get(key, value) != value for key, value in settings.items()):
        raise ValueError("its model is not a byte-level BPE")
    added = values.get("added_tokens")
    if not isinstance(added, list) or not all(isinstance(token, dict) and token.get("content") for token in added):
        raise ValueError("its special tokens are not a list of texts")


def check_vocabulary(vocabulary: dict[str, int]) -> None:
    """Raise ValueError unless ids count from 0 without gaps and every byte has one."""
    if len(vocabulary) > MAX_VOCAB_SIZE or sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ValueError(f"its ids are not 0 to {len(vocabulary) - 1}, each once")
    if not vocabulary.keys() >= set(pre_tokenizers.ByteLevel.alphabet()):
        raise ValueError("its vocabulary lacks some of the 256 bytes")


def special_token(token: str) -> AddedToken:
    """A token that is matched as it is written, and by no merges."""
    return AddedToken(token, special=True, normalized=False)


def _without_lone_surrogates(text: str) -> str:
    """Half characters, which Python strings can hold but UTF-8 cannot, become question marks."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
