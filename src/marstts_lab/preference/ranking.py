"""Ranking: which takes make pairs, as a pure function of scores and thresholds.

Upstream: `scoring`.  Downstream: `pairs`, which writes the pairs.
MARS6 (arXiv:2501.05787): the worst cyclic takes, by recognizer and MOS predictor, are rejected, and the recordings
chosen (`Scheme.GROUND_TRUTH_VS_WORST`).
Deviations: thresholds keep good takes from being rejected only because some take must be the worst; another scheme
pairs takes with one another.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts import audio
from marstts.codec.base import Codec
from marstts.errors import ConfigError, DataError
from marstts.generation.request import StopReason
from marstts.io.config import Config
from marstts.io.files import write_file
from marstts.io.hash_order import hash_order
from marstts.io.reading import os_errors
from marstts_lab.data.mined_takes import GeneratedHalf, Half, MinedTake
from marstts_lab.preference.scoring import SCORES_FOLDER, Score, ScoredTake, ScoringPlan, TakeMetric, decode, scored_by

HIGHEST_MOS = 5.0

MAX_CER_LOSS = 0.02
"""With `similarity_weight`, a chosen take has at most this much more character error rate than the rejected one: a
voice that is more similar does not make up for wrong words."""


class Scheme(str, Enum):
    """The two sides of a pair."""

    GROUND_TRUTH_VS_WORST = "ground_truth_vs_worst"
    """The paper's: the worst cyclic takes, against the recordings of the same words."""

    FORWARD_TAKES = "forward_takes"
    """Every better against every worse one of all forward takes of one text in one voice. Needs several takes per text,
    and no cycles."""


class RankConfig(Config):
    """The metrics of takes, and which takes become pairs."""

    scheme: Scheme = Scheme.GROUND_TRUTH_VS_WORST

    recognizer: str = "faster-whisper"
    """A recognizer of `marstts evaluate`, with its weights after "=": `faster-whisper=FOLDER`."""

    mos_predictor: str = "distillmos"
    """distillmos, utmos or dnsmos."""

    cer_weight: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    mos_weight: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    """Weights of the percentiles by each metric in the rank score of a take. A metric without weight is computed only
    if it has a threshold."""

    similarity_weight: float = Field(0.0, ge=0.0, allow_inf_nan=False)
    """Weight of the distance of the take's voice from that of its prompt. Above 0, the rank score is the weighted sum
    of the values instead of their percentiles: of CER, of 5 - MOS, and of 1 - similarity."""

    rejected_fraction: float = Field(0.2, gt=0.0, le=1.0)
    """Fraction of the takes (of the groups, in schemes that compare takes) that is rejected: the worst ones."""

    rejected_min_cer: float = Field(0.0, ge=0.0)
    """Takes with a smaller character error rate are never rejected."""

    chosen_max_cer: float = Field(math.inf, ge=0.0, allow_inf_nan=True)
    """Takes with a larger character error rate are never chosen; recordings always may be. By default, no take is too
    bad."""

    min_margin: float = Field(0.0, ge=0.0)
    """Least difference of rank score between the two takes of a pair; equal takes never make a pair."""

    num_examples: int = Field(5, ge=0)
    """Best and worst takes that are written as WAV."""

    @property
    def weights(self) -> dict[TakeMetric, float]:
        """The weight of each metric in the rank score."""
        return {
            TakeMetric.CER: self.cer_weight,
            TakeMetric.MOS: self.mos_weight,
            TakeMetric.SIMILARITY: self.similarity_weight,
        }

    @property
    def metrics(self) -> tuple[TakeMetric, ...]:
        """The metrics that must be computed: those with a weight, or a threshold that some take may not pass."""
        has_threshold = self.rejected_min_cer > 0 or self.chosen_max_cer < math.inf or self.similarity_weight > 0
        needed = {TakeMetric.CER} if has_threshold else set()
        return tuple(metric for metric in TakeMetric if self.weights[metric] > 0 or metric in needed)

    @property
    def plan(self) -> ScoringPlan:
        """The metrics to compute, and for which half."""
        return ScoringPlan(self.recognizer, self.mos_predictor, self.metrics, half_of(self.scheme))


@dataclass(frozen=True, eq=False)
class RankedTake:
    """A take with its scores, and its rank score."""

    take: MinedTake
    scored: ScoredTake
    rank_score: float
    """0 = best of all takes by all metrics; 1 = worst, of percentiles."""


def rank_takes(takes: Sequence[tuple[MinedTake, ScoredTake]], config: RankConfig) -> list[RankedTake]:
    """The completed takes, worst first; equals in an order that depends on their ids alone."""
    weights = {metric: weight for metric, weight in config.weights.items() if weight}
    if not weights:
        raise ConfigError("the weights of all metrics are 0, so there is nothing to rank by")
    half = half_of(config.scheme).value
    complete = [(take, line) for take, line in takes if getattr(line, half) is not None]
    scores: list[Score] = [getattr(line, half) for _, line in complete]
    rank_scores = np.zeros(len(complete))
    for metric, weight in weights.items():
        distances = [distance_from_best(score.on(metric), metric) for score in scores]
        if config.similarity_weight:
            rank_scores += weight * np.asarray(distances)
        else:
            rank_scores += weight / sum(weights.values()) * percentiles(distances)
    ranked = [RankedTake(take, line, float(value)) for (take, line), value in zip(complete, rank_scores, strict=True)]
    return sorted(ranked, key=lambda one: (-one.rank_score, hash_order(one.take.id)))


def distance_from_best(value: float, metric: TakeMetric) -> float:
    """How far a score is from the best that its metric can give."""
    return {TakeMetric.CER: value, TakeMetric.MOS: HIGHEST_MOS - value, TakeMetric.SIMILARITY: 1.0 - value}[metric]


def percentiles(values: Sequence[float]) -> NDArray[np.float64]:
    """The percentile rank (N,) of each value among all, from 0 (lowest) to 1 (highest); equal values share theirs."""
    array = np.asarray(values, np.float64)
    ordered = np.sort(array)
    below = np.searchsorted(ordered, array, side="left")
    equal = np.searchsorted(ordered, array, side="right") - below - 1
    return (below + equal / 2) / max(1, len(array) - 1)


Sides = tuple[RankedTake, "RankedTake | None"]
"""Rejected, and chosen: None is the recording."""


def choose_pairs(ranked: Sequence[RankedTake], config: RankConfig) -> list[Sides]:
    """The pairs of the scheme, the worst rejected sides first, within the thresholds."""
    candidates: list[Sides]
    if config.scheme is Scheme.GROUND_TRUTH_VS_WORST:
        candidates = [(one, None) for one in ranked if len(one.take.ground_truth[0])]
    else:
        candidates = better_and_worse(ranked, config)
    count = math.ceil(config.rejected_fraction * len(candidates))
    return [
        (rejected, chosen)
        for rejected, chosen in candidates[:count]
        if may_be_rejected(rejected, config) and not are_identical(rejected, chosen, config.scheme)
    ]


def better_and_worse(ranked: Sequence[RankedTake], config: RankConfig) -> list[Sides]:
    """All pairs of takes of the same text and recording that differ enough; rejected sides in the order of `ranked`."""
    groups: dict[tuple[str, str], list[RankedTake]] = defaultdict(list)
    for one in ranked:
        groups[one.take.plan.reference, one.take.plan.text].append(one)
    order = {id(one): number for number, one in enumerate(ranked)}
    pairs = [pair for group in groups.values() for pair in combinations(group, 2)]
    return [
        (worse, better)
        for worse, better in sorted(pairs, key=lambda pair: order[id(pair[0])])
        if worse.rank_score > better.rank_score
        and worse.rank_score - better.rank_score >= config.min_margin
        and may_be_chosen(better, worse, config)
    ]


def half_of(scheme: Scheme) -> Half:
    """The half of a cycle that is scored, and is a side of a pair."""
    return Half.FORWARD if scheme is Scheme.FORWARD_TAKES else Half.CYCLE


def score_of(one: RankedTake, scheme: Scheme) -> Score:
    """The score of the side that a take would be."""
    score: Score | None = getattr(one.scored, half_of(scheme).value)
    assert score is not None, "only takes with a score are ranked"
    return score


def generated_of(one: RankedTake, scheme: Scheme) -> GeneratedHalf:
    """The side that a take would be."""
    half = one.take.half(half_of(scheme))
    assert half is not None, "only takes with a score are ranked"
    return half


def may_be_rejected(one: RankedTake, config: RankConfig) -> bool:
    """Return True where a take is bad enough, and has codes."""
    if not len(generated_of(one, config.scheme).codes[0]):
        return False
    return (
        TakeMetric.CER not in config.metrics
        or score_of(one, config.scheme).on(TakeMetric.CER) >= config.rejected_min_cer
    )


def may_be_chosen(better: RankedTake, worse: RankedTake, config: RankConfig) -> bool:
    """Return True where the better take has few enough character errors."""
    if TakeMetric.CER not in config.metrics:
        return True
    cer, rejected_cer = (score_of(one, config.scheme).on(TakeMetric.CER) for one in (better, worse))
    loss = MAX_CER_LOSS if config.similarity_weight else math.inf
    return cer <= min(config.chosen_max_cer, rejected_cer + loss)


def are_identical(rejected: RankedTake, chosen: RankedTake | None, scheme: Scheme) -> bool:
    """Return True where both sides have the same codes."""
    one = generated_of(rejected, scheme).codes
    other = rejected.take.ground_truth if chosen is None else generated_of(chosen, scheme).codes
    return all(np.array_equal(first, second) for first, second in zip(one, other, strict=True))


# Report of a ranking for humans: figures, and the best and worst takes as audio.


def write_examples(ranked: Sequence[RankedTake], codec: Codec, config: RankConfig, folder: Path) -> None:
    """Write the best and worst takes as WAV, each with its recording as the codec reconstructs it."""
    examples = folder / "examples"
    with os_errors(examples, kind=DataError):
        examples.mkdir(parents=True, exist_ok=True)
        for old in examples.glob("*.wav"):
            old.unlink()
    count = config.num_examples
    for name, found in (("worst", ranked[:count]), ("best", list(reversed(ranked))[:count])):
        for number, one in enumerate(found, 1):
            score = score_of(one, config.scheme)
            scores = "-".join(f"{metric.value}{score.on(metric):.2f}" for metric in config.metrics)
            waveform = decode(codec, generated_of(one, config.scheme).codes)
            if len(waveform.samples):
                audio.write(waveform, examples / f"{name}-{number}-{scores}.wav")
            if len(one.take.ground_truth[0]):
                audio.write(decode(codec, one.take.ground_truth), examples / f"{name}-{number}-recording.wav")


def write_report(
    takes: Sequence[tuple[MinedTake, ScoredTake]],
    ranked: Sequence[RankedTake],
    pairs: Sequence[Sides],
    config: RankConfig,
    mined: Path,
    folder: Path,
) -> dict[str, Any]:
    """Write `report.json`; returns its content."""
    rejected = {one.take.id for one, _ in pairs}
    scores = {metric: [score_of(one, config.scheme).on(metric) for one in ranked] for metric in config.metrics}
    rejected_scores = {
        metric: [score_of(one, config.scheme).on(metric) for one in ranked if one.take.id in rejected]
        for metric in config.metrics
    }
    report = {
        "config": config.model_dump(mode="json"),
        "metrics": scored_by(mined / SCORES_FOLDER),
        "takes": len(takes),
        "ranked": len(ranked),
        "pairs": len(pairs),
        "errors": dict(Counter(take.error for take, _ in takes if take.error is not None).most_common()),
        "without_eos": sum(generated_of(one, config.scheme).stop is not StopReason.EOS for one in ranked),
        "pairs_by_speaker": dict(sorted(Counter(one.take.plan.speaker for one, _ in pairs).items())),
        "all_takes": {metric.value: quantiles(values) for metric, values in scores.items()},
        "rejected": {metric.value: quantiles(values) for metric, values in rejected_scores.items()},
    }
    write_file(folder / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n", DataError)
    return report


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Mean, 10 % and 90 % quantiles, and median."""
    if not values:
        return {}
    low, middle, high = np.percentile(values, [10, 50, 90])
    found = {"mean": np.mean(values), "p10": low, "median": middle, "p90": high}
    return {name: round(float(value), 4) for name, value in found.items()}
