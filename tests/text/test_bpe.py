"""The text vocabulary: lossless, trained reproducibly, and blind to nothing people may type."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from marstts.errors import CheckpointError, DataError
from marstts.text.tokenizers.bpe import BPE

SPECIAL_TOKENS = ["<|startoftext|>", "<|endoftext|>", "[16000]", "[48000]"]
LINES = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind.",
    "She sells sea shells by the sea shore; the shells she sells are sea shells.",
    "We set sail at dawn: the wind was fair, the sea was calm, and nobody said a word.",
    "It wasn't the first time that the captain had seen the island from the western side.",
]


@pytest.fixture(scope="module")
def bpe() -> BPE:
    return BPE.train(LINES, 320, SPECIAL_TOKENS)


def random_text(rng: random.Random) -> str:
    """Anything from plain words to stray bytes of many scripts."""
    alphabets = [
        "abcdefghij THE'.,!?-",
        "0123456789 .,",
        " \n\t\r\u00a0\u2003",
        "".join(map(chr, range(0x80, 0x250))),
        "日本語のテキスト한국어العربية",
        "😀👩‍👩‍👧🏳️‍🌈\u0000\u200d\uffff",
    ]
    return "".join(rng.choice(rng.choice(alphabets)) for _ in range(rng.randrange(40)))


def test_decoding_gives_back_any_text(bpe: BPE) -> None:
    rng = random.Random(1)
    for text in ["", " ", "  two  spaces  ", "\n\nlines\n", *LINES, *(random_text(rng) for _ in range(500))]:
        assert bpe.decode(bpe.encode(text)) == text


def test_vocabulary_has_the_size_asked_for_with_special_tokens_first(bpe: BPE) -> None:
    assert bpe.vocab_size == 320
    assert bpe.special_tokens == {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    assert BPE.train(LINES, 300, SPECIAL_TOKENS).vocab_size == 300


def test_ids_stay_below_the_vocabulary_size(bpe: BPE) -> None:
    rng = random.Random(2)
    assert all(0 <= index < bpe.vocab_size for _ in range(100) for index in bpe.encode(random_text(rng)))


def test_special_tokens_are_found_in_the_string_and_nowhere_else(bpe: BPE) -> None:
    special = bpe.special_tokens
    text = "the sea"
    prompt = f"<|startoftext|>[48000]{text}<|endoftext|>"
    ids = bpe.encode(prompt)
    assert ids[:2] == [special["<|startoftext|>"], special["[48000]"]]
    assert ids[-1] == special["<|endoftext|>"]
    assert ids[2:-1] == bpe.encode(text)
    assert bpe.decode(ids) == prompt
    assert not set(bpe.encode("[48001] <|endoftex|> 48000")) & set(special.values())


def test_frequent_words_become_single_tokens(bpe: BPE) -> None:
    assert len(bpe.encode(" the")) == 1
    assert sum(len(bpe.encode(line)) for line in LINES) < sum(len(line) for line in LINES) * 0.7


def test_tokens_never_reach_across_words(bpe: BPE) -> None:
    texts = [bpe.decode([index]) for index in range(len(SPECIAL_TOKENS), bpe.vocab_size)]
    assert not [text for text in texts if " " in text[1:]]


def test_training_is_reproducible_and_does_not_depend_on_the_order_of_lines(tmp_path: Path) -> None:
    for index, lines in enumerate([LINES, LINES, LINES[::-1]]):
        BPE.train(lines, 350, SPECIAL_TOKENS).save(tmp_path / f"{index}.json")
    first, second, reversed_ = ((tmp_path / f"{index}.json").read_bytes() for index in range(3))
    assert first == second == reversed_


def test_a_saved_vocabulary_encodes_the_same_after_loading(bpe: BPE, tmp_path: Path) -> None:
    bpe.save(tmp_path / "tokenizer.json")
    loaded = BPE.load(tmp_path / "tokenizer.json")
    assert (loaded.vocab_size, loaded.special_tokens) == (bpe.vocab_size, bpe.special_tokens)
    rng = random.Random(3)
    for text in ["<|startoftext|>[16000]We set sail.<|endoftext|>", *(random_text(rng) for _ in range(100))]:
        assert loaded.encode(text) == bpe.encode(text)


def test_half_a_surrogate_pair_is_encoded_rather_than_refused(bpe: BPE) -> None:
    assert bpe.decode(bpe.encode("a\ud83db")) == "a?b"


def test_a_vocabulary_smaller_than_its_bytes_is_refused() -> None:
    with pytest.raises(DataError, match="at least 260"):
        BPE.train(LINES, 259, SPECIAL_TOKENS)


def test_a_vocabulary_larger_than_the_text_yields_is_refused() -> None:
    with pytest.raises(DataError, match="more text"):
        BPE.train(["a"], 300, SPECIAL_TOKENS)


@pytest.mark.parametrize("content", [b"", b"{}", b"minbpe v1\n", b"\xff\xfe", b'{"model": 3}'])
def test_a_file_of_another_kind_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        BPE.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        BPE.load(tmp_path / "nothing.json")
