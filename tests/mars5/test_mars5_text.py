"""The speech tokenizer, the joint vocabulary, and malformed tokenizer files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mars5_small import vocabulary
from marstts.errors import CheckpointError, DataError
from marstts.mars5.text import (
    END_OF_SPEECH,
    JointVocabulary,
    SpeechBPE,
    merge_pair,
    read_speech_tokenizer,
    read_text_tokenizer,
)

BPE = SpeechBPE(((0, 1), (2, 2), (5, 3), (6, 6)), {END_OF_SPEECH: 9}, codebook_size=5)


def slow_encode(codes: list[int]) -> list[int]:
    """Every merge over the whole sequence, one after the other."""
    for rank, pair in enumerate(BPE.merges):
        codes = merge_pair(codes, pair, 5 + rank)
    return codes


def test_codes_come_back_whatever_was_merged() -> None:
    rng = np.random.default_rng(0)
    for length in (0, 1, 2, 40):
        codes = rng.integers(0, 4, length).tolist()
        ids = BPE.encode(codes)
        assert ids == slow_encode(codes)
        assert BPE.decode(ids) == codes
    assert BPE.encode([2, 2, 2, 2, 2, 0, 1, 3, 4]) == [8, 2, 7, 4]


def test_runs_are_merged_from_left_to_right() -> None:
    assert merge_pair([2, 2, 2], (2, 2), 6) == [6, 2]


def test_special_tokens_are_named_and_give_no_codes() -> None:
    ids = [7, 9, 4]
    assert BPE.spell_out(ids) == [0, 1, 3, END_OF_SPEECH, 4]
    assert BPE.decode(ids) == [0, 1, 3, 4]


@pytest.mark.parametrize("codes", [[5], [-1], [0, 1, 1024]])
def test_codes_out_of_range_are_refused(codes: list[int]) -> None:
    with pytest.raises(DataError, match="out of range: level 0 has codes from 0 to 4"):
        BPE.encode(codes)


def test_ids_out_of_range_are_refused() -> None:
    for ids in ([10], [-1]):
        with pytest.raises(DataError, match="the tokenizer has 10 ids"):
            BPE.decode(ids)


def test_training_merges_what_occurs_most() -> None:
    streams = [[3, 1, 2, 3, 1, 2, 3, 1], [3, 1, 0, 3, 1], [2, 2]]
    trained = SpeechBPE.train(streams, vocab_size=7, codebook_size=4)
    assert trained.merges == ((3, 1), (2, 4))
    assert trained.special == {END_OF_SPEECH: 6}
    assert trained.encode([3, 1, 2, 3, 1]) == [4, 5]
    assert SpeechBPE.train(reversed(streams), 7, 4) == trained


def test_missing_packages_of_training_are_named() -> None:
    with pytest.raises(DataError, match="only 6 where 90"):
        SpeechBPE.train([[1, 2, 1, 2]], vocab_size=90, codebook_size=4)
    with pytest.raises(DataError, match="at least 5"):
        SpeechBPE.train([], vocab_size=4, codebook_size=4)


def test_the_speech_tokenizer_survives_its_file(tmp_path: Path) -> None:
    BPE.save(tmp_path / "speech.json")
    assert SpeechBPE.load(tmp_path / "speech.json") == BPE


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"merges": [[9, 9]], "special": {}, "codebook_size": 5}',
        "\udc80",
        "[" * 100_000,
        '{"merges": [], "special": {}, "codebook_size": 9223372036854775808}',
        json.dumps(
            {"merges": [[0, 0]] + [[i, i] for i in range(5, 16)] + [[16, 0]] * 5000, "special": {}, "codebook_size": 5}
        ),
    ],
)
def test_malformed_speech_files_are_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "speech.json"
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(CheckpointError, match=r"speech tokenizer|JSON|UTF-8"):
        SpeechBPE.load(path)
    with pytest.raises(CheckpointError, match="no such"):
        SpeechBPE.load(tmp_path / "none.json")


HEADER = "minbpe v1\nunused\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "first line"),
        (HEADER, "list index"),
        (HEADER + "x", "invalid literal"),
        (HEADER + "2\n<|endofspeech|> 5", "2 special tokens were announced"),
        (HEADER + "0\n0 1", r"no <\|endofspeech\|>"),
        (HEADER + "1\n<|endofspeech|> 5\n0 9", "ids that come after it"),
        (HEADER + "1\n<|endofspeech|> 3\n0 1", "not free"),
        (
            HEADER + "1\n<|endofspeech|> 40\n" + "\n".join(["0 0"] + [f"{n} {n}" for n in range(5, 20)]),
            "makes a token of",
        ),
    ],
)
def test_malformed_speech_tokenizers_are_refused_in_one_sentence(text: str, complaint: str) -> None:
    with pytest.raises(CheckpointError, match=complaint) as caught:
        read_speech_tokenizer(text, "ar.pt", codebook_size=5)
    assert str(caught.value).startswith("ar.pt: expected a speech tokenizer") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [(HEADER + "0\n104 101", r"no <\|startoftext\|>"), ("other\n", "first line"), (HEADER + "0\n999 1", "before it")],
)
def test_malformed_text_tokenizers_are_refused_in_one_sentence(text: str, complaint: str) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        read_text_tokenizer(text, "ar.pt")


def test_joint_ids_put_text_first() -> None:
    joint: JointVocabulary = vocabulary()
    assert (joint.offset, joint.size, joint.end) == (270, 288, 287)
    ids = joint.encode_speech([0, 1, 3, 2])
    assert ids.tolist() == [285, 272]
    assert joint.decode_speech(ids).tolist() == [0, 1, 3, 2]
    assert joint.decode_speech(np.array([269, 287, 272])).tolist() == [0, 2]  # a text id, the end, a code
