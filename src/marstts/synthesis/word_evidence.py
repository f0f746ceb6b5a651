"""Word evidence: how likely each word of a text was left out of a take, by the attention and the sound of its letters.

Upstream: a take's tokens and its attention to the text; a calibration (`word_calibration`), a file of the bundle.
Downstream: `omissions`, which asks the model about the words that are most suspicious.
A table says which letters the first token of a patch sounds like, a linear recognizer of letters. A letter has
evidence where a step attends to it and sounds like it. Attention and evidence of windows of the text, compared with
what is usual, are the features of a perceptron with one hidden layer: its value is the suspicion of a word.
Shapes: T patches · S text tokens · W words · C patches of context · N letters · K places · F features · H hidden units.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from marstts.errors import CheckpointError
from marstts.io.file_errors import printable_name
from marstts.io.files import write_file
from marstts.io.reading import read_regular_file
from marstts.synthesis.attention_path import SentencePlaces

CALIBRATION_FILE = "words.safetensors"
"""File in the folder of a bundle; a bundle without it has no word evidence."""

FORMAT_VERSION = 2
MAX_CALIBRATION_BYTES = 2**26

NUM_LETTERS = 28
"""Silence (spaces, apostrophes and hyphens), 26 letters, and everything else."""

CONTEXT = (-1, 0, 1)
"""Patches around a step whose first tokens are looked up."""

OFFSETS, TABLES = np.array(CONTEXT)[:, None], np.arange(len(CONTEXT))[:, None]
"""(C, 1) the same, and the number of the table of each."""

WINDOWS = (3, 5, 7, 9)
"""Text tokens that are looked at together."""

UNEVEN = 0.2
"""Added to the sum of letter scores before they are divided by it: little of everything is no evidence."""

MIN_RATIO = 0.05
NUM_FEATURES = 4 * (2 * len(WINDOWS)) + 6


@dataclass(frozen=True, eq=False, kw_only=True)
class WordCalibration:
    """Usual attention and evidence in sound takes of a model, and the weights of features."""

    codec: str
    """Name of the codec whose tokens the table knows."""

    table: NDArray[np.int8]
    """(C, codes + 1, N) scores of letters; the last code, zeros, stands for a patch that is not there."""

    scale: float
    """Scale of the table."""

    letters: NDArray[np.float32]
    """(N,) mean share of each letter, added to the scores."""

    attention: NDArray[np.float32]
    """(N,) steps of attention that a token of each letter usually gets."""

    evidence: NDArray[np.float32]
    """(N,) evidence that it usually gets."""

    hidden: NDArray[np.float32]
    """(F + 1, H) weights of the hidden layer, the last row for its constants."""

    output: NDArray[np.float32]
    """(H + 1,) weights of the result, the last one for its constant."""

    def letter_scores(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """tokens (T, P) -> (T, N), from 0 to 1: which letters each patch sounds like."""
        missing, edge = self.table.shape[1] - 1, max(CONTEXT)
        padded = np.full(len(tokens) + 2 * edge, missing)
        padded[edge : edge + len(tokens)] = np.minimum(tokens[:, 0], missing)
        around = padded[np.arange(edge, edge + len(tokens)) + OFFSETS]  # (C, T)
        votes = self.table[TABLES, around].sum(axis=0, dtype=np.float32)
        scores = np.minimum(np.maximum(self.letters + self.scale * votes, 0.0), 1.0)
        return scores / (scores.sum(axis=1, keepdims=True) + UNEVEN)

    @cached_property
    def usual(self) -> NDArray[np.float32]:
        """(N, 2) usual attention and evidence."""
        return np.stack([self.attention, self.evidence], axis=1)

    def suspicions(
        self,
        places: SentencePlaces,
        attention: NDArray[np.float32],
        tokens: NDArray[np.int64],
        path: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """attention (T or more, S or more) of the steps, tokens (T, P) -> (W,) log odds that a word was left out.

        path (T or more,): the place of each step.
        """
        features = word_features(self, places, attention, tokens, path)
        units = np.maximum(features @ self.hidden[:-1] + self.hidden[-1], 0.0)
        return units @ self.output[:-1] + self.output[-1]

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        arrays: dict[str, NDArray[Any]] = {
            "table": self.table, "letters": self.letters, "attention": self.attention, "evidence": self.evidence,
            "hidden": self.hidden, "output": self.output, "scale": np.array([self.scale], np.float32),
        }  # fmt: skip
        header = {"words": json.dumps({"format_version": FORMAT_VERSION, "codec": self.codec})}
        write_file(path, safetensors.numpy.save(arrays, metadata=header), CheckpointError)


def load_calibration(folder: Path, codec: str) -> WordCalibration | None:
    """The calibration in the folder of a bundle; None where there is none.

    Raises CheckpointError where the file is corrupt or was made for another codec.
    """
    path = folder / CALIBRATION_FILE
    if not path.exists():
        return None
    content = read_regular_file(path, MAX_CALIBRATION_BYTES, CheckpointError)
    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["words"])
        arrays = safetensors.numpy.load(content)
        values = {name: arrays[name] for name in ("table", "letters", "attention", "evidence", "hidden", "output")}
        made = WordCalibration(codec=str(header["codec"]), scale=float(arrays["scale"][0]), **values)
        fits = header["format_version"] == FORMAT_VERSION and has_known_shapes(made)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise wrong_calibration(path) from error
    if not fits:
        raise wrong_calibration(path)
    if made.codec != codec:
        raise CheckpointError(
            f"{printable_name(path)}: was made for the codec {made.codec[:40]!r}, but this bundle has {codec!r}; write "
            "it anew with `marstts bundle calibrate`"
        )
    return made


def has_known_shapes(made: WordCalibration) -> bool:
    """Return True where all arrays have the shapes and types of this version and are finite."""
    units, table = made.hidden.shape[-1], made.table
    shapes = (NUM_LETTERS,), (NUM_LETTERS,), (NUM_LETTERS,), (NUM_FEATURES + 1, units), (units + 1,)
    arrays = made.letters, made.attention, made.evidence, made.hidden, made.output
    return (
        tuple(array.shape for array in arrays) == shapes
        and all(array.dtype == np.float32 and bool(np.isfinite(array).all()) for array in arrays)
        and (table.dtype, table.ndim, table.shape[0], table.shape[2:]) == (np.int8, 3, len(CONTEXT), (NUM_LETTERS,))
        and bool(np.isfinite(made.scale))
    )


def wrong_calibration(path: Path) -> CheckpointError:
    """The error for a file that is corrupt or of another version."""
    return CheckpointError(
        f"{printable_name(path)}: expected a calibration of words of format {FORMAT_VERSION}; write it anew with "
        "`marstts bundle calibrate`"
    )


def letter_number(character: str) -> int:
    """0 for what is silent within a text, 1 to 26 for letters, 27 for all else."""
    number = ord(character.lower()[0]) - ord("a") + 1
    if 1 <= number < NUM_LETTERS - 1:
        return number
    return 0 if character in " '-" else NUM_LETTERS - 1


LETTERS_OF_ASCII = np.array([letter_number(chr(code)) for code in range(128)], np.int64)


def letter_numbers(sentence: str) -> NDArray[np.int64]:
    """(characters,) numbers of all its characters."""
    if sentence.isascii():
        return LETTERS_OF_ASCII[np.frombuffer(sentence.encode("ascii"), np.uint8)]
    return np.array([letter_number(character) for character in sentence], np.int64)


@lru_cache(maxsize=4096)
def letters_of(piece: str) -> bytes:
    """(N,) letters of a piece of text, divided by their number, as bytes of float32."""
    return (np.bincount(letter_numbers(piece), minlength=NUM_LETTERS) / max(len(piece), 1)).astype(np.float32).tobytes()


SILENCE, ALL_ELSE = (np.eye(NUM_LETTERS, dtype=np.float32)[number].tobytes() for number in (0, NUM_LETTERS - 1))


def token_letters(places: SentencePlaces) -> NDArray[np.float32]:
    """(S, N) letters of each text token, divided by their number; silence before the sentence, all else after it."""
    rows, outside = [], SILENCE
    for start, end in places.spans.tolist():
        if start >= 0:
            rows.append(letters_of(places.sentence[start:end]))
            outside = ALL_ELSE
        else:
            rows.append(outside)
    return np.frombuffer(b"".join(rows), np.float32).reshape(-1, NUM_LETTERS)


def token_evidence(
    calibration: WordCalibration,
    letters: NDArray[np.float32],
    attention: NDArray[np.float32],
    tokens: NDArray[np.int64],
) -> NDArray[np.float32]:
    """letters (S, N), attention (T or more, S), tokens (T, P) -> (T, S) evidence of each step for each text token."""
    sounding = calibration.letter_scores(tokens) @ letters.T  # (T, S)
    steps = min(len(sounding), len(attention))
    return attention[:steps] * sounding[:steps]


def word_features(
    calibration: WordCalibration,
    places: SentencePlaces,
    attention: NDArray[np.float32],
    tokens: NDArray[np.int64],
    path: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return (W, F): how attention and evidence around each word compare with what is usual.

    attention (T or more, S or more), tokens (T, P), path (T or more,), see `WordCalibration.suspicions`.
    """
    attention, letters = attention[:, : len(places.spans)], token_letters(places)
    evidence = token_evidence(calibration, letters, attention, tokens)
    words = [places.places[word] for word in places.words]
    begins, ends, sizes = np.array([(word.start, word.end, word.num_letters) for word in words]).reshape(-1, 3).T
    inside = np.flatnonzero(places.spans[:, 0] >= 0)
    starts = places.spans[inside, 0]
    is_member = (starts >= np.maximum(0, begins - 1)[:, None]) & (starts < ends[:, None])  # (W, tokens inside)
    members = is_member.astype(np.float32)
    found = np.stack([attention.sum(axis=0), evidence.sum(axis=0)], axis=1)[inside]
    expected = letters[inside] @ calibration.usual
    expected = expected * np.maximum(found.sum(axis=0) / np.maximum(expected.sum(axis=0), 1e-6), (1e-6, 0.3))
    least = least_shares(found, expected, is_member)
    own = members @ found[:, 1] / np.maximum(members @ expected[:, 1].astype(np.float32), MIN_RATIO)
    neighbors = np.zeros((2, *least.shape))
    neighbors[0, 1:], neighbors[1, :-1] = np.minimum(least[:-1], 0.0), np.minimum(least[1:], 0.0)
    steps = np.sort(attention[:, inside] @ members.T, axis=0)  # (T, W) attention to each word, the most of it last
    singles = own + UNEVEN, least_match(attention, evidence, path, places.words) + MIN_RATIO
    return np.concatenate(
        [
            least, *neighbors,
            least.min(axis=0, initial=0.0)[None].repeat(len(words), axis=0),
            np.log(np.stack(singles, axis=1)),
            np.stack([sizes / 5.0, steps[-1], steps[-2:].sum(axis=0), steps.sum(axis=0) / (sizes + 1.0)], axis=1),
        ],
        axis=1,
    )  # fmt: skip


def least_shares(
    found: NDArray[np.float32], expected: NDArray[np.float32], members: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """found, expected (tokens, 2), members (W, tokens) -> (W, 2 x windows).

    Logarithms of the least share that windows around the tokens of a word got of what was expected.
    """
    number = len(found)
    sums = np.zeros((number + 1, 4))
    sums[1:] = np.concatenate([found, expected], axis=1).cumsum(axis=0)
    places, half = np.arange(number)[:, None], np.array(WINDOWS) // 2
    window = sums[np.minimum(places + half + 1, number)] - sums[np.maximum(places - half, 0)]  # (tokens, windows, 4)
    ratios = np.full((number + 1, 2, len(WINDOWS)), np.inf)
    ratios[:number] = (window[:, :, :2] / np.maximum(window[:, :, 2:], 1e-6)).swapaxes(1, 2)
    sizes, first = members.sum(axis=1), members.argmax(axis=1) if number else np.zeros(len(members), np.int64)
    ranges = np.stack([first, first + sizes], axis=1).reshape(-1)  # the tokens of a word follow one another
    least = np.minimum.reduceat(ratios.reshape(number + 1, -1), ranges)[::2]
    return np.log(np.maximum(np.where((sizes > 0)[:, None], least, 1.0), MIN_RATIO))


def least_match(
    attention: NDArray[np.float32], evidence: NDArray[np.float32], path: NDArray[np.int64], words: Sequence[int]
) -> NDArray[np.float64]:
    """(W,) the least share of its attention that a step of a word sounds like, or a step next to them.

    The mean of three steps counts. attention (T or more, S), evidence (T, S), path (T or more,).
    """
    if not len(evidence):
        return np.zeros(len(words))
    shares = evidence.sum(axis=1) / (attention[: len(evidence)].sum(axis=1) + 1e-3)
    padded = np.concatenate([shares[:1], shares, shares[-1:]])
    smooth = ((padded[:-2] + padded[1:-1] + padded[2:]) / 3.0).tolist()
    furthest = list(accumulate(path.tolist(), max))
    least = []
    for word in words:  # numbers this few are found faster in lists than in arrays
        first = min(bisect_left(furthest, word) - 1, len(smooth) - 1)
        after = max(bisect_right(furthest, word) + 1, first + 1)
        least.append(min(smooth[max(first, 0) : after]))
    return np.array(least)
