"""Spelling: capitals and single letters as a model without them needs them, each character at its place."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import SPECIAL_TOKENS, build_prompt
from marstts.mars6.spelling import LETTER_NAMES, Spelling, spell
from marstts.text.tokenizers.bpe import BPE
from marstts.voice import Prefix, Voice


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("STOP RIGHT THERE.", "Stop right there."),
        ("Dash - and dash - AND dash.", "Dash, and dash, and dash."),
        ("THIS IS A LOUD SENTENCE.", "This is a loud sentence."),
        ('"WHAT?" SHE SAID.', "What? she said."),
        ("STOP! GO AWAY.", "Stop! Go away."),
        ("PLEASE do NOT touch THIS.", "Please do not touch this."),
        ("iT wAS a mISTAKE.", "it was a mistake."),
        ("I'M SURE I DON'T.", "I'm sure I don't."),
        ("NASA met McDonald and O'Brien.", "Nasa met Mcdonald and O'Brien."),
        ("S O S, he cried, S O S.", "ess oh ess, he cried, ess oh ess."),
        ("The U S A and the B B C's D V D's.", "The you ess ay and the bee bee see's dee vee dee's."),
        ("An X-ray of x and y.", "An ex-ray of ex and why."),
        ("A I and an A I's I O.", "ay I and an ay I's I oh."),
        ("J. R. Abbott had a plan B.", "jay are Abbott had a plan bee."),
        ("THE B B C'S NEW SHOW.", "The bee bee see's new show."),
        ("He said 'STOP' and 'I B M'.", "He said 'stop' and 'I bee em'."),
        ("'TWAS A NIGHT OF ROCK 'N' ROLL.", "'Twas a night of rock 'n' roll."),
        ("The 's' key, A-B-C, from A - Z.", "The 'ess' key, ay-bee-see, from ay, zee."),
        ("Plan A failed, so did plan A.", "Plan ay failed, so did plan ay."),
        ("Vitamins A, B and C, or hepatitis A?", "Vitamins ay, bee and see, or hepatitis ay?"),
        ("He got straight A's in 'A' and \"A\".", "He got straight ay's in 'ay' and ay."),
        ("A or B? From A to B.", "ay or bee? From ay to bee."),
        ("A man read 'A Tale' and The Fall of A King.", "A man read 'A Tale' and The Fall of A King."),
        ('He said, "A man came." It was a plan.', "He said, A man came. It was a plan."),
        ('He said "A man came" there.', "He said A man came there."),
        ('The "best" one, said"so"?', "The best one, said so?"),
        ("A. Smith, J. A. Smith and O. Henry.", "ay Smith, jay ay Smith and oh Henry."),
        ("Ah.", "Ahhh."),
        ("aha!", "ah ha!"),
        ("UH", "Uhhh"),
        ('"Ah!"', "Ahhh!"),
        ("Ah, Anna.", "Ah, Anna."),
        ("Oh.", "Oh."),
        ("Ahab.", "Ahab."),
    ],
)
def test_capitals_letters_and_interjections_are_spelled_as_words(written: str, simple: str):
    spelled = spell(written, Spelling.SIMPLE)
    assert spelled.text == simple
    assert spell(written, Spelling.AS_WRITTEN).text == written
    assert len(spelled.places) == len(simple) + 1 and spelled.places[-1] == len(written)
    assert (np.diff(spelled.places) >= 0).all()


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("Well, well, well, what now?", "Well: well: well, what now?"),
        ("No, no, no, NO!", "No: no: no: no!"),
        ("Tick, tock, tick, tock.", "Tick: tock: tick: tock."),
        ("Yes, yes. It was long, long ago.", "Yes, yes. It was long, long ago."),
        ("No, not now, not now, Noah.", "No, not now, not now, Noah."),
        ("Well, well, wells, well.", "Well, well, wells, well."),
    ],
)
def test_three_equal_words_or_two_equal_pairs_have_colons_for_commas(written: str, simple: str):
    spelled = spell(written, Spelling.SIMPLE)
    assert spelled.text == simple
    assert list(spelled.places) == list(range(len(written) + 1))


@pytest.mark.parametrize(
    "text",
    [
        "A man and I saw O'Brien at ten o'clock.",
        "So am I. A dog barked.",
        "O no, rock 'n' roll!",
        "Said a word, not a.",
        "",
    ],
)
def test_words_of_one_letter_stay(text: str):
    assert spell(text, Spelling.SIMPLE).text == text


PIECES = ["A", "I", "O", "B", "X", "s", "n", "AI", "BBC", "NASA", "it", "Stop", "McDonald", "iPhone", "'", "'s", "'S"]
PIECES += ['"', ".", ",", "!", "?", " ", " ", " ", "-", " - ", "é", "ß", "İ", "Ж", "\U0001d518", "7", "[48000]"]


def random_texts(pieces: list[str], count: int = 600) -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices(pieces, k=rng.randrange(12))) for _ in range(count)]


def test_in_any_text_places_ascend_no_letter_is_lost_and_spelling_again_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    texts = random_texts(PIECES)
    spelled = [spell(text, Spelling.SIMPLE) for text in texts]
    for text, each in zip(texts, spelled, strict=True):
        assert len(each.places) == len(each.text) + 1 and each.places[-1] == len(text)
        assert (np.diff(each.places) >= 0).all() and not text[: each.places[0]].strip('" ')
        assert set(each.places) >= {place for place, character in enumerate(text) if character.isalnum()}
        # a quotation mark shows where a sentence starts, and is lost
        assert '"' in text or spell(each.text, Spelling.SIMPLE).text == each.text
        ends = range(len(each.text))
        spans = np.array(each.original_spans([(end, end + 1) for end in ends])).reshape(-1, 2)
        assert ((spans[:, 0] < spans[:, 1]) & (spans[:, 1] <= len(text))).all()
    monkeypatch.setattr("marstts.mars6.spelling._UNUSUAL", re.compile(""))  # every text is read piece by piece
    assert [spell(text, Spelling.SIMPLE).text for text in texts] == [each.text for each in spelled]


@pytest.mark.parametrize(
    ("written", "simple"),
    [("A", "ay."), ("I", "I."), ("O", "oh."), ("a", "ay."), ("i", "I."), ("o?", "oh?"), ('"A"', "ay."), ("I.", "I.")],
)
def test_a_letter_that_is_the_whole_text_is_named_and_ends_with_a_mark(written: str, simple: str):
    spelled = spell(written, Spelling.SIMPLE)
    assert spelled.text == simple
    assert spell(written, Spelling.AS_WRITTEN).text == written
    assert spelled.original_spans([(0, len(simple))])[0][0] == written.index(written.strip('"')[0])


def test_texts_without_capitals_and_single_letters_stay():
    for text in random_texts(["stop ", "it's ", "o'clock ", "a ", "éß ", "Ж ", "7 ", ", ", "e-mail "[1:]], 500):
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


DASHES = "\u2013\u2015\u2212-"


@pytest.mark.parametrize("text", ["A well-known fact - yes.", "ten - twenty", "No hyphen here.", DASHES])
def test_the_published_model_reads_no_hyphen(text: str) -> None:
    spelled = spell(text, Spelling.EM_DASHES)
    assert not set(spelled.text) & set(DASHES) and len(spelled.text) == len(text)
    assert spelled.text.replace("\u2014", "-") == text.translate(dict.fromkeys(map(ord, DASHES), "-"))
    assert spelled.original_spans([(0, len(text))]) == [(0, len(text))]
