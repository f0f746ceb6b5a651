"""Vocabularies in minbpe's `.model` format, as the published checkpoint has one, read as a `BPE`.

Upstream: `eng-tok-512.model`.  Downstream: `marstts convert`, which saves it as tokenizer.json.

    minbpe v1
    SPLIT PATTERN                 not used: published text was cut with the GPT-4 pattern whatever stands here
    NUMBER OF SPECIAL TOKENS
    TOKEN ID                      this many lines
    ID ID                         merge n of two earlier ids makes id 256 + n; ids below 256 are bytes
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import models

from marstts.errors import CheckpointError
from marstts.io.reading import read_text
from marstts.text.tokenizers.bpe import BPE, NUM_BYTES, byte_level, special_token

HEADER = "minbpe v1"

MAX_FILE_BYTES = 16 * 2**20
MAX_TOKEN_BYTES = 1024
"""A merge may double its parts, so a few hundred lines could ask for more memory than there is."""


def read_minbpe(path: Path, vocab_size: int | None = None) -> BPE:
    """The vocabulary in `path`, numbered as there; filled up to `vocab_size` with entries no text can reach.

    Raises CheckpointError where the file is malformed, or has more entries than `vocab_size`.
    """
    try:
        special, merges = parse_minbpe(read_text(path, MAX_FILE_BYTES, CheckpointError))
        tokens = expand(merges)
        check_special(special, len(tokens))
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"{path}: expected a tokenizer in minbpe's format, but {error}") from error
    size = max(len(tokens), *(index + 1 for index in special.values()), 0)
    if vocab_size is not None and size > vocab_size:
        raise CheckpointError(f"{path}: a vocabulary of {size}, but the model has only {vocab_size}: another model's")
    return make_bpe(tokens, merges, special, vocab_size or size)


def parse_minbpe(text: str) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """Special tokens and merges; raises ValueError or IndexError where the text is something else."""
    lines = text.rstrip("\n").split("\n")
    if lines[0].strip() != HEADER:
        raise ValueError(f"its first line is not {HEADER!r}")
    num_special = int(lines[2])
    special = dict(parse_special(line) for line in lines[3 : 3 + num_special])
    if num_special < 0 or len(special) != num_special:
        raise ValueError(f"{num_special} special tokens were announced, {len(special)} came")
    return special, [parse_merge(line) for line in lines[3 + num_special :]]


def parse_special(line: str) -> tuple[str, int]:
    token, index = line.split()
    return token, int(index)


def parse_merge(line: str) -> tuple[int, int]:
    first, second = line.split()
    return int(first), int(second)


def expand(merges: list[tuple[int, int]]) -> list[bytes]:
    """The bytes of every id; raises ValueError where a merge is of something not yet made, or made twice.

    No training makes the same bytes twice: what is left unmerged inside a word depends on its bytes alone.
    """
    tokens = [bytes([byte]) for byte in range(NUM_BYTES)]
    known = set(tokens)
    for pair in merges:
        if not all(0 <= index < len(tokens) for index in pair):
            raise ValueError(f"the merge {pair} makes id {len(tokens)} from ids that do not come before it")
        token = tokens[pair[0]] + tokens[pair[1]]
        if token in known:
            raise ValueError(f"the merge {pair} makes {token!r} a second time")
        if len(token) > MAX_TOKEN_BYTES:
            raise ValueError(f"the merge {pair} makes a token of {len(token)} bytes")
        tokens.append(token)
        known.add(token)
    return tokens


def check_special(special: dict[str, int], num_tokens: int, first: int = NUM_BYTES) -> None:
    """Raise ValueError unless special tokens have distinct ids, near the others, and none before `first`."""
    ids = sorted(special.values())
    if len(set(ids)) < len(ids) or (ids and (ids[0] < first or ids[-1] >= num_tokens + MAX_FILE_BYTES)):
        raise ValueError(f"the ids of special tokens, {ids}, are not free")


def make_bpe(tokens: list[bytes], merges: list[tuple[int, int]], special: dict[str, int], vocab_size: int) -> BPE:
    """The vocabulary as a `BPE`; ids that stand for nothing get names that no text can spell.

    A special token takes its id from a merge of the same id, as minbpe decodes it. That merge, and all that build on
    it, are left out: the published text was encoded without them or with an id that means something else.
    """
    symbols = byte_symbols()
    written = ["".join(symbols[byte] for byte in token) for token in tokens]
    lost = set(special.values())
    for index, pair in enumerate(merges, start=NUM_BYTES):
        if lost & {index, *pair}:
            lost.add(index)
    merges = [pair for index, pair in enumerate(merges, start=NUM_BYTES) if index not in lost]
    vocabulary = {name: index for index, name in enumerate(written) if index not in lost} | special
    taken = set(vocabulary.values())
    vocabulary |= {f"unused {index}": index for index in range(vocab_size) if index not in taken}
    model = models.BPE(vocab=vocabulary, merges=[(written[first], written[second]) for first, second in merges])
    tokenizer = byte_level(model)
    tokenizer.add_special_tokens([special_token(token) for token in special])
    return BPE(tokenizer)


def byte_symbols() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies: itself if it prints, else one from U+0100."""
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printing else chr(next(spare)) for byte in range(NUM_BYTES)]
