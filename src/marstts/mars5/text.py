"""The two tokenizers of MARS5, the joint vocabulary of their ids, and the folder that holds them.

Upstream: text; level-0 codes.  Downstream: `prompt` (ids), `pipeline` (ids back to codes).
Published tokenizers are texts in minbpe's format (see `text.tokenizers.minbpe`).  That of text is a byte-level BPE;
that of speech is a BPE over codes: ids below `codebook_size` are codes, merge n makes id codebook_size + n.
Joint ids: text ids first, then speech ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from tokenizers import Tokenizer, models, trainers

from marstts.errors import CheckpointError, DataError
from marstts.io.files import write_file
from marstts.io.reading import printable_name, printable_text, read_json
from marstts.mars5.config import CodecLMConfig, Mars5Config, ResidualTransformerConfig
from marstts.text.tokenizers.bpe import BPE
from marstts.text.tokenizers.minbpe import check_special, expand, make_bpe, parse_minbpe

END_OF_SPEECH = "<|endofspeech|>"
START_OF_TEXT, END_OF_TEXT = "<|startoftext|>", "<|endoftext|>"

CODEBOOK_SIZE = 1024
"""Codebook size of the published codec."""

MAX_CODES = 4096
"""Codes of one token; merges may double their parts, so few lines could ask for more memory than there is."""

MAX_ALL_CODES = 2**22
"""Codes of all tokens together."""

MAX_CODEBOOK_SIZE = 2**16
MAX_FILE_BYTES = 2**24

FIRST_CHARACTER = 0x20000
"""The character for code 0, for a library that works on characters."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class SpeechBPE:
    """Byte-pair encoding of codes: merges are applied to the whole sequence, the earliest first."""

    merges: tuple[Pair, ...]
    """Merge n joins two earlier ids to the id codebook_size + n."""

    special: dict[str, int]
    """Special tokens and their ids, which follow those of the merges."""

    codebook_size: int = CODEBOOK_SIZE
    _ranks: dict[Pair, int] = field(init=False, repr=False, compare=False)
    _codes: list[tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError where merges are of ids not yet made, or special tokens are not where they belong."""
        codes: list[tuple[int, ...]] = [(code,) for code in range(self.codebook_size)]
        total = len(codes)
        for first, second in self.merges:
            if not (0 <= first < len(codes) and 0 <= second < len(codes)):
                raise ValueError(f"the merge {(first, second)} makes id {len(codes)} from ids that come after it")
            codes.append(codes[first] + codes[second])
            if len(codes[-1]) > MAX_CODES:
                raise ValueError(f"the merge {(first, second)} makes a token of {len(codes[-1])} codes")
            total += len(codes[-1])
            if total > MAX_ALL_CODES:
                raise ValueError(f"its tokens have more than {MAX_ALL_CODES} codes together")
        check_special(self.special, len(codes), first=len(codes))
        if END_OF_SPEECH not in self.special:
            raise ValueError(f"it has no {END_OF_SPEECH}")
        ranks: dict[Pair, int] = {}
        for index, pair in enumerate(self.merges):
            ranks[pair] = self.codebook_size + index
        object.__setattr__(self, "_ranks", ranks)
        object.__setattr__(self, "_codes", codes)

    @classmethod
    def train(cls, streams: Iterable[Sequence[int]], vocab_size: int, codebook_size: int = CODEBOOK_SIZE) -> SpeechBPE:
        """Train merges of neighbors on streams of codes until there are `vocab_size` ids, end of speech included.

        Raises DataError where no pair is left that occurs twice.
        """
        num_merges = vocab_size - codebook_size - 1
        if num_merges < 0:
            raise DataError(f"a speech vocabulary of {vocab_size} was asked for; it needs at least {codebook_size + 1}")
        merges = train_merges(streams, num_merges, codebook_size)
        if len(merges) < num_merges:
            raise DataError(
                f"the codes yield a speech vocabulary of only {codebook_size + len(merges) + 1} where {vocab_size} "
                "was asked for: give more speech or ask for less"
            )
        return cls(tuple(merges), {END_OF_SPEECH: codebook_size + num_merges}, codebook_size)

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return max(len(self._codes), *(index + 1 for index in self.special.values()))

    @property
    def end(self) -> int:
        """The id that ends speech."""
        return self.special[END_OF_SPEECH]

    def encode(self, codes: Sequence[int] | NDArray[np.int64]) -> list[int]:
        """Ids of codes (T,); raises DataError where one is no code."""
        ids = [int(code) for code in codes]
        wrong = next((code for code in ids if not 0 <= code < self.codebook_size), None)
        if wrong is not None:
            raise DataError(f"code {wrong} is out of range: level 0 has codes from 0 to {self.codebook_size - 1}")
        while len(ids) > 1:
            ranked = (self._ranks.get(pair) for pair in pairwise(ids))
            merged = min((rank for rank in ranked if rank is not None), default=None)
            if merged is None:
                break
            ids = merge_pair(ids, self.merges[merged - self.codebook_size], merged)
        return ids

    def decode(self, ids: Iterable[int]) -> list[int]:
        """Codes of ids; special tokens give none.  Raises DataError where an id is not of this vocabulary."""
        return [item for item in self.spell_out(ids) if isinstance(item, int)]

    def spell_out(self, ids: Iterable[int]) -> list[int | str]:
        """Codes, and the names of special tokens among them."""
        names = {index: name for name, index in self.special.items()}
        items: list[int | str] = []
        for index in ids:
            if index in names:
                items.append(names[index])
            elif 0 <= index < len(self._codes):
                items += self._codes[index]
            else:
                raise DataError(f"speech id {index} is out of range: the tokenizer has {self.vocab_size} ids")
        return items

    def save(self, path: Path) -> None:
        """Write merges and special tokens as JSON."""
        content = {"codebook_size": self.codebook_size, "special": self.special, "merges": self.merges}
        write_file(path, json.dumps(content) + "\n", CheckpointError)

    @classmethod
    def load(cls, path: Path) -> SpeechBPE:
        """Read what `save` wrote; raises CheckpointError if it is missing or something else."""
        content = read_json(path, MAX_FILE_BYTES, CheckpointError)
        try:
            if int(content["codebook_size"]) > MAX_CODEBOOK_SIZE:
                raise ValueError(f"it has a codebook of more than {MAX_CODEBOOK_SIZE} codes")
            merges = tuple((int(first), int(second)) for first, second in content["merges"])
            special = {str(name): int(index) for name, index in content["special"].items()}
            return cls(merges, special, int(content["codebook_size"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            problem = f"{printable_name(path)}: expected a speech tokenizer, but {printable_text(str(error), 200)}"
            raise CheckpointError(problem) from error


def train_merges(streams: Iterable[Sequence[int]], num_merges: int, codebook_size: int) -> list[Pair]:
    """The first merges of byte-pair encoding on streams of codes, at most `num_merges`.

    Codes become characters of an unused Unicode plane, which the library then treats as words without ends.
    """
    names = {chr(FIRST_CHARACTER + code): code for code in range(codebook_size)}
    words = ("".join(chr(FIRST_CHARACTER + int(code)) for code in stream) for stream in streams)
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=codebook_size + num_merges, min_frequency=2, initial_alphabet=sorted(names), show_progress=False
    )
    tokenizer.train_from_iterator(words, trainer)
    merges: list[Pair] = []
    for first, second in json.loads(tokenizer.to_str())["model"]["merges"][:num_merges]:
        merges.append((names[first], names[second]))
        names.setdefault(first + second, codebook_size + len(merges) - 1)
    return merges


def merge_pair(ids: Sequence[int], pair: Pair, merged: int) -> list[int]:
    """`ids` with every occurrence of `pair` replaced by `merged`, from left to right."""
    first, second = pair
    result: list[int] = []
    index = 0
    while index < len(ids):
        if ids[index] == first and index + 1 < len(ids) and ids[index + 1] == second:
            result.append(merged)
            index += 2
        else:
            result.append(ids[index])
            index += 1
    return result


@dataclass(frozen=True)
class JointVocabulary:
    """Both tokenizers in one id space: text first, then speech."""

    text: BPE
    speech: SpeechBPE

    @property
    def offset(self) -> int:
        """The joint id of speech id 0."""
        return self.text.vocab_size

    @property
    def size(self) -> int:
        """Number of joint ids."""
        return self.offset + self.speech.vocab_size

    @property
    def end(self) -> int:
        """The joint id that ends speech."""
        return self.offset + self.speech.end

    def encode_speech(self, codes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Codes (T,) of level 0 -> joint ids (N,)."""
        return np.array(self.speech.encode(codes), dtype=np.int64) + self.offset

    def decode_speech(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Joint ids (N,) -> codes (T,) of level 0; special tokens give none.

        Text ids become speech id 0, as published: the corrected profile never samples one.
        """
        return np.array(self.speech.decode(np.maximum(ids - self.offset, 0).tolist()), dtype=np.int64)


def read_text_tokenizer(text: str, source: str) -> BPE:
    """The text tokenizer in minbpe's format; raises CheckpointError naming `source` where it is malformed."""
    try:
        special, merges = parse_minbpe(text)
        tokens = expand(merges)
        check_special(special, len(tokens))
        missing = [token for token in (START_OF_TEXT, END_OF_TEXT) if token not in special]
        if missing:
            raise ValueError(f"it has no {' and no '.join(missing)}")
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"{source}: expected a text tokenizer in minbpe's format, but {error}") from error
    return make_bpe(tokens, merges, special, max(len(tokens), *(index + 1 for index in special.values())))


def read_speech_tokenizer(text: str, source: str, codebook_size: int = CODEBOOK_SIZE) -> SpeechBPE:
    """The speech tokenizer in minbpe's format; raises CheckpointError naming `source` where it is malformed."""
    try:
        special, merges = parse_minbpe(text)
        return SpeechBPE(tuple(merges), special, codebook_size)
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"{source}: expected a speech tokenizer in minbpe's format, but {error}") from error


# The folder of a MARS5: names of its files, its tokenizers, and whether its parts fit together.
#     config.json              sizes of both models
#     ar.safetensors           the AR, in half precision where that loses nothing
#     nar.safetensors          the NAR, likewise
#     text_tokenizer.json      of the library `tokenizers`
#     speech_tokenizer.json    merges over codes, special tokens

CONFIG_FILE = "config.json"
AR_FILE, NAR_FILE = "ar.safetensors", "nar.safetensors"
TEXT_FILE, SPEECH_FILE = "text_tokenizer.json", "speech_tokenizer.json"


def read_tokenizers(folder: Path) -> JointVocabulary:
    """Both tokenizers of a folder; CheckpointError where one is missing or malformed."""
    return JointVocabulary(BPE.load(folder / TEXT_FILE), SpeechBPE.load(folder / SPEECH_FILE))


def check_fit(
    ar: CodecLMConfig, nar: ResidualTransformerConfig, vocabulary: JointVocabulary, source: str
) -> Mars5Config:
    """The sizes of both models; raises CheckpointError where models and tokenizers are not made for each other."""
    if ar.vocab_size != vocabulary.size:
        raise CheckpointError(
            f"{source}: the AR has {ar.vocab_size} tokens, but its tokenizers have {vocabulary.text.vocab_size} and "
            f"{vocabulary.speech.vocab_size}: they belong to another model"
        )
    if ar.codebook_size != vocabulary.speech.codebook_size:
        raise CheckpointError(
            f"{source}: the AR has {ar.codebook_size} codes, but its speech tokenizer "
            f"{vocabulary.speech.codebook_size}: they belong to different codecs"
        )
    try:
        return Mars5Config(ar=ar, nar=nar)
    except ValidationError as error:
        reason = "; ".join(complaint["msg"] for complaint in error.errors())
        raise CheckpointError(f"{source}: AR and NAR do not fit together: {reason}") from error
