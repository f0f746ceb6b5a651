"""Calibration of a model's words: learns from takes of the model what its tokens sound like, and what is suspicious.

Upstream: a session, sentences and voices; no recordings are needed.  Downstream: `word_evidence.CALIBRATION_FILE`.
The attention of sound takes says which letters each patch stands for; ridge regression learns them from the tokens.
Then the model is made to say takes that lack a word: it was cut out of the take, or out of the text that the take was
spoken from. A perceptron learns from attention and evidence which words are not said.
Shapes: T patches · S text tokens · N letters · W words · F features · H hidden units.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marstts.errors import ConfigError
from marstts.synthesis.attention_path import SentencePlaces, search_path
from marstts.synthesis.forced_takes import SpokenSentence, forced_rows, said_words, speak_once
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.word_evidence import (
    CONTEXT,
    NUM_FEATURES,
    NUM_LETTERS,
    WordCalibration,
    token_evidence,
    token_letters,
    word_features,
)
from marstts.voice import Voice

MIN_SENTENCES = 40
"""Fewer tell too little."""

SHARE_OF_TABLE = 0.4
"""Share for learning letters; the rest is for the perceptron, which must not know their takes."""

TABLE_PENALTY = 3.0
MIN_CUT_PATCHES = 2
MAX_CUT_WORDS = 2
"""Takes of a sentence with a word cut out, one word each."""

MIN_OMITTED_LETTERS = 4
"""Words of a text that are left out have so many letters or more."""

HIDDEN_UNITS = 24
WEIGHT_PENALTY = 1e-3
EPOCHS = 40
MINIBATCH = 256
LEARNING_RATE = 3e-3

OnSentences = Callable[[int, int], None]
"""Called with the number of sentences done, and the number of sentences."""


def calibrate_words(
    session: ModelSession,
    sentences: Sequence[str],
    voices: Sequence[Voice],
    seed: int = 0,
    on_sentences: OnSentences | None = None,
) -> WordCalibration:
    """The calibration of a model, from sentences that it speaks in these voices.

    Raises ConfigError for a model without word times, and for few sentences.
    """
    if len(sentences) < MIN_SENTENCES:
        raise ConfigError(f"a calibration needs {MIN_SENTENCES} sentences at least, but {len(sentences)} were given")
    number, rng = round(SHARE_OF_TABLE * len(sentences)), random.Random(seed)
    spoken = speak_once(session, sentences, voices, seed)
    shorter = [without_a_word(text, rng) for text in sentences[number:]]
    same_voices = [voices[index % len(voices)] for index in range(number, len(sentences))]
    texts = [text if one is None else one[0] for text, one in zip(sentences[number:], shorter, strict=True)]
    without = speak_once(session, texts, same_voices, seed + 1)
    calibration = learn_letters(session, spoken[:number])
    features, labels = [], []
    for index, (one, omitted, other) in enumerate(zip(spoken[number:], shorter, without, strict=True), number + 1):
        missing = cut_takes(session, one, rng)
        if omitted is not None:
            missing.append((other.tokens, omitted[1]))
        for found, word in features_of_takes(session, calibration, one, missing):
            features.append(found)
            labels.append(np.arange(len(found)) == word)
        if on_sentences is not None:
            on_sentences(index, len(spoken))
    hidden, output = train_perceptron(np.concatenate(features), np.concatenate(labels), np.random.default_rng(seed))
    return replace(calibration, hidden=hidden, output=output)


def learn_letters(session: ModelSession, spoken: Sequence[SpokenSentence]) -> WordCalibration:
    """The calibration without weights: the table of letters, and what sound takes have."""
    codes = session.engine.layout.codebook_size
    targets = np.concatenate([attention_of(one)[: len(one.tokens)] @ token_letters(one.places) for one in spoken])
    columns = np.concatenate([table_columns(one.tokens, codes) for one in spoken])
    mean = targets.mean(axis=0)
    table = ridge(columns, targets - mean, len(CONTEXT) * (codes + 1)).reshape(len(CONTEXT), codes + 1, NUM_LETTERS)
    table[:, codes] = 0.0
    scale = float(np.abs(table).max()) / 127.0 or 1.0
    nothing = np.zeros(NUM_LETTERS, np.float32)
    calibration = WordCalibration(
        codec=session.codec.spec.name,
        table=np.rint(table / scale).astype(np.int8),
        scale=scale,
        letters=mean.astype(np.float32),
        attention=nothing,
        evidence=nothing,
        hidden=np.zeros((NUM_FEATURES + 1, HIDDEN_UNITS), np.float32),
        output=np.zeros(HIDDEN_UNITS + 1, np.float32),
    )
    sums, count = np.zeros((NUM_LETTERS, 2)), np.zeros(NUM_LETTERS)
    for one in spoken:
        letters, attention, inside = token_letters(one.places), attention_of(one), one.places.spans[:, 0] >= 0
        evidence = token_evidence(calibration, letters, attention, one.tokens)
        shares = letters[inside]
        sums += shares.T @ np.stack([attention.sum(axis=0), evidence.sum(axis=0)], axis=1)[inside]
        count += shares.sum(axis=0)
    usual = ((sums + sums.sum(axis=0) / count.sum()) / (count + 1.0)[:, None]).astype(np.float32)
    return replace(calibration, attention=usual[:, 0].copy(), evidence=usual[:, 1].copy())


def attention_of(one: SpokenSentence) -> NDArray[np.float32]:
    """(T + 1, S) attention of a take to the text."""
    return text_attention_of(one.generated.attention, one.places)


def text_attention_of(steps: Sequence[NDArray[np.float32]], places: SentencePlaces) -> NDArray[np.float32]:
    """(T, S) attention of steps to the text of a sentence."""
    return np.stack([step[: len(places.spans)] for step in steps])


def table_columns(tokens: NDArray[np.int64], codes: int) -> NDArray[np.int64]:
    """tokens (T, P) -> (T, C) columns of the table, flattened, that are added for each patch."""
    first = np.where(tokens[:, 0] < codes, tokens[:, 0], codes)
    edge = max(map(abs, CONTEXT))
    padded = np.pad(first, edge, constant_values=codes)
    columns = [padded[edge + offset : edge + offset + len(first)] for offset in CONTEXT]
    return np.stack([column + index * (codes + 1) for index, column in enumerate(columns)], axis=1)


def ridge(columns: NDArray[np.int64], targets: NDArray[np.float32], size: int) -> NDArray[np.float64]:
    """columns (T, C) that are 1, targets (T, N) -> (size, N) weights of least squared error with a penalty."""
    products, sums = np.zeros((size, size), np.float64), np.zeros((size, targets.shape[1]), np.float64)
    for one in columns.T:
        np.add.at(sums, one, targets)
        for other in columns.T:
            np.add.at(products, (one, other), 1.0)
    products[np.diag_indices(size)] += TABLE_PENALTY
    return np.asarray(np.linalg.solve(products, sums), dtype=np.float64)


def without_a_word(text: str, rng: random.Random) -> tuple[str, int] | None:
    """The text without one of its words, neither the first nor the last, and the word's number.

    None where no word is long enough.
    """
    chunks = [match for match in re.finditer(r"\S+", text) if any(map(str.isalnum, match.group()))]
    long = [
        number
        for number, match in enumerate(chunks[1:-1], 1)
        if sum(map(str.isalpha, match.group())) >= MIN_OMITTED_LETTERS
    ]
    if not long:
        return None
    number = rng.choice(long)
    return text[: chunks[number].start()] + text[chunks[number].end() :].lstrip(), number


def cut_takes(session: ModelSession, spoken: SpokenSentence, rng: random.Random) -> list[tuple[NDArray[np.int64], int]]:
    """Tokens (T, P) of the take with a word cut out, and the word's number, for some words."""
    said = said_words(session, spoken)
    if len(said) != len(spoken.places.words):
        return []
    long = [number for number, word in enumerate(said) if word[1] - word[0] >= MIN_CUT_PATCHES]
    tokens = spoken.tokens
    return [
        (np.concatenate([tokens[: said[number][0]], tokens[said[number][1] :]]), number)
        for number in rng.sample(long, min(MAX_CUT_WORDS, len(long)))
    ]


def features_of_takes(
    session: ModelSession,
    calibration: WordCalibration,
    spoken: SpokenSentence,
    missing: Sequence[tuple[NDArray[np.int64], int]],
) -> Iterator[tuple[NDArray[np.float64], int]]:
    """Yield (W, F) features of a take and the number of the word it lacks: of the whole take, -1, and of `missing`."""
    takes = [(spoken.tokens, -1), *(take for take in missing if len(take[0]))]
    places = spoken.places
    for row, (tokens, word) in zip(forced_rows(session, spoken, [tokens for tokens, _ in takes]), takes, strict=True):
        attention, path = text_attention_of(row.attention, places), search_path(places, row.attention).path
        yield word_features(calibration, places, attention, tokens, path), word


def train_perceptron(
    features: NDArray[np.float64], labels: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """features (W, F), labels (W,) -> (F + 1, H) and (H + 1,) of least cross-entropy, constants last (Adam)."""
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-6
    scaled = np.concatenate([(features - mean) / spread, np.ones((len(features), 1))], axis=1)
    fan_in = scaled.shape[1]
    hidden = rng.normal(size=(fan_in, HIDDEN_UNITS)) * np.sqrt(2.0 / (fan_in + HIDDEN_UNITS))
    output = np.append(rng.normal(size=HIDDEN_UNITS) * np.sqrt(2.0 / (HIDDEN_UNITS + 1)), 0.0)
    weights, moments = [hidden, output], [[np.zeros_like(one), np.zeros_like(one)] for one in (hidden, output)]
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(scaled))
        for first in range(0, len(order), MINIBATCH):
            batch = order[first : first + MINIBATCH]
            step += 1
            rate = LEARNING_RATE * np.sqrt(1.0 - 0.999**step) / (1.0 - 0.9**step)
            for one, slope, (mean_slope, square) in zip(
                weights, perceptron_slopes(hidden, output, scaled[batch], labels[batch]), moments, strict=True
            ):
                mean_slope += 0.1 * (slope - mean_slope)
                square += 0.001 * (slope**2 - square)
                one -= rate * mean_slope / (np.sqrt(square) + 1e-8)
    hidden[:-1] /= spread[:, None]
    hidden[-1] -= mean @ hidden[:-1]
    return hidden.astype(np.float32), output.astype(np.float32)


def perceptron_slopes(
    hidden: NDArray[np.float64], output: NDArray[np.float64], features: NDArray[np.float64], labels: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradients of the mean cross-entropy, with a penalty on all but the constants; features (W, F + 1)."""
    units = np.maximum(features @ hidden, 0.0)
    odds = np.clip(units @ output[:-1] + output[-1], -30.0, 30.0)
    error = (1.0 / (1.0 + np.exp(-odds)) - labels) / len(labels)
    of_output = np.append(units.T @ error + WEIGHT_PENALTY * output[:-1], error.sum())
    of_hidden = features.T @ (np.outer(error, output[:-1]) * (units > 0.0))
    of_hidden[:-1] += WEIGHT_PENALTY * hidden[:-1]
    return of_hidden, of_output
