"""Vocabularies in minbpe's format."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from marstts.errors import CheckpointError
from marstts.text.tokenizers.bpe import BPE
from marstts.text.tokenizers.minbpe import read_minbpe

SPECIAL = "<|endoftext|> 258"


def written(path: Path, *lines: str, header: str = "minbpe v1") -> Path:
    path.write_text("\n".join([header, "pattern", *lines]) + "\n", encoding="utf-8")
    return path


def test_ids_are_those_of_the_file(tmp_path: Path) -> None:
    tokenizer = read_minbpe(written(tmp_path / "a.model", "1", SPECIAL, "104 101", "256 108"))
    assert tokenizer.encode("hello h é<|endoftext|>") == [257, 108, 111, 32, 104, 32, 195, 169, 258]
    assert tokenizer.vocab_size == 259
    assert tokenizer.decode([257, 108, 258]) == "hell<|endoftext|>"


def test_merges_go_by_rank_as_the_slow_way_does(tmp_path: Path) -> None:
    merges = [(97, 98), (98, 99), (256, 257), (97, 257), (99, 97), (256, 256)]
    path = written(tmp_path / "a.model", "0", *(f"{first} {second}" for first, second in merges))
    tokenizer = read_minbpe(path)
    for text in ("abc", "abcabc", "aabbcc", "ababab", "cabcabca", "bca"):
        assert tokenizer.encode(text) == merged(text, merges), text


PUBLISHED_CUTS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
ODD = "'sSdDtLlVvRrEe \u017fK\u212a\r\n\t \u3000\xa0\x85\x1c\u180e\u200b\u2028\u2019.,!?"
ODD += "0123٣²Ⅷ½éßİ\u0131ñ中字🙂\u200d\u0301ǅ_-—<|>the"


def test_text_is_cut_where_the_published_pattern_cuts_it(tmp_path: Path) -> None:
    """Every pair of bytes has a merge, so an unmerged pair shows a boundary between words."""
    regex = pytest.importorskip("regex")
    rng = random.Random(0)
    texts = ["".join(rng.choices(ODD, k=rng.randint(1, 12))) for _ in range(500)]
    pairs = dict.fromkeys(pair for text in texts for pair in pairwise(text.encode()))
    tokenizer = read_minbpe(written(tmp_path / "a.model", "0", *(f"{first} {second}" for first, second in pairs)))
    for text in texts:
        expected = [index for word in regex.findall(PUBLISHED_CUTS, text) for index in merged(word, list(pairs))]
        assert tokenizer.encode(text) == expected, text


def merged(word: str, merges: list[tuple[int, int]]) -> list[int]:
    """The ids of one word, the slow way."""
    ranks, ids = {pair: rank for rank, pair in enumerate(merges)}, list(word.encode())
    while pairs := [(ranks[pair], place) for place, pair in enumerate(pairwise(ids)) if pair in ranks]:
        rank, place = min(pairs)
        ids[place : place + 2] = [256 + rank]
    return ids


def test_a_larger_embedding_is_filled_with_ids_that_no_text_reaches(tmp_path: Path) -> None:
    path = written(tmp_path / "a.model", "1", SPECIAL, "104 101", "256 108")
    tokenizer = read_minbpe(path, vocab_size=300)
    assert tokenizer.vocab_size == 300
    assert max(tokenizer.encode("unused 270 <|endoftext|>")) == 258
    with pytest.raises(CheckpointError, match="the model has only 258"):
        read_minbpe(path, vocab_size=258)


@pytest.mark.parametrize(("index", "ids"), [(256, [104, 101, 108]), (257, [256, 108]), (258, [257])])
def test_a_special_token_takes_its_id_from_a_merge_and_from_what_builds_on_it(
    index: int, ids: list[int], tmp_path: Path
) -> None:
    path = written(tmp_path / "a.model", "1", f"<|endoftext|> {index}", "104 101", "256 108")
    tokenizer = read_minbpe(path, vocab_size=260)
    assert tokenizer.encode("hel<|endoftext|>") == [*ids, index]
    assert tokenizer.decode([*ids, index]) == "hel<|endoftext|>" and tokenizer.vocab_size == 260


def test_it_can_be_saved_as_ours(tmp_path: Path) -> None:
    tokenizer = read_minbpe(written(tmp_path / "a.model", "1", SPECIAL, "104 101", "256 108"))
    tokenizer.save(tmp_path / "tokenizer.json")
    again = BPE.load(tmp_path / "tokenizer.json")
    assert again.encode("hell<|endoftext|>") == tokenizer.encode("hell<|endoftext|>")


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (("0", "256 104"), "do not come before it"),
        (("0", "104 101", "300 1"), "do not come before it"),
        (("0", "-1 101"), "do not come before it"),
        (("0", "104 101", "104 101"), "a second time"),
        (("0", "104"), "unpack"),
        (("0", "one two"), "invalid literal"),
        (("many",), "invalid literal"),
        ((), "index"),
        (("2", SPECIAL), "2 special tokens"),
        (("1", "<a> 97"), "not free"),
        (("1", "<a> 99999999999"), "not free"),
        (("0", "97 97", *(f"{n} {n}" for n in range(256, 290))), "bytes"),
    ],
)
def test_malformed_files_are_refused_in_one_sentence(lines: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=complaint) as caught:
        read_minbpe(written(tmp_path / "a.model", *lines))
    assert "\n" not in str(caught.value)
