"""Best of N: which of several takes of a sentence is kept, and why.

Upstream: `batch`, which samples N takes of a sentence at once.  Downstream: `Take.ranking`, reports.
Takes that are acceptable come first, then those with fewer flaws. Among these the score decides: the mean of how far
the take is from the mean of its rivals, in their standard deviations, for each criterion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.errors import MarsError
from marstts.generation.request import StopReason
from marstts.speaker.base import SpeakerEncoder
from marstts.synthesis.backoff import BackoffConfig, is_audible, rejection_reason
from marstts.synthesis.speech import RankedTake, Take
from marstts.voice import Voice

IDENTITY = "identity"
"""Role of the speaker encoder that compares a take with the voice."""

WEIGHTS = {"confidence": 1.0, "weakest_word": 1.0, "similarity": 1.0, "length": 0.5, "loudness": 0.25}
"""Weight of each criterion in the score."""


@dataclass(frozen=True)
class Criteria:
    """Criteria of one take; larger is better."""

    confidence: float
    """Mean of its words' alignment confidence, 0 to 1."""

    weakest_word: float
    """Confidence of the word that has the least."""

    similarity: float
    """Cosine of its speaker embedding and the voice's; 0 where no encoder is there."""

    length: float
    """Minus the distance of its length from the usual one, in nepers."""

    loudness: float
    """Minus the distance of its loudness from the takes' median, in decibels."""


def best_take(takes: Sequence[Take], similarities: Sequence[float], config: BackoffConfig) -> Take:
    """The best of at least one take, with the ranking of all in `Take.ranking`, best first."""
    scores = score_takes(takes, similarities, config)
    order = sorted(range(len(takes)), key=lambda index: rank_key(takes[index], scores[index], config))
    ranking = tuple(
        RankedTake(
            take=index + 1,
            score=round(scores[index], 3),
            seconds=round(takes[index].seconds, 3),
            similarity=round(similarities[index], 3),
            flaws=takes[index].flaws,
        )
        for index in order
    )
    return replace(takes[order[0]], ranking=ranking)


def rank_key(take: Take, score: float, config: BackoffConfig) -> tuple[bool, int, float]:
    """Sort key: acceptable takes first, then by flaws, then by score."""
    is_refused = rejection_reason(take, config) is not None
    return is_refused, len(take.flaws) + (take.stop is StopReason.FLAWED), -score


def score_takes(takes: Sequence[Take], similarities: Sequence[float], config: BackoffConfig) -> list[float]:
    """The weighted mean of each take's criteria, each in standard deviations from the mean of all takes."""
    loudness = float(np.median([take.loudness_lufs for take in takes]))
    values = [
        criteria(take, similarity, loudness, config) for take, similarity in zip(takes, similarities, strict=True)
    ]
    total = np.zeros(len(takes))
    for name, weight in WEIGHTS.items():
        column = np.array([getattr(value, name) for value in values])
        finite = np.where(np.isfinite(column), column, -10.0)
        spread = float(finite.std())
        total += weight * (finite - finite.mean()) / spread if spread > 1e-6 else 0.0
    return [float(score) for score in total / sum(WEIGHTS.values())]


def criteria(take: Take, similarity: float, median_loudness: float, config: BackoffConfig) -> Criteria:
    """The criteria of one take."""
    confidences = [word.confidence for word in take.words or ()] or [0.0]
    audible = is_audible(take, config) and take.seconds > 0
    return Criteria(
        confidence=float(np.mean(confidences)),
        weakest_word=min(confidences),
        similarity=similarity,
        length=-abs(math.log(take.seconds / config.usual(take.text))) if audible else -10.0,
        loudness=-abs(take.loudness_lufs - median_loudness) if audible else -10.0,
    )


def voice_similarity(waveform: Waveform, voice: Voice, encoders: Mapping[str, SpeakerEncoder]) -> float:
    """Cosine similarity of the speaker in `waveform` and the voice; 0 where it cannot be measured."""
    encoder, known = encoders.get(IDENTITY), voice.embeddings.get(IDENTITY)
    if encoder is None or known is None:
        return 0.0
    try:
        return cosine(encoder.embed(waveform), known)
    except MarsError:  # too short for the encoder
        return 0.0


def cosine(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Cosine of the angle between two vectors (E,)."""
    return float(first @ second / max(float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-9))
