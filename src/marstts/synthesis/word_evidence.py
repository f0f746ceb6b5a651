"""Word evidence: how likely each word of a text was left out of a take, by the attention and the sound of its letters.

Upstream: a take's tokens and its attention to the text; a calibration (`word_calibration`), a file of the bundle.
Downstream: `omissions`, which asks the model about the words that are most suspicious.
A table says which letters the first token of a patch sounds like, a linear recognizer of letters. A letter has
evidence where a step attends to it and sounds like it. Attention and evidence of windows of the text, compared with
what is usual, are the features of a logistic regression: its value is the suspicion of a word.
Shapes: T patches · S text tokens · W words · C patches of context · N letters · K places.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from marstts.errors import CheckpointError
from marstts.file_errors import printable_name
from marstts.files import write_file
from marstts.reading import read_regular_file
from marstts.synthesis.attention_path import SentencePlaces

CALIBRATION_FILE = "words.safetensors"
"""File in the folder of a bundle; a bundle without it has no word evidence."""

FORMAT_VERSION = 1
MAX_CALIBRATION_BYTES = 2**26

NUM_LETTERS = 28
"""Silence (spaces, apostrophes and hyphens), 26 letters, and everything else."""

CONTEXT = (-1, 0, 1)
"""Patches around a step whose first tokens are looked up."""

WINDOWS = (3, 5, 7, 9)
"""Text tokens that are looked at together."""

UNEVEN = 0.2
"""Added to the sum of letter scores before they are divided by it: little of everything is no evidence."""

MIN_RATIO = 0.05
NUM_FEATURES = 4 * (2 * len(WINDOWS)) + 2


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

    weights: NDArray[np.float32]
    """(features + 1,) of the logistic regression, the last one for its constant."""

    def letter_scores(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """tokens (T, P) -> (T, N), from 0 to 1: which letters each patch sounds like."""
        missing = self.table.shape[1] - 1
        first = np.where(tokens[:, 0] < missing, tokens[:, 0], missing)
        edge = max(map(abs, CONTEXT))
        padded = np.pad(first, edge, constant_values=missing)
        scores = self.letters.copy()[None].repeat(len(first), axis=0)
        for table, offset in zip(self.table, CONTEXT, strict=True):
            scores += self.scale * table[padded[edge + offset : edge + offset + len(first)]]
        scores = np.clip(scores, 0.0, 1.0)
        return scores / (scores.sum(axis=1, keepdims=True) + UNEVEN)

    @cached_property
    def usual(self) -> NDArray[np.float32]:
        """(N, 2) usual attention and evidence."""
        return np.stack([self.attention, self.evidence], axis=1)

    def suspicions(
        self, places: SentencePlaces, attention: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """attention (T or more, S or more) of the steps, tokens (T, P) -> (W,) log odds that a word was left out."""
        features = word_features(places, token_evidence(self, places, attention, tokens), self.usual)
        return features @ self.weights[:-1] + self.weights[-1]

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        arrays: dict[str, NDArray[Any]] = {
            "table": self.table, "letters": self.letters, "attention": self.attention, "evidence": self.evidence,
            "weights": self.weights, "scale": np.array([self.scale], np.float32),
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
        values = {name: arrays[name] for name in ("table", "letters", "attention", "evidence", "weights")}
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
    shapes = (NUM_LETTERS,), (NUM_LETTERS,), (NUM_LETTERS,), (NUM_FEATURES + 1,)
    arrays = made.letters, made.attention, made.evidence, made.weights
    table = made.table
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


def token_letters(places: SentencePlaces) -> NDArray[np.float32]:
    """(S, N) letters of each text token, divided by their number; silence before the sentence, all else after it."""
    shares = np.zeros((len(places.spans), NUM_LETTERS), np.float32)
    starts, sizes = places.spans[:, 0], places.spans[:, 1] - places.spans[:, 0]
    inside = starts >= 0
    known = np.flatnonzero(inside)
    first = known[0] if len(known) else len(starts)
    shares[~inside, np.where(np.flatnonzero(~inside) < first, 0, NUM_LETTERS - 1)] = 1.0
    sizes = np.where(inside, sizes, 0)
    tokens = np.arange(len(starts)).repeat(sizes)
    before = (sizes.cumsum() - sizes)[tokens]
    letters = np.array([letter_number(character) for character in places.sentence], np.int64)
    np.add.at(shares, (tokens, letters[starts[tokens] + np.arange(len(tokens)) - before]), 1.0 / sizes[tokens])
    return shares


def token_evidence(
    calibration: WordCalibration,
    places: SentencePlaces,
    attention: NDArray[np.float32],
    tokens: NDArray[np.int64],
) -> NDArray[np.float32]:
    """(S, 2) attention that each text token got in a take, and evidence that its letters were said."""
    attention = attention[:, : len(places.spans)]
    sounding = calibration.letter_scores(tokens) @ token_letters(places).T  # (T, S)
    steps = min(len(sounding), len(attention))
    return np.stack([attention.sum(axis=0), (attention[:steps] * sounding[:steps]).sum(axis=0)], axis=1)


def word_features(
    places: SentencePlaces, found: NDArray[np.float32], usual: NDArray[np.float32]
) -> NDArray[np.float64]:
    """found (S, 2), usual (N, 2) -> (W, features): logarithms of the least share of the usual in windows around a word.

    Followed by those of the neighbors before and after, the least ones of the take, and what was found in the word.
    """
    inside = np.flatnonzero(places.spans[:, 0] >= 0)
    spans = places.spans[inside]
    expected = (token_letters(places) @ usual)[inside]
    found = found[inside]
    expected = expected * np.maximum(found.sum(axis=0) / np.maximum(expected.sum(axis=0), 1e-6), (1e-6, 0.3))
    windows = [np.ones(min(width, len(inside))) for width in WINDOWS]
    ratios = np.stack(
        [
            np.convolve(found[:, kind], window, "same")
            / np.maximum(np.convolve(expected[:, kind], window, "same"), 1e-6)
            for kind in (0, 1)
            for window in windows
        ],
        axis=1,
    )
    words = [places.places[word] for word in places.words]
    begins, ends = (np.array([getattr(word, edge) for word in words], np.int64)[:, None] for edge in ("start", "end"))
    members = (spans[:, 0] >= np.maximum(0, begins - 1)) & (spans[:, 0] < ends)  # (W, tokens inside)
    least = np.where(members[:, :, None], ratios, np.inf).min(axis=1, initial=np.inf)
    least = np.log(np.maximum(np.where(np.isfinite(least), least, 1.0), MIN_RATIO))
    padded = np.pad(least, ((1, 1), (0, 0)))
    of_take = least.min(axis=0)[None].repeat(len(words), axis=0)
    own = members @ found[:, 1] / np.maximum(members @ expected[:, 1], MIN_RATIO)
    sizes = np.array([word.num_letters / 5.0 for word in words])
    return np.concatenate(
        [
            least, np.minimum(padded[:-2], 0.0), np.minimum(padded[2:], 0.0), of_take,
            np.log(own + UNEVEN)[:, None], sizes[:, None],
        ],
        axis=1,
    )  # fmt: skip
