"""Other letters for words that a model misreads."""

from __future__ import annotations

import pytest

from marstts.errors import ConfigError
from marstts.mars6.bundled import parse_settings
from marstts.mars6.spelling import Respellings, SpelledText, Spelling, read_aloud
from marstts.text.phones import CHARACTERS, PAIR_LETTERS, PAIR_TOKENS, PHONES, RISING, as_phones
from marstts.text.pronunciation.words import PhoneUse
from marstts.text.reading import read_text

RESPELLINGS: Respellings = {
    "michael": "mykle", "diane": "dyan", "reilly": "riley",
    "record": {"noun": "wreckerd", "verb": "re-cord"}, "use": {"verb": "yooz"},
}  # fmt: skip


def spelled(written: str, use: PhoneUse = PhoneUse.CONTOURS) -> SpelledText:
    """The only sentence of a text."""
    [sentence] = read_text(written).sentences
    return read_aloud(sentence, Spelling.SIMPLE, use, RESPELLINGS)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Is Michael here?", f"Is Mykle here{RISING}?"), ("MICHAEL'S dog saw diane.", "Mykle's dog saw dyan."),
        ("Michaels and Diana met.", "Michaels and Diana met."), ("O'Reilly met Reilly.", "O'Reilly met Riley."),
        ("Call [Michael]{M IH1 K}.", "Call mik."),
        ("'Michael came,' she said to 'Diane'.", "'Mykle came,' she said to 'Dyan'."),
    ],
)  # fmt: skip
def test_words_keep_capitals_and_possessives_and_what_a_user_gave(written: str, read: str) -> None:
    assert spelled(written).text == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("The record was broken.", "The wreckerd was broken."), ("We will record it.", "We will re-cord it."),
        ("My RECORDS are here.", "My wreckerds are here."), ("She records them.", "She re-cords them."),
        ("The record's end.", "The wreckerd's end."), ("Her Record won.", "Her Wreckerd won."),
        ("We use it.", "We yooz it."), ("It is of use.", "It is of use."), ("She uses it.", "She uses it."),
        ("People record it.", "People re-cord it."), ("Record it.", "Re-cord it."),
        ("I recorded it.", "I recorded it."),
        ("The [record]{R IH0 K AO1 R D} ends.", "The rikawrd ends."),
    ],
)  # fmt: skip
def test_letters_of_a_heteronym_are_those_of_its_use(written: str, read: str) -> None:
    """Where an "s" would be a syllable, it keeps its own."""
    assert spelled(written).text == read


@pytest.mark.parametrize(
    ("written", "letters"),
    [
        ("Is Michael here?", "is mykle here"), ("MICHAEL'S dog saw diane.", "mykle's dog saw dyan"),
        ("We will record it.", "we will re-cord it"), ("People record it.", "people re-cord it"),
    ],
)  # fmt: skip
def test_letters_with_phones_are_the_other_letters_with_the_phones_of_the_word(written: str, letters: str) -> None:
    found = spelled(written, PhoneUse.GRAPHONES).text
    pairs = [character for character in found if character in PAIR_TOKENS]
    read = "".join(PAIR_LETTERS[PAIR_TOKENS.index(pair) // (len(PHONES) + 1)] for pair in pairs)
    others = "".join(one for one in found if one.isascii() and one.isalpha())
    assert sorted(read + others.lower()) == sorted(letters.replace(" ", "").replace("-", ""))
    plain = read_aloud(read_text(written).sentences[0], Spelling.SIMPLE, PhoneUse.GRAPHONES, {}).text
    assert phones_said(found) == phones_said(plain)


def phones_said(text: str) -> list[str]:
    """The phones of letters with phones, and phones alone, in order."""
    numbers = [PAIR_TOKENS.index(one) % (len(PHONES) + 1) if one in PAIR_TOKENS else one for one in text]
    with_phone = [PHONES[one] if isinstance(one, int) and one < len(PHONES) else one for one in numbers]
    return [one if one in PHONES else as_phones(one)[0] for one in with_phone if one in PHONES or is_alone(one)]


def is_alone(one: object) -> bool:
    """Whether it is a phone, and no mark of intonation."""
    return isinstance(one, str) and one in CHARACTERS.values()


def test_spans_are_those_of_the_sentence_as_it_was() -> None:
    found = spelled("We saw Diane's cat.")
    first = found.text.index("Dyan")
    [(start, end)] = found.original_spans([(first, first + 4)])
    assert start == 7 and end in (11, 12)
    assert found.original_spans([(found.text.index("cat"), len(found.text))]) == [(15, 19)]
    assert len(found.places) == len(found.text) + 1


@pytest.mark.parametrize(
    "respellings",
    [
        {"Ann": "an"}, {"ann": ""}, {"ann": "a\nn"}, {"ann": "é"}, {"": "ann"},
        {"record": {"adverb": "record"}}, {"record": {"noun": "a b"}}, {"record": ["wreckerd"]},
    ],
)  # fmt: skip
def test_respellings_that_are_no_words_are_refused(respellings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="respellings"):
        parse_settings({"respellings": respellings}, "bundle.json: settings")
