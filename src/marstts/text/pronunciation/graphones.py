"""Words as graphones: each letter with the phone that it is said with, or silent.

Upstream: pronunciations (`words`); the n-gram model of `letters_to_sounds`, which aligns letters with phones.
Downstream: `words`, for models that read letters and phones together; `mixing` (training).
A model that was trained on letters reads a letter with a phone as that letter and a hint: it keeps what it knows of
common words, and need not guess how rare ones are said. A word keeps its letters, so character spans stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from marstts.text.phones import CHARACTERS, PAIR_LETTERS, letter_with_phone
from marstts.text.pronunciation.letters_to_sounds import (
    END,
    ID_BITS,
    MAX_LETTERS,
    START,
    graphones_by_letters,
    packaged_model,
)

Graphone = tuple[str, tuple[str, ...]]
"""One or two letters, and the phones that they are said with: none to three."""

BEAM = 6
"""Best partial sequences that are kept for each number of letters and phones."""


@lru_cache(maxsize=4096)
def graphones_of(word: str, phones: tuple[str, ...]) -> tuple[Graphone, ...]:
    """The graphones of a word of letters and apostrophes, in any case, that is said with these phones.

    They are the likeliest ones of the letter-to-sound model; phones that it never has with such letters are spread
    over the letters evenly.
    """
    return aligned(word.lower(), phones) or spread(word.lower(), phones)


def aligned(word: str, phones: tuple[str, ...]) -> tuple[Graphone, ...] | None:
    """The likeliest sequence of graphones with these letters and phones; None where the model has none."""
    if not 0 < len(word) <= MAX_LETTERS:
        return None
    model = packaged_model()
    mask = (1 << ID_BITS * (model.order - 1)) - 1
    by_letters = graphones_by_letters(model)
    # by letters and phones read so far: log probability, history, and the graphones of each kept sequence
    reached: dict[tuple[int, int], list[tuple[float, int, tuple[int, ...]]]] = {(0, 0): [(0.0, START, ())]}
    for place in range(len(word)):
        for said in range(len(phones) + 1):
            best = sorted(reached.get((place, said), ()), key=lambda each: -each[0])[:BEAM]
            known = [model.following(history) for _, history, _ in best]
            for size in range(1, min(2, len(word) - place) + 1):
                for number in by_letters.get(word[place : place + size], ()):
                    sounds = model.phones[number]
                    if not best or phones[said : said + len(sounds)] != sounds:
                        continue
                    reached.setdefault((place + size, said + len(sounds)), []).extend(
                        (log_prob + model.score(each, number), (history << ID_BITS | number) & mask, (*path, number))
                        for (log_prob, history, path), each in zip(best, known, strict=True)
                    )
    ends = reached.get((len(word), len(phones)))
    if not ends:
        return None
    _, _, sequence = max(ends, key=lambda each: each[0] + model.score(model.following(each[1]), END))
    return tuple((model.letters[number], model.phones[number]) for number in sequence)


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
