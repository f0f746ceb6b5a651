"""Encoding with a byte-level BPE in plain Python, where the compiled `tokenizers` is not there, as in a browser.

Upstream: the tokenizer.json of a bundle, which `bpe` wrote and checked.  Downstream: `web.reader`.
The ids and offsets are those of `bpe.BPE.encode_with_offsets`; tests compare both.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from itertools import pairwise

_CONTRACTION = re.compile(r"'(?:[sdmtSDMT\u017f]|[lL]{2}|[vV][eE]|[rR][eE])")
_SPACES = re.compile(r"\s*[\r\n]|\s+(?!\S)|\s+")


class BytePairs:
    """Special tokens, the 256 bytes, and merges of them."""

    def __init__(self, content: str) -> None:
        """`content`: the text of a tokenizer.json."""
        values = json.loads(content)
        self.ids: dict[str, int] = values["model"]["vocab"]
        pairs = (tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in values["model"]["merges"])
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self.special_tokens = {token["content"]: token["id"] for token in values["added_tokens"]}
        self._encode_word = lru_cache(maxsize=4096)(self._merge)

    @cached_property
    def _special(self) -> re.Pattern[str]:
        tokens = sorted(self.special_tokens, key=len, reverse=True)
        single = "".join(re.escape(token) for token in tokens if len(token) == 1)  # one class, for there may be many
        longer = [re.escape(token) for token in tokens if len(token) > 1]
        return re.compile("|".join([*longer, *([f"[{single}]"] if single else [])]) or r"(?!)")

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a text, and first character and last + 1 of each; bytes of a character share its place."""
        text = text.encode("utf-8", errors="replace").decode("utf-8")
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        end = 0
        for token in self._special.finditer(text):
            self._encode_plain(text, end, token.start(), ids, offsets)
            ids.append(self.special_tokens[token[0]])
            offsets.append(token.span())
            end = token.end()
        self._encode_plain(text, end, len(text), ids, offsets)
        return ids, offsets

    def _encode_plain(self, text: str, start: int, end: int, ids: list[int], offsets: list[tuple[int, int]]) -> None:
        """Add the tokens of a stretch without special tokens."""
        for word in cut_words(text[start:end]):
            place_of_byte = [
                start + number for number, character in enumerate(word) for _ in range(len(character.encode()))
            ]
            byte = 0
            for index, length in self._encode_word(word):
                ids.append(index)
                offsets.append((place_of_byte[byte], place_of_byte[byte + length - 1] + 1))
                byte += length
            start += len(word)

    def _merge(self, word: str) -> list[tuple[int, int]]:
        """The id and the number of bytes of each token of a word; the merge that was learned first comes first."""
        symbols = byte_symbols()
        parts = [symbols[byte] for byte in word.encode()]
        while len(parts) > 1:
            ranked = [(self.ranks.get(pair, len(self.ranks)), pair) for pair in pairwise(parts)]
            rank, best = min(ranked)
            if rank == len(self.ranks):
                break
            merged: list[str] = []
            for part in parts:
                if merged and (merged[-1], part) == best:
                    merged[-1] += part
                else:
                    merged.append(part)
            parts = merged
        return [(self.ids[part], len(part)) for part in parts]


def cut_words(text: str) -> Iterator[str]:
    """The units of `bpe.WORD_PATTERN`, whose classes of letters and digits Python's `re` has not."""
    start = 0
    while start < len(text):
        end = _end_of_word(text, start)
        yield text[start:end]
        start = end


def _end_of_word(text: str, start: int) -> int:
    """Where the unit that begins at a place ends."""
    if contraction := _CONTRACTION.match(text, start):
        return contraction.end()
    first = text[start]
    is_mark = not (_is_letter(first) or _is_digit(first) or first in "\r\n")
    letters = _end_of(_is_letter, text, start + is_mark)
    if letters > start + is_mark:
        return letters
    if _is_digit(first):
        return min(_end_of(_is_digit, text, start), start + 3)
    after_space = start + (first == " ")
    marks = _end_of(_is_other, text, after_space)
    if marks > after_space:
        return _end_of("\r\n".__contains__, text, marks)
    spaces = _SPACES.match(text, start)
    assert spaces is not None, "what is neither letter, digit nor mark is white space"
    return spaces.end()


def _end_of(belongs: Callable[[str], bool], text: str, start: int) -> int:
    while start < len(text) and belongs(text[start]):
        start += 1
    return start


def _is_letter(character: str) -> bool:
    return character.isalpha() if character.isascii() else unicodedata.category(character)[0] == "L"


def _is_digit(character: str) -> bool:
    return unicodedata.category(character)[0] == "N"


def _is_other(character: str) -> bool:
    """Return True for what is neither white space, letter nor digit."""
    return not (is_space(character) or _is_letter(character) or _is_digit(character))


def is_space(character: str) -> bool:
    """Return True for white space as Unicode defines it; Python counts four separators of data as well."""
    return character.isspace() and character not in "\x1c\x1d\x1e\x1f"


@lru_cache(maxsize=1)
def byte_symbols() -> list[str]:
    """The printable character that stands for each byte, as in GPT-2."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]
