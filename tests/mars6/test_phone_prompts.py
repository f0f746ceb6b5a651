"""Prompts of a model that reads phones, and of one that reads letters only."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.mars6.prompt import SPECIAL_TOKENS, sentence_spans
from marstts.mars6.spelling import Spelling, read_aloud
from marstts.text.phones import FALLING, PHONE_TOKENS, RISING, readable
from marstts.text.pronunciation.words import PhoneUse
from marstts.text.reading import read_text
from marstts.text.tokenizers.bpe import BPE


def spoken(written: str, use: PhoneUse) -> str:
    """The only sentence of a text as a model reads it, with phones in braces."""
    [sentence] = read_text(written).sentences
    return readable(read_aloud(sentence, Spelling.SIMPLE, use).text)


@pytest.mark.parametrize(
    "written",
    [
        "Call [Watts]{W AA1 T S} now.",
        "Call [Watts](/wˈɑts/) now.",
        "<speak>Call <phoneme alphabet='ipa' ph='wˈɑts'>Watts</phoneme> now.</speak>",
        "<speak>Call <phoneme alphabet='x-arpabet' ph='W AA1 T S'>Watts</phoneme> now.</speak>",
    ],
)
def test_a_given_pronunciation_is_exact_whatever_its_notation(written: str) -> None:
    assert spoken(written, PhoneUse.GIVEN) == "Call {W AA1 T S} now."
    assert spoken(written, PhoneUse.NONE) == "Call wahts now."
    assert spoken(written, PhoneUse.KNOWN) == "{K AO1 L} {W AA1 T S} {N AW1}."


def test_a_model_of_letters_may_read_marks_of_intonation_alone() -> None:
    def read(written: str) -> str:
        [sentence] = read_text(written).sentences
        return read_aloud(sentence, Spelling.SIMPLE, PhoneUse.CONTOURS).text

    assert read("Is [Watts]{W AA1 T S} in?") == f"Is wahts in{RISING}?"
    assert read("Where is it?") == f"Where is it{FALLING}?"
    assert read("Is it in[falling]?") == f"Is it in{FALLING}?"
    assert read("It is in.") == "It is in."


def test_the_noun_and_the_verb_differ_in_stress() -> None:
    noun, verb = (spoken(f"[record]{{{phones}}}", PhoneUse.GIVEN) for phones in ("R EH1 K ER0 D", "R IH0 K AO1 R D"))
    assert noun == "{R EH1 K ER0 D}" and verb == "{R IH0 K AO1 R D}"


def test_every_token_stands_for_a_word_of_the_sentence_as_it_was() -> None:
    tokenizer = BPE.train(["a b"], 256 + len(SPECIAL_TOKENS), SPECIAL_TOKENS).with_special_tokens(PHONE_TOKENS)
    sentence = "Is Anna's old radio at the BBC?"
    read = read_aloud(sentence, Spelling.SIMPLE, PhoneUse.KNOWN)
    assert RISING in read.text
    string = f"<|startoftext|>{read.text}<|endoftext|>"
    ids, offsets = tokenizer.encode_with_offsets(string)
    spans = np.array(read.original_spans(sentence_spans(string, read.text, offsets)))
    assert len(ids) == len(spans) and ids[1] >= tokenizer.vocab_size - len(PHONE_TOKENS)
    covered = {place for start, end in spans if start >= 0 for place in range(start, end)}
    letters = {place for place, character in enumerate(sentence) if character.isalpha()}
    assert len(letters & covered) > 0.7 * len(letters)
    starts = spans[spans[:, 0] >= 0, 0]
    assert (np.diff(starts) >= 0).all()


def test_characters_of_phones_in_a_text_are_no_phones() -> None:
    assert spoken(f"Call {PHONE_TOKENS[0]}{RISING} now.", PhoneUse.GIVEN) == "Call now."
