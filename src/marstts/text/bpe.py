"""Byte-pair encoding: strings in, ids of the text vocabulary out.

Upstream: `normalize` and the prompt string built in `mars6.prompt`.  Downstream: the encoder's text embedding.
MARS6 (arXiv:2501.05787), Sec. V-A: BPE with 512 entries.  Byte-level, so every text has an encoding and
`decode(encode(text)) == text`.  Text is first cut with the GPT-4 pattern, as in the published tokenizer: a token may
begin with a space but never reaches into the next word.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from marstts.errors import CheckpointError, DataError

NUM_BYTES = 256

WORD_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
"""What merges stay within: contractions, a word with one space or mark before it, up to three digits, marks, space."""


class BPE:
    """A byte-level vocabulary: special tokens, the 256 bytes, and merges of them.

    All knowledge of ids lies in the wrapped `Tokenizer`, so a vocabulary numbered by others fits in here as well.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, special_tokens: Sequence[str]) -> BPE:
        """Learn merges from `lines` until there are `vocab_size` entries, special tokens included.

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
                f"the text yields a vocabulary of only {tokenizer.get_vocab_size()} where {vocab_size} was asked for: "
                f"give more text or ask for less"
            )
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path | str) -> BPE:
        """Read what `save` wrote.  Raises CheckpointError if it is missing or something else."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise CheckpointError(f"{path}: no such tokenizer file") from error
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path}: expected a tokenizer.json, but it cannot be read: {error}") from error
        try:
            return cls(Tokenizer.from_str(text))
        except Exception as error:  # the library raises nothing more specific
            raise CheckpointError(f"{path}: expected a tokenizer.json, but {error}") from error

    def save(self, path: Path | str) -> None:
        """Write the vocabulary as one JSON file (the format of Hugging Face `tokenizers`)."""
        path = Path(path)
        # under a name of its own first: the processes of one training all save it
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(self._tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
        os.replace(temporary, path)

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included: rows of the text embedding."""
        return self._tokenizer.get_vocab_size()

    @property
    def special_tokens(self) -> dict[str, int]:
        """Each special token and its id, in the order of ids."""
        added = self._tokenizer.get_added_tokens_decoder()
        return {added[index].content: index for index in sorted(added)}

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens are recognised wherever they are written out in it."""
        return self._tokenizer.encode(_without_lone_surrogates(text)).ids

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


def special_token(token: str) -> AddedToken:
    """A token that is matched as it is written, and by no merges."""
    return AddedToken(token, special=True, normalized=False)


def _without_lone_surrogates(text: str) -> str:
    """Half characters, which Python strings can hold but UTF-8 cannot, become question marks."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
