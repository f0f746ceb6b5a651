"""Which takes make pairs: a pure function of scores, thresholds and quotas.

Upstream: `judging`.  Downstream: `rank`, which writes what is found here.
MARS6 (arXiv:2501.05787): the worst cyclic takes, by recogniser and opinion predictor, are rejected, and the recordings
chosen (`Scheme.TRUTH_VS_WORST`).
Deviations: thresholds keep good takes from being rejected only because there must be a worst; `both_sides` follows RIO
(arXiv:2407.02243), which has no paired prompts, as far as pairs allow.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.config import Config
from marstts.data.pairs import Pair, PairLine, SideLine
from marstts.errors import ConfigError
from marstts.evaluation.ordering import stable_order
from marstts.mars6.generate import StopReason
from marstts.preference.judging import Judged, Scale, Score, Wanted, text_of
from marstts.preference.takes import Leg, Spoken, Take

RECORDING = "recording"
HIGHEST_MOS = 5.0


class Scheme(str, Enum):
    """What a pair is made of."""

    TRUTH_VS_WORST = "truth_vs_worst"
    """The paper's: the worst cyclic takes, against the recordings whose words they say."""

    BOTH_SIDES = "both_sides"
    """Of all forward takes of one text in one voice, the best against the worst; a take is judged by itself and by the
    cycle that began with it. Needs several takes per text."""

    BEST_VS_WORST = "best_vs_worst"
    """Of all cyclic takes of one recording's words, the best against the worst, in the voice of the worst."""


class RankConfig(Config):
    """Who judges, and what becomes a pair."""

    scheme: Scheme = Scheme.TRUTH_VS_WORST
    recogniser: str = "sphinx"
    """A judge of `marstts evaluate`: sphinx, whisper, faster-whisper."""

    mos: str = "auto"
    """utmos, dnsmos or plcmos; auto is UTMOS where its packages and weights are there, else DNSMOS."""

    cer_weight: float = Field(1.0, ge=0.0)
    wrong_words_weight: float = Field(0.0, ge=0.0)
    misfit_weight: float = Field(0.0, ge=0.0)
    mos_weight: float = Field(1.0, ge=0.0)
    """Of the places among all takes, by each judge, in how bad a take is. A judge without weight is asked only if there
    is a threshold for it."""

    rejected_share: float = Field(0.2, gt=0.0, le=1.0)
    """Of the takes (of the groups of takes, in schemes that compare takes): the worst ones."""

    rejected_min_cer: float = Field(0.0, ge=0.0)
    """Takes with fewer character errors are never rejected."""

    rejected_min_wrong_words: float = Field(0.0, ge=0.0, le=1.0)
    """Takes with fewer wrong words are never rejected."""

    rejected_min_misfit: float = Field(0.0, ge=0.0)
    """Takes whose sounds fit better are never rejected."""

    rejected_max_mos: float = Field(HIGHEST_MOS, ge=1.0, le=HIGHEST_MOS)
    """Takes with a better opinion score are never rejected."""

    chosen_max_cer: float = Field(math.inf, ge=0.0)
    """Takes with more character errors are never chosen; recordings always may be."""

    chosen_max_wrong_words: float = Field(1.0, ge=0.0, le=1.0)
    """Takes with more wrong words are never chosen."""

    least_margin: float = Field(0.0, ge=0.0)
    """How much worse (in places from 0 to 1) the rejected take of a group must be than the chosen one; equals never
    make a pair."""

    pairs_per_speaker: int = Field(0, ge=0)
    """At most; 0 = as many as there are."""

    extremes: int = Field(5, ge=0)
    """Best and worst takes to be written as WAV, for listening."""

    @property
    def weights(self) -> dict[Scale, float]:
        """Of each judge in how bad a take is."""
        return {scale: getattr(self, f"{scale.value}_weight") for scale in Scale}

    @property
    def scales(self) -> tuple[Scale, ...]:
        """On which the takes must be judged: those with a weight, or a threshold that some take may not pass."""
        thresholds = {
            Scale.CER: self.rejected_min_cer > 0 or self.chosen_max_cer < math.inf,
            Scale.WRONG_WORDS: self.rejected_min_wrong_words > 0 or self.chosen_max_wrong_words < 1,
            Scale.MISFIT: self.rejected_min_misfit > 0,
            Scale.MOS: self.rejected_max_mos < HIGHEST_MOS,
        }
        return tuple(scale for scale in Scale if self.weights[scale] > 0 or thresholds[scale])


@dataclass(frozen=True, eq=False)
class Ranked:
    """A take with its scores, and how bad that is."""

    take: Take
    judged: Judged
    badness: float
    """0 = best of all takes by all judges, 1 = worst."""


def rank_takes(takes: Sequence[tuple[Take, Judged]], config: RankConfig) -> list[Ranked]:
    """The takes that were spoken to the end, worst first; equals in an order that depends on their ids alone."""
    weights = {scale: weight for scale, weight in config.weights.items() if weight}
    if not weights:
        raise ConfigError("the weights of all judges are 0, so there is nothing to rank by")
    legs = legs_judged(config.scheme)
    whole = [(take, line) for take, line in takes if all(getattr(line, leg.value) is not None for leg in legs)]
    badness = np.zeros(len(whole))
    for leg in legs:
        scores: list[Score] = [getattr(line, leg.value) for _, line in whole]
        for scale, weight in weights.items():
            sign = 1 if scale.higher_is_worse else -1
            badness += weight * places([sign * score.on(scale) for score in scores])
    badness /= sum(weights.values()) * len(legs)
    ranked = [Ranked(take, line, float(value)) for (take, line), value in zip(whole, badness, strict=True)]
    return sorted(ranked, key=lambda one: (-one.badness, stable_order(one.take.id)))


def places(values: Sequence[float]) -> NDArray[np.float64]:
    """(N,) where each value stands among all, from 0 (lowest) to 1 (highest); equal values share the place between."""
    array = np.asarray(values, np.float64)
    below = (array[:, None] > array).sum(axis=1)
    equal = (array[:, None] == array).sum(axis=1) - 1
    return (below + equal / 2) / max(1, len(array) - 1)


Sides = tuple[Ranked, "Ranked | None"]
"""Rejected, and chosen: None is the recording."""


def make_pairs(ranked: Sequence[Ranked], config: RankConfig) -> list[Sides]:
    """The pairs of the scheme, the worst rejected sides first, within thresholds and quotas."""
    candidates: list[Sides]
    if config.scheme is Scheme.TRUTH_VS_WORST:
        candidates = [(one, None) for one in ranked if len(one.take.truth[0])]
    else:
        candidates = best_and_worst(ranked, config)
    wanted = math.ceil(config.rejected_share * len(candidates))
    pairs: list[Sides] = []
    of_speaker: Counter[str] = Counter()
    for rejected, chosen in candidates[:wanted]:
        speaker = rejected.take.plan.speaker
        if config.pairs_per_speaker and of_speaker[speaker] >= config.pairs_per_speaker:
            continue
        if may_be_rejected(rejected, config) and not identical(rejected, chosen, config.scheme):
            pairs.append((rejected, chosen))
            of_speaker[speaker] += 1
    return pairs


def best_and_worst(ranked: Sequence[Ranked], config: RankConfig) -> list[Sides]:
    """Of every group of takes with the same words and recording, the worst and the best, if there is a difference."""
    groups: dict[tuple[str, str], list[Ranked]] = defaultdict(list)
    for one in ranked:
        plan = one.take.plan
        text = plan.text if config.scheme is Scheme.BOTH_SIDES else ""
        groups[plan.reference, text].append(one)
    pairs = [(group[0], group[-1]) for group in groups.values()]
    return [
        (worst, best)
        for worst, best in pairs
        if worst.badness > best.badness
        and worst.badness - best.badness >= config.least_margin
        and may_be_chosen(best, config)
    ]


def judges_wanted(config: RankConfig) -> Wanted:
    """Who is asked, and about what."""
    return Wanted(config.recogniser, config.mos, config.scales, legs_judged(config.scheme))


def legs_judged(scheme: Scheme) -> tuple[Leg, ...]:
    """Which halves of a cycle the scheme looks at."""
    return (Leg.FORWARD, Leg.CYCLE) if scheme is Scheme.BOTH_SIDES else (Leg.CYCLE,)


def leg_of(scheme: Scheme) -> Leg:
    """Which half of a cycle the sides of a pair are."""
    return Leg.FORWARD if scheme is Scheme.BOTH_SIDES else Leg.CYCLE


def score_of(one: Ranked, scheme: Scheme) -> Score:
    score: Score | None = getattr(one.judged, leg_of(scheme).value)
    assert score is not None, "only takes with a score are ranked"
    return score


def spoken_of(one: Ranked, scheme: Scheme) -> Spoken:
    spoken = one.take.leg(leg_of(scheme))
    assert spoken is not None, "only takes with a score are ranked"
    return spoken


def may_be_rejected(one: Ranked, config: RankConfig) -> bool:
    """Whether a take is bad enough, and has any codes."""
    score = score_of(one, config.scheme)
    audible = len(spoken_of(one, config.scheme).codes[0]) > 0
    bad_enough = {
        Scale.CER: lambda value: value >= config.rejected_min_cer,
        Scale.WRONG_WORDS: lambda value: value >= config.rejected_min_wrong_words,
        Scale.MISFIT: lambda value: value >= config.rejected_min_misfit,
        Scale.MOS: lambda value: value <= config.rejected_max_mos,
    }
    return audible and all(bad_enough[scale](score.on(scale)) for scale in config.scales)


def may_be_chosen(one: Ranked, config: RankConfig) -> bool:
    """Whether a take is good enough."""
    score = score_of(one, config.scheme)
    highest = {Scale.CER: config.chosen_max_cer, Scale.WRONG_WORDS: config.chosen_max_wrong_words}
    return all(score.on(scale) <= value for scale, value in highest.items() if scale in config.scales)


def identical(rejected: Ranked, chosen: Ranked | None, scheme: Scheme) -> bool:
    """Whether both sides say the same codes."""
    one = spoken_of(rejected, scheme).codes
    other = rejected.take.truth if chosen is None else spoken_of(chosen, scheme).codes
    return all(np.array_equal(first, second) for first, second in zip(one, other, strict=True))


def as_pair(rejected: Ranked, chosen: Ranked | None, scheme: Scheme, made_by: Mapping[str, str]) -> Pair:
    """Two sides as a pair: the prompt is the one that led to the rejected side."""
    leg, take, spoken = leg_of(scheme), rejected.take, spoken_of(rejected, scheme)
    deep = len(spoken.prefix[0]) > 0
    said_before = take.plan.transcript if leg is Leg.FORWARD else take.plan.text
    line = PairLine(
        id=take.id,
        scheme=scheme.value,
        text=text_of(take, leg),
        transcript=said_before if deep else None,
        speaker=take.plan.speaker,
        row=0,
        chosen=recording_line(take) if chosen is None else take_line(chosen, scheme),
        rejected=take_line(rejected, scheme),
        **made_by,
    )
    good = take.truth if chosen is None else spoken_of(chosen, scheme).codes
    return Pair(line, spoken.identity, spoken.style, spoken.prefix, good, spoken.codes)


def recording_line(take: Take) -> SideLine:
    """The recording as a side: it ends where it ends."""
    return SideLine(source=RECORDING, audio=take.plan.audio, patches=len(take.truth[0]), ended=True)


def take_line(one: Ranked, scheme: Scheme) -> SideLine:
    """A take as a side."""
    spoken, score = spoken_of(one, scheme), score_of(one, scheme)
    return SideLine(
        source=f"{leg_of(scheme).value} {one.take.id}",
        patches=len(spoken.codes[0]),
        ended=spoken.stop is StopReason.EOS,
        seed=one.take.plan.seed,
        cer=score.cer,
        wrong_words=score.wrong_words,
        misfit=score.misfit,
        mos=score.mos,
    )
