"""Calibration of a model's words: learns from takes of the model what its tokens sound like, and what is suspicious.

Upstream: a session, sentences and voices; no recordings are needed.  Downstream: `word_evidence.CALIBRATION_FILE`.
The attention of sound takes says which letters each patch stands for; ridge regression learns them from the tokens.
Words are cut out of other takes, which the model is made to say. It is asked about every word, and logistic regression
learns from attention and evidence which of them it did not need.
Shapes: T patches · S text tokens · N letters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marstts.errors import ConfigError
from marstts.generation.request import RequestState
from marstts.synthesis.attention_path import search_path
from marstts.synthesis.forced_takes import SpokenSentence, forced_rows, said_words, speak_once
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.omissions import OmissionCheck, hidden_span
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

SHARE_OF_TABLE = 0.6
"""Share for learning letters; the rest is for the regression, which must not know their takes."""

UNNEEDED_GAIN = 0.75
"""Nats that patches gain when a word is hidden: with more, it counts as left out, whatever was suspected."""

TABLE_PENALTY = 3.0
WEIGHT_PENALTY = 0.003
NEWTON_STEPS = 30
MIN_CUT_PATCHES = 2

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

    Raises ConfigError for a model without word times, one whose engine cannot score patches, and for few sentences.
    """
    if len(sentences) < MIN_SENTENCES:
        raise ConfigError(f"a calibration needs {MIN_SENTENCES} sentences at least, but {len(sentences)} were given")
    session = replace(session, omission_check=OmissionCheck.ALL_WORDS, word_calibration=None)
    spoken = speak_once(session, sentences, voices, seed)
    number = round(SHARE_OF_TABLE * len(spoken))
    calibration = learn_letters(session, spoken[:number])
    rng = random.Random(seed)
    features, unneeded = [], []
    for index, one in enumerate(spoken[number:], number + 1):
        found, missing = words_of_takes(session, calibration, one, rng)
        features.append(found)
        unneeded.append(missing)
        if on_sentences is not None:
            on_sentences(index, len(spoken))
    weights = logistic_weights(np.concatenate(features), np.concatenate(unneeded))
    return replace(calibration, weights=weights.astype(np.float32))


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
        weights=np.zeros(NUM_FEATURES + 1, np.float32),
    )
    sums, count = np.zeros((NUM_LETTERS, 2)), np.zeros(NUM_LETTERS)
    for one in spoken:
        found = token_evidence(calibration, one.places, attention_of(one), one.tokens)
        inside = one.places.spans[:, 0] >= 0
        shares = token_letters(one.places)[inside]
        sums += shares.T @ found[inside]
        count += shares.sum(axis=0)
    usual = ((sums + sums.sum(axis=0) / count.sum()) / (count + 1.0)[:, None]).astype(np.float32)
    return replace(calibration, attention=usual[:, 0].copy(), evidence=usual[:, 1].copy())


def attention_of(one: SpokenSentence | tuple[RequestState, int]) -> NDArray[np.float32]:
    """(T or more, S) attention of a take to the text."""
    steps, length = (
        (one.generated.attention, len(one.places.spans))
        if isinstance(one, SpokenSentence)
        else (one[0].attention, one[1])
    )
    return np.stack([step[:length] for step in steps])


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


def words_of_takes(
    session: ModelSession, calibration: WordCalibration, spoken: SpokenSentence, rng: random.Random
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(words, features) and whether each word was unneeded, of the take as it is, and of it with a word cut out."""
    takes = [spoken.tokens]
    long = [word for word in said_words(session, spoken) if word[1] - word[0] >= MIN_CUT_PATCHES]
    if long:
        first, last = rng.choice(long)
        takes.append(np.concatenate([spoken.tokens[:first], spoken.tokens[last:]]))
    features, unneeded = [np.zeros((0, NUM_FEATURES))], [np.zeros(0, bool)]
    for row, tokens in zip(forced_rows(session, spoken, takes), takes, strict=True):
        search = search_path(spoken.places, row.attention)
        gain, path = session.hidden_gain(search, row, tokens), search.path()
        if gain is None:
            raise ConfigError("the words of a model are calibrated by the engines onnx and torch; choose one of them")
        found = token_evidence(calibration, spoken.places, attention_of((row, len(spoken.places.spans))), tokens)
        features.append(word_features(spoken.places, found, calibration.usual))
        spans = [hidden_span(word, path) for word in spoken.places.words]
        gains = [
            gain(word, span) if span[0] < span[1] else 0.0
            for word, span in zip(spoken.places.words, spans, strict=True)
        ]
        unneeded.append(np.array(gains) > UNNEEDED_GAIN)
    return np.concatenate(features), np.concatenate(unneeded)


def logistic_weights(features: NDArray[np.float64], labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    """features (W, F), labels (W,) -> (F + 1,) weights and constant of a logistic regression, by Newton's method."""
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-6
    scaled = np.concatenate([(features - mean) / spread, np.ones((len(features), 1))], axis=1)
    weights = np.zeros(scaled.shape[1])
    for _ in range(NEWTON_STEPS):
        odds = 1.0 / (1.0 + np.exp(-np.clip(scaled @ weights, -30.0, 30.0)))
        slope = scaled.T @ (odds - labels) / len(labels) + WEIGHT_PENALTY * weights
        curvature = (scaled * (odds * (1.0 - odds))[:, None]).T @ scaled / len(labels)
        weights = weights - np.linalg.solve(curvature + WEIGHT_PENALTY * np.eye(len(weights)), slope)
    plain = weights[:-1] / spread
    return np.append(plain, weights[-1] - plain @ mean)
