"""The pronunciation table of the package, and texts whose words are phones."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.text.phones import PHONES, as_characters, as_phones, readable, without_phones
from marstts.text.pronunciation.dictionary import entries, look_up
from marstts.text.pronunciation.letters_to_sounds import guess
from marstts.text.pronunciation.mixing import PhoneMixingConfig, mix_phones
from marstts.text.pronunciation.words import PhoneUse, known_phones, phone_words


@pytest.mark.parametrize(
    ("word", "phones"),
    [("Watts", "W AA1 T S"), ("BEAUCHAMP", "B OW1 SH AA2 M P"), ("don't", "D OW1 N T"), ("nguyen", "N UW0 Y EH1 N")],
)
def test_names_and_words_have_their_phones_in_any_case(word: str, phones: str) -> None:
    found = look_up(word)
    assert found is not None and found.phones == tuple(phones.split())


@pytest.mark.parametrize("word", ["", "zzyzxq", "wat", "é", "a\nb", "a\tb", "watts\tW"])
def test_only_whole_words_are_found(word: str) -> None:
    found = look_up(word)
    assert found is None or word == "wat"


@pytest.mark.parametrize("word", ["record", "live", "close", "wind", "bow", "tear", "object", "produce"])
def test_heteronyms_depend_on_the_context(word: str) -> None:
    found = look_up(word)
    assert found is not None and found.depends_on_context


@pytest.mark.parametrize(
    ("word", "ending"), [("Beauchamp's", "S"), ("zebra's", "Z"), ("Beauchamps", "S"), ("Voss's", "IH0 Z")]
)
def test_plurals_and_possessives_end_as_english_does(word: str, ending: str) -> None:
    found = known_phones(word)
    assert found is not None and " ".join(found.phones).endswith(ending)


def test_every_entry_consists_of_the_phones_of_the_vocabulary() -> None:
    words = dict(entries())
    assert len(words) > 150_000
    assert {phone for phones in words.values() for phone in phones} <= set(PHONES)


def test_every_word_is_found_where_it_is_and_no_other_one() -> None:
    words = dict(entries())
    assert list(words) == sorted(words)
    for word in [*list(words)[:3], *list(words)[-3:], *list(words)[:: len(words) // 500]]:
        found = look_up(word)
        assert found is not None and found.phones == words[word]
        assert (look_up(word[:-1]) is not None) == (word[:-1] in words)
        assert (look_up(word + "q") is not None) == (word + "q" in words)


def test_phones_survive_their_characters() -> None:
    assert as_phones(as_characters(PHONES)) == list(PHONES)
    assert readable(f"Doctor {as_characters(['W', 'AA1', 'T', 'S'])}.") == "Doctor {W AA1 T S}."
    assert without_phones(as_characters(PHONES) + "é") == "é"


def test_words_are_replaced_in_their_places() -> None:
    text = f"Anna's {as_characters(['K', 'AE1', 'T'])}'s used, don't!"
    found = [(text[word.start : word.end], readable(word.characters)) for word in phone_words(text, PhoneUse.KNOWN)]
    assert [written for written, _ in found] == ["Anna's", text[7:12], "don't"]  # letters: no use decides
    assert [said for _, said in found] == ["{AE1 N AH0 Z}", "{K AE1 T S}", "{D OW1 N T}"]
    assert [text[word.start : word.end] for word in phone_words(text, PhoneUse.GIVEN)] == [text[7:12]]


def test_training_texts_mix_letters_and_phones_word_by_word() -> None:
    text = "The quiet engineer repaired seven old radios on Monday."
    kinds = {"letters": 0, "phones": 0, "mixed": 0}
    for seed in range(300):
        mixed = mix_phones(text, PhoneMixingConfig(), np.random.default_rng(seed))
        words = mixed.rstrip(".").split(" ")
        letters = sum(word.isascii() for word in words)
        kinds["letters" if letters == len(words) else "phones" if not letters else "mixed"] += 1
        assert mixed.endswith(".") and len(words) == len(text.split())
    assert 25 < kinds["letters"] < 75 and 25 < kinds["phones"] < 75  # 15 % each
    assert mix_phones(text, PhoneMixingConfig(), np.random.default_rng(1)) == mix_phones(
        text, PhoneMixingConfig(), np.random.default_rng(1)
    )


@pytest.mark.parametrize(
    ("word", "sounds"),
    [("Zorbano", "Z AO1 R B AA1 N OW0"), ("blickert", "B L IH1 K ER0 T"), ("Starkleton", "S T AA1 R K")],
)
def test_words_of_no_dictionary_are_read_by_their_letters(word: str, sounds: str) -> None:
    assert look_up(word) is None
    found = " ".join(phone.rstrip("012") for phone in guess(word) or ())
    wanted = " ".join(phone.rstrip("012") for phone in sounds.split())
    assert found[: len(wanted) // 2] == wanted[: len(wanted) // 2]


@pytest.mark.parametrize("word", ["", "x" * 31, "naïve", "42"])
def test_what_is_no_word_of_letters_has_no_guess(word: str) -> None:
    assert guess(word) is None
