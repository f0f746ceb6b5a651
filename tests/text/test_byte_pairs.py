"""Byte-level BPE in plain Python: the ids and offsets of the compiled one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import marstts
from marstts.text.phones import PAIR_TOKENS, PHONE_TOKENS
from marstts.text.tokenizers.bpe import BPE
from marstts.text.tokenizers.byte_pairs import BytePairs

LINES = ["the cat sat on the mat", "she sells sea shells, doesn't she?", "don't you've we'll 1,234 1999 x = y"] * 3
SPECIAL = ["<|startoftext|>", "<|endoftext|>", "[16000]", "[48000]"]
PACKAGED = Path(marstts.__file__).parent / "models_data" / "mini" / "tokenizer.json"
PIECES = [
    "the ", "cat", " sat", "'s", "'LL", "'Ve", "don't", "12345", "½", "²", "é", "e\u0301", "Ж", "漢字", "😀", "\n",
    "\r\n", "  ", "\t", " \n ", "\u00a0", "\u2003", "\x1c", "\x85", "—", "...", "!?", "_", "[48000]", "[480",
    "<|endoftext|>", "\ud800", "\u017f", "'\u017f", "\u0000", *PHONE_TOKENS[:3], PAIR_TOKENS[0], PAIR_TOKENS[-1],
]  # fmt: skip


@pytest.fixture(scope="module", params=["trained", "with phones", "packaged"])
def vocabulary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "packaged":
        return PACKAGED
    path = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    bpe = BPE.train(LINES, 290, SPECIAL)
    (bpe if request.param == "trained" else bpe.with_special_tokens([*PHONE_TOKENS, *PAIR_TOKENS])).save(path)
    return path


def test_ids_and_offsets_are_those_of_the_compiled_tokenizer(vocabulary: Path) -> None:
    compiled, plain = BPE.load(vocabulary), BytePairs(vocabulary.read_text(encoding="utf-8"))
    rng = random.Random(0)
    for _ in range(1500):
        text = "".join(rng.choices(PIECES, k=rng.randrange(12)))
        assert plain.encode_with_offsets(text) == compiled.encode_with_offsets(text), ascii(text)
    assert plain.special_tokens == compiled.special_tokens
