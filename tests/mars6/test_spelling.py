"""Spelling: capitals and single letters as a model without them needs them, each character at its place."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import SPECIAL_TOKENS, build_prompt
from marstts.mars6.spelling import LETTER_NAMES, Spelling, spell
from marstts.text.bpe import BPE
from marstts.voice import Prefix, Voice


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("STOP RIGHT THERE.", "Stop right there."),
        ("Dash - and dash - AND dash.", "Dash, and dash, and dash."),
        ("THIS IS A LOUD SENTENCE.", "This is a loud sentence."),
        ('"WHAT?" SHE SAID.', '"What?" she said.'),
        ("STOP! GO AWAY.", "Stop! Go away."),
        ("PLEASE do NOT touch THIS.", "Please do not touch this."),
        ("iT wAS a mISTAKE.", "it was a mistake."),
        ("I'M SURE I DON'T.", "I'm sure I don't."),
        ("NASA met McDonald and O'Brien.", "Nasa met Mcdonald and O'Brien."),
        ("S O S, he cried, S O S.", "ess oh ess, he cried, ess oh ess."),
        ("The U S A and the B B C's D V D's.", "The you ess ay and the bee bee see's dee vee dee's."),
        ("An X-ray of x and y.", "An ex-ray of ex and why."),
    ],
)
def test_capitals_and_letters_are_spelled_as_words(written: str, simple: str):
    spelled = spell(written, Spelling.SIMPLE)
    assert spelled.text == simple
    assert spell(written, Spelling.AS_WRITTEN).text == written
    assert len(spelled.places) == len(simple) + 1 and spelled.places[-1] == len(written)
    assert (np.diff(spelled.places) >= 0).all()


@pytest.mark.parametrize(
    "text",
    ["A man and I saw O'Brien at ten o'clock.", "So am I. A dog barked.", "O no, rock 'n' roll!", "Said A, not a.", ""],
)
def test_words_of_one_letter_stay(text: str):
    assert spell(text, Spelling.SIMPLE).text == text


def test_every_letter_has_a_name():
    assert len(LETTER_NAMES) == 26 and all(name.replace("-", "").isalpha() for name in LETTER_NAMES.values())


def test_spans_of_a_prompt_are_those_of_the_sentence_as_it_was():
    tokenizer = BPE.train(["bee "], 264, SPECIAL_TOKENS)
    config = Mars6Config(
        text_vocab_size=264, codebook_size=6, width=8, heads=2, local_heads=2, identity_size=3, style_size=5
    )
    voice = Voice(
        name="ann", prefix=Prefix("OH NO.", (np.array([1]), np.arange(2), np.arange(4))),
        embeddings={"identity": np.ones(3, np.float32), "style": np.ones(5, np.float32)},
        codec="toy", encoders={"identity": "i", "style": "s"}, source_sha256="", consent="",
    )  # fmt: skip
    text = "The B B C SPOKE."
    prompt = build_prompt(text, voice, tokenizer, config, spelling=Spelling.SIMPLE)
    string = tokenizer.decode(prompt.text_ids.tolist())
    assert string.endswith("Oh no. The bee bee see spoke.<|endoftext|>")
    assert prompt.text_spans is not None
    said = [text[start:end] for start, end in prompt.text_spans.tolist() if start >= 0]
    assert "".join(said) == "The BBB BBB CCC SPOKE."  # a token of "bee" is the letter B
