"""Words as graphones: each letter with the phone that it is said with, or silent.

Upstream: pronunciations (`words`); the n-gram model of `letters_to_sounds`, which aligns letters with phones.
Downstream: `words`, for models that read letters and phones together; `mixing` (training).
A model that was trained on letters reads a letter with a phone as that letter and a hint: it keeps what it knows of
common words, and need not guess how rare ones are said. A word keeps its letters, so character spans stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import product

from marstts.text.phones import CHARACTERS, PAIR_LETTERS, letter_with_phone
from marstts.text.pronunciation.letters_to_sounds import (
    ID_BITS,
    MAX_LETTERS,
    START,
    packaged_model,
)

Graphone = tuple[str, tuple[str, ...]]
"""One or two letters, and the phones that they are said with: none to three."""

MAX_PHONES = 3
"""Of a graphone."""


@lru_cache(maxsize=4096)
def graphones_of(word: str, phones: tuple[str, ...]) -> tuple[Graphone, ...]:
    """The graphones of a word of letters and apostrophes, in any case, that is said with these phones.

    They are the likeliest ones of the letter-to-sound model; phones that it never has with such letters are spread
    over the letters evenly.
    """
    return aligned(word.lower(), phones) or spread(word.lower(), phones)


def aligned(word: str, phones: tuple[str, ...]) -> tuple[Graphone, ...] | None:
    """The likeliest sequence of graphones with these letters and phones; None where the model has none.

    Of the sequences that say as many phones with as many letters, only the likeliest is followed.
    """
    if not 0 < len(word) <= MAX_LETTERS:
        return None
    model = packaged_model()
    mask = (1 << ID_BITS * (model.order - 1)) - 1
    steps = steps_to_end(word, phones)
    # by letters and phones read so far: log probability, history, and the graphones
    reached: dict[tuple[int, int], tuple[float, int, tuple[int, ...]]] = {(0, 0): (0.0, START, ())}
    for place, following_steps in sorted(steps.items()):
        if place not in reached:
            continue
        log_prob, history, path = reached[place]
        following = model.following(history)
        for number, end in following_steps:
            score = log_prob + model.score(following, number)
            if end not in reached or reached[end][0] < score:
                reached[end] = score, (history << ID_BITS | number) & mask, (*path, number)
    if (len(word), len(phones)) not in reached:
        return None
    _, _, sequence = reached[len(word), len(phones)]
    return tuple((model.letters[number], model.phones[number]) for number in sequence)


def steps_to_end(word: str, phones: tuple[str, ...]) -> dict[tuple[int, int], list[tuple[int, tuple[int, int]]]]:
    """By letters and phones read so far: the graphones that may follow, and what is read then. No step is in vain."""
    numbers = graphone_numbers()
    steps: dict[tuple[int, int], list[tuple[int, tuple[int, int]]]] = {}
    for place in reversed(range(len(word))):
        for said in reversed(range(len(phones) + 1)):
            ends = product((place + 1, place + 2), range(said, min(said + MAX_PHONES, len(phones)) + 1))
            found = [
                (numbers[graphone], end)
                for end in ends
                if (end in steps or end == (len(word), len(phones)))
                and (graphone := (word[place : end[0]], phones[said : end[1]])) in numbers
            ]
            if found:
                steps[place, said] = found
    return steps


@cache
def graphone_numbers() -> dict[Graphone, int]:
    """The number of each graphone in the letter-to-sound model."""
    model = packaged_model()
    return {each: number for number, each in enumerate(zip(model.letters, model.phones, strict=True)) if each[0]}


def spread(word: str, phones: Sequence[str]) -> tuple[Graphone, ...]:
    """Letters one by one, with the phones in order, as many with each as with any other, or one more."""
    ends = [number * len(phones) // len(word) for number in range(len(word) + 1)]
    return tuple((letter, tuple(phones[ends[n] : ends[n + 1]])) for n, letter in enumerate(word))


def as_characters(graphones: Iterable[Graphone]) -> str:
    """One character for each letter, and one for each phone more than a graphone has letters."""
    characters: list[str] = []
    for letters, phones in graphones:
        for number, letter in enumerate(letters):
            phone = phones[number] if number < len(phones) else None
            characters.append(letter_with_phone(letter, phone) if letter in PAIR_LETTERS else letter)
        characters += (CHARACTERS[phone] for phone in phones[len(letters) :])
    return "".join(characters)
