"""Letters with the phones that they are said with."""

from __future__ import annotations

import random

import numpy as np
import pytest

from marstts.text.phones import PAIR_LETTERS, PAIR_TOKENS, PHONE_RUN, PHONES, as_phones, without_phones
from marstts.text.pronunciation.dictionary import entries
from marstts.text.pronunciation.graphones import as_characters, graphones_of
from marstts.text.pronunciation.letters_to_sounds import ID_BITS, START, graphones_by_letters, packaged_model
from marstts.text.pronunciation.mixing import PhoneMixingConfig, mix_phones, respelled
from marstts.text.pronunciation.words import PhoneUse, phone_words, phones_of

TEXT = "The quiet engineer repaired seven old radios on Monday."


def read(characters: str) -> list[tuple[str, str | None]]:
    """The letters and phones of characters; phones without a letter have an empty one."""
    found: list[tuple[str, str | None]] = []
    for character in characters:
        if PHONE_RUN.fullmatch(character):
            found.append(("", as_phones(character)[0]))
            continue
        letter, number = divmod(PAIR_TOKENS.index(character), len(PHONES) + 1)
        found.append((PAIR_LETTERS[letter], PHONES[number] if number < len(PHONES) else None))
    return found


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Knight", "k- nN iAY1 g- h- tT"),
        ("taxes", "tT aAE1 xK S eAH0 sZ"),
        ("unique", "uY UW0 nN iIY1 qK u- e-"),
        ("Don't", "dD oOW1 nN '- tT"),
    ],
)
def test_each_letter_has_its_phone_or_is_silent(word: str, expected: str) -> None:
    phones = phones_of(word)
    assert phones is not None
    found = read(as_characters(graphones_of(word, phones)))
    assert " ".join(f"{letter}{phone or '-'}" for letter, phone in found) == expected


def test_every_word_of_the_dictionary_keeps_its_letters_and_phones() -> None:
    for word, phones in random.Random(0).sample([pair for pair in entries() if pair[0].isalpha()], 400):
        found = read(as_characters(graphones_of(word, tuple(phones))))
        assert "".join(letter for letter, _ in found) == word.lower()
        assert tuple(phone for _, phone in found if phone) == tuple(phones)


def test_the_likeliest_alignment_is_found() -> None:
    model = packaged_model()
    mask = (1 << ID_BITS * (model.order - 1)) - 1

    def best(letters: str, sounds: tuple[str, ...], history: int) -> tuple[float, tuple[int, ...]]:
        """By trying every sequence of graphones."""
        if not letters:
            return (0.0 if not sounds else -np.inf), ()
        found = [(-np.inf, ())]
        following = model.following(history)
        for size in (1, 2):
            for number in graphones_by_letters(model).get(letters[:size], ()) if size <= len(letters) else ():
                said = model.phones[number]
                if sounds[: len(said)] == said:
                    rest, path = best(letters[size:], sounds[len(said) :], (history << ID_BITS | number) & mask)
                    found.append((model.score(following, number) + rest, (number, *path)))
        return max(found)

    words = [(word, tuple(said)) for word, said in entries() if word.isalpha() and 3 <= len(word) <= 7]
    same = []
    for word, phones in random.Random(2).sample(words, 150):
        log_prob, path = best(word, phones, START)
        if log_prob > -np.inf:
            expected = tuple((model.letters[number], model.phones[number]) for number in path)
            same.append(graphones_of(word, phones) == expected)
    assert len(same) > 140 and np.mean(same) > 0.97


def test_any_letters_can_have_any_phones() -> None:
    rng = random.Random(1)
    for _ in range(300):
        word = "".join(rng.choices("abcxyz'", k=rng.randint(1, 40)))
        phones = tuple(rng.choices(PHONES, k=rng.randint(1, 50)))
        found = read(as_characters(graphones_of(word, phones)))
        assert "".join(letter for letter, _ in found) == word
        assert tuple(phone for _, phone in found if phone) == phones


def test_words_are_graphones_in_their_places_and_given_pronunciations_phones() -> None:
    given = "\U0001bc0a"
    text = f"Anna's {given} used, Zyzzor."
    found = [(text[word.start : word.end], word.characters) for word in phone_words(text, PhoneUse.GRAPHONES)]
    assert [written for written, _ in found] == ["Anna's", given, "Zyzzor"]  # letters: no use decides
    assert found[1][1] == given
    assert all(len(said) >= len(written) and set(said) & set(PAIR_TOKENS) for written, said in found[::2])


def test_a_respelled_word_keeps_its_phones() -> None:
    word = graphones_of("engineer", phones_of("engineer") or ())
    spelled = set()
    for seed in range(40):
        found = respelled(word, np.random.default_rng(seed))
        assert [phone for _, phones in found for phone in phones] == [phone for _, phones in word for phone in phones]
        spelled.add("".join(letters for letters, _ in found))
    assert len(spelled) > 20


def test_training_texts_have_letters_graphones_other_spellings_and_phones() -> None:
    config = PhoneMixingConfig(
        letters_probability=0.1, phones_probability=0.0, word_probability=0.8, graphone_probability=0.75
    )
    kinds = {"letters": 0, "graphones": 0, "other letters": 0, "phones": 0}
    for seed in range(200):
        mixed = mix_phones(TEXT, config, np.random.default_rng(seed))
        assert mixed.endswith(".") and mixed.count(" ") == TEXT.count(" ")
        for said, written in zip(mixed.rstrip(".").split(" "), TEXT.rstrip(".").split(" "), strict=True):
            if said == written:
                kinds["letters"] += 1
            elif PHONE_RUN.fullmatch(said):
                kinds["phones"] += 1
            else:
                letters = "".join(letter for letter, _ in read(said))
                kinds["graphones" if letters == written.lower() else "other letters"] += 1
    count = sum(kinds.values())
    for kind, share in (("letters", 0.28), ("graphones", 0.27), ("other letters", 0.27), ("phones", 0.18)):
        assert abs(kinds[kind] / count - share) < 0.06, kinds
    assert mix_phones(TEXT, config, np.random.default_rng(1)) == mix_phones(TEXT, config, np.random.default_rng(1))


def test_no_text_has_letters_with_phones_already() -> None:
    assert without_phones(f"a{PAIR_TOKENS[0]}{PAIR_TOKENS[-1]}b") == "ab"
