"""Plain text is read without any rule; that changes nothing but the time."""

from __future__ import annotations

import random

from marstts.text.characters import fold_characters
from marstts.text.normalize import normalize_block
from marstts.text.plain import is_plain
from marstts.text.punctuation import tidy_punctuation
from marstts.text.rule_order import read_markup, read_written_forms
from marstts.text.rules import Trace

PARTS = [*"aAbcI' ,;:-\"", "the", "Then", " ", " ", "  ", ". ", ", ", "; ", " - ", "?", "!", ".", "'s"]


def read_by_every_rule(text: str, trace: Trace) -> str:
    """The text as every rule in order leaves it."""
    text = fold_characters(read_markup(text, trace), trace)
    return tidy_punctuation(read_written_forms(text, trace))


def test_every_rule_leaves_plain_text_as_it_is() -> None:
    rng = random.Random(7)
    texts = ["".join(rng.choices(PARTS, k=rng.randint(1, 14))) for _ in range(4000)]
    plain = [text for text in texts if any(map(str.isalpha, text)) and is_plain(text)]
    assert len(plain) > 500
    for text in plain:
        trace, every = Trace(), Trace()
        assert normalize_block(text, trace) == read_by_every_rule(read_by_every_rule(text, every), every), repr(text)
        assert (trace.steps, trace.left_out) == (every.steps, every.left_out) == ([], []), repr(text)
