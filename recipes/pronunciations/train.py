"""Train the letter-to-sound model on the pronunciation table.

Usage: python recipes/pronunciations/train.py OUTPUT [--without WORDS]
    OUTPUT: letters_to_sounds.npz.  WORDS: a file of words, one a line, which are not trained on but scored.
A joint-sequence model (M. Bisani and H. Ney, 2008): words are aligned with their phones by expectation maximization
over graphones; n-grams of graphones are smoothed by Kneser-Ney (interpolated, one discount for each order); n-grams
that occur once are left out of the higher orders. Some minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marstts.text.pronunciation.dictionary import entries
from marstts.text.pronunciation.letters_to_sounds import END, ID_BITS, START, GraphoneModel, read_model, search

ORDER = 6
SHAPES = ((1, 1), (1, 0), (1, 2), (2, 1), (2, 2), (1, 3))
"""Letters and phones of a graphone."""

FEWEST = (1, 1, 1, 2, 2, 2)
"""Occurrences from which on an n-gram of each order is kept."""

SCALE = 1 / 16
"""Step of the stored logarithms."""

Graphone = tuple[str, tuple[str, ...]]
Word = tuple[str, tuple[str, ...]]


def aligned(words: Sequence[Word], rounds: int = 4, sample: int = 25_000) -> list[list[Graphone]]:
    """The best sequence of graphones of each word; words without one are left out."""
    probs: dict[Graphone, float] = {}
    step = max(1, len(words) // sample)
    for _ in range(rounds):
        counts: Counter[Graphone] = Counter()
        for path in (best_path(word, probs) for word in words[::step]):
            counts.update(path)
        total = sum(counts.values())
        probs = {graphone: count / total for graphone, count in counts.items() if count > 1}
    return [path for path in (best_path(word, probs) for word in words) if path]


def best_path(word: Word, probs: dict[Graphone, float]) -> list[Graphone]:
    """The most probable graphones of a word, by dynamic programming; empty where there are none."""
    letters, phones = word
    best: dict[tuple[int, int], tuple[float, tuple[int, int] | None, Graphone | None]] = {(0, 0): (0.0, None, None)}
    for i in range(len(letters)):
        for j in range(len(phones) + 1):
            here = best.get((i, j))
            if here is None:
                continue
            for num_letters, num_phones in SHAPES:
                to = (i + num_letters, j + num_phones)
                if to[0] > len(letters) or to[1] > len(phones):
                    continue
                graphone = (letters[i : to[0]], phones[j : to[1]])
                score = here[0] + cost(graphone, probs)
                if to not in best or score < best[to][0]:
                    best[to] = (score, (i, j), graphone)
    place: tuple[int, int] | None = (len(letters), len(phones))
    path: list[Graphone] = []
    while place is not None and place in best:
        before = best[place]
        place = before[1]
        if before[2] is not None:
            path.append(before[2])
    return path[::-1] if place is None else []


VOWEL_LETTERS = frozenset("aeiouy")


def cost(graphone: Graphone, probs: dict[Graphone, float]) -> float:
    """Negative log probability; before the first round, letters and phones of one kind fit, and odd shapes are rare."""
    if probs:
        return -math.log(probs[graphone]) if graphone in probs else 14.0 + 2 * len(graphone[0]) + len(graphone[1])
    letters, phones = graphone
    if len(letters) != 1 or len(phones) != 1:
        return 4.0 + len(letters) + len(phones)
    same_kind = (letters in VOWEL_LETTERS) == phones[0][-1].isdigit()
    return 1.0 if same_kind else 5.0


def ngrams_of(paths: Iterable[Sequence[int]]) -> list[Counter[tuple[int, ...]]]:
    """By order: counts of the n-grams of graphones, with the start and the end of words."""
    counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(ORDER)]
    for path in paths:
        row = (*([START] * (ORDER - 1)), *path, END)
        for last in range(ORDER - 1, len(row)):
            for order in range(1, ORDER + 1):
                counts[order - 1][row[last - order + 1 : last + 1]] += 1
    return counts


def smoothed(counts: list[Counter[tuple[int, ...]]]) -> tuple[list[dict], list[dict]]:
    """Probabilities and back-off weights of the kept n-grams, by order (interpolated Kneser-Ney)."""
    probs: list[dict[tuple[int, ...], float]] = []
    backoffs: list[dict[tuple[int, ...], float]] = []
    for order in range(1, ORDER + 1):
        used: Counter[tuple[int, ...]] = counts[order - 1]
        if (
            order < ORDER
        ):  # lower orders count the different graphones before an n-gram; those after a start keep theirs
            used = Counter(gram[1:] for gram in counts[order])
            used.update({gram: count for gram, count in counts[order - 1].items() if gram[0] == START and order > 1})
        ones, twos = (sum(count == number for count in used.values()) for number in (1, 2))
        discount = ones / (ones + 2 * twos)
        totals: Counter[tuple[int, ...]] = Counter()
        kinds: Counter[tuple[int, ...]] = Counter()
        for gram, count in used.items():
            totals[gram[:-1]] += count
            kinds[gram[:-1]] += 1
        weights = {history: discount * kinds[history] / totals[history] for history in totals}
        lower = probs[-1] if probs else None
        found = {}
        for gram, count in used.items():
            below = prob_of(gram[1:], probs, backoffs) if lower is not None else 1 / len(used)
            found[gram] = max(count - discount, 0) / totals[gram[:-1]] + weights[gram[:-1]] * below
        kept = {gram: prob for gram, prob in found.items() if used[gram] >= FEWEST[order - 1] or order == 1}
        if probs:
            backoffs.append(renormalized(kept, probs, backoffs))
        probs.append(kept)
    backoffs.append({})
    return probs, backoffs


def renormalized(kept: dict, probs: list[dict], backoffs: list[dict]) -> dict[tuple[int, ...], float]:
    """The back-off weight of each history, so that its probabilities have the sum 1."""
    own: dict[tuple[int, ...], float] = defaultdict(float)
    below: dict[tuple[int, ...], float] = defaultdict(float)
    for gram, prob in kept.items():
        own[gram[:-1]] += prob
        below[gram[:-1]] += prob_of(gram[1:], probs, backoffs)
    return {history: max(1e-4, 1 - own[history]) / max(1e-4, 1 - below[history]) for history in own if history} | (
        {(): max(1e-4, 1 - own[()])} if () in own else {}
    )


def prob_of(gram: tuple[int, ...], probs: list[dict], backoffs: list[dict]) -> float:
    """The probability of the last graphone of an n-gram by the orders that are there."""
    weight = 1.0
    while gram:
        if gram in probs[len(gram) - 1]:
            return weight * probs[len(gram) - 1][gram]
        if len(gram) > 1 and len(gram) - 2 < len(backoffs):
            weight *= backoffs[len(gram) - 2].get(gram[:-1], 1.0)
        gram = gram[1:]
    return 1e-9


def key_of(gram: tuple[int, ...]) -> int:
    """The number that stands for an n-gram."""
    key = 0
    for number in gram:
        key = key << ID_BITS | number
    return key


def write_model(path: Path, graphones: list[Graphone], probs: list[dict], backoffs: list[dict]) -> None:
    """Store the model: keys as differences, logarithms in steps of `SCALE` in a byte each, compressed."""
    arrays: dict[str, Any] = {"scale": np.float32(SCALE)}
    rows = ["\t", "\t", *(f"{letters}\t{' '.join(phones)}" for letters, phones in graphones)]
    arrays["graphones"] = np.frombuffer("\n".join(rows).encode("ascii"), np.uint8)
    for order in range(1, ORDER + 1):
        grams = sorted(probs[order - 1], key=key_of)
        keys = np.array([key_of(gram) for gram in grams], np.uint64)
        arrays[f"gaps{order}"] = np.diff(keys, prepend=np.uint64(0))
        logs = np.array([-math.log(probs[order - 1][gram]) / SCALE for gram in grams])
        arrays[f"log_probs{order}"] = np.clip(np.round(logs), 0, 255).astype(np.uint8)
        weights = backoffs[order - 1] if order < ORDER else {}
        logs = np.array([-math.log(weights.get(gram, 1.0)) / SCALE + 128 for gram in grams])
        arrays[f"backoffs{order}"] = np.clip(np.round(logs), 0, 255).astype(np.uint8)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def word_errors(model: GraphoneModel, words: Sequence[Word]) -> dict[str, float]:
    """Ratio of words with a wrong phone, with stress and without it."""
    plain = lambda phones: [phone.rstrip("012") for phone in phones]  # noqa: E731
    wrong = without = 0
    for word, phones in words:
        found = search(model, word) or ()
        wrong += found != phones
        without += plain(found) != plain(phones)
    return {"words": len(words), "word_errors": wrong / len(words), "without_stress": without / len(words)}


def main() -> None:
    """Train, score the words that were left out, and write the model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--without", type=Path)
    options = parser.parse_args()
    left_out = set(options.without.read_text().split()) if options.without else set()
    words = [(word, phones) for word, phones in entries() if 1 < len(word) <= 30 and word not in left_out]
    paths = aligned(words)
    common = Counter(graphone for path in paths for graphone in path)
    graphones = [graphone for graphone, count in common.most_common(2**ID_BITS - 2) if count > 1]
    number = {graphone: place + 2 for place, graphone in enumerate(graphones)}
    known = [[number[graphone] for graphone in path] for path in paths if all(each in number for each in path)]
    probs, backoffs = smoothed(ngrams_of(known))
    write_model(options.output, graphones, probs, backoffs)
    report = {"trained_on": len(known), "graphones": len(graphones), "n_grams": [len(each) for each in probs]}
    model = read_model(options.output)
    scored = [(word, phones) for word, phones in entries() if word in left_out]
    print(json.dumps(report | (word_errors(model, scored) if scored else {})))


if __name__ == "__main__":
    main()
