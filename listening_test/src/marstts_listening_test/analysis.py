"""Excluding listeners by rules, and the mean ratings of the others.

Upstream: `store.read_records`.  Downstream: `marstts-listening-test analyze`.
MARS6 (arXiv:2501.05787), Sec. V, excludes anomalous listeners; `config.Rules` defines them, and an excluded listener is
reported with every rule they broke.

A system's mean is over ratings (no examples, attention checks or repeats). Ratings by one listener, and of one
sentence, are correlated. Each is therefore resampled as a cluster: once by listeners, once by sentences. The wider
interval is reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from marstts_lab.metrics.intervals import Interval, bootstrap, ratio
from marstts_listening_test.config import Headphones, Question, Rules
from marstts_listening_test.design import Anchor, TrialKind
from marstts_listening_test.store import Answer, SessionRecord


@dataclass(frozen=True)
class ListenerCheck:
    """Whether a listener counts, and why not."""

    listener: str
    num_answers: int
    num_trials: int
    correlation: float | None
    """Rank correlation with the other listeners' means; None where there are too few."""
    reasons: tuple[str, ...]
    """Rules that the listener broke; empty if they count."""

    @property
    def counts(self) -> bool:
        """Whether the listener's answers enter the means."""
        return not self.reasons


@dataclass(frozen=True)
class SystemRating:
    """The mean rating of a system by the listeners who count."""

    question: Question
    system: str
    mean: float
    interval: Interval | None
    """None where there is one listener or one sentence: their spread is unknown."""
    resampled: str
    """The clusters of the wider interval, "listeners" or "sentences"; empty without an interval."""
    num_ratings: int
    num_listeners: int


@dataclass(frozen=True)
class Analysis:
    """The result of a listening test."""

    ratings: Sequence[SystemRating]
    """Ordered by question, the best system first."""
    checks: Sequence[ListenerCheck]


def analyze(records: Sequence[SessionRecord], rules: Rules, headphones: Headphones) -> Analysis:
    """Exclude listeners by the rules, and average the others' ratings."""
    broken = {record.name: broken_rules(record, rules, headphones) for record in records}
    passed = [record for record in records if not broken[record.name]]
    checks = [check_listener(record, broken[record.name], passed, rules) for record in records]
    counting = {check.listener for check in checks if check.counts}
    answers = [answer for record in records if record.name in counting for answer in record.answers]
    return Analysis(rate_systems(answers), checks)


def check_listener(
    record: SessionRecord, reasons: Sequence[str], passed: Sequence[SessionRecord], rules: Rules
) -> ListenerCheck:
    """The rules a listener broke, agreement with the other listeners who broke none among them."""
    others = [answer for other in passed if other.name != record.name for answer in other.answers]
    enough = sum(other.name != record.name for other in passed) >= rules.min_others
    correlation = agreement(record.answers, others) if enough else None
    reasons = list(reasons)
    if correlation is not None and correlation < rules.min_correlation:
        reasons.append(f"rank correlation with the others is {correlation:.2f}, below {rules.min_correlation:g}")
    return ListenerCheck(record.name, len(record.answers), record.num_trials, correlation, tuple(reasons))


def broken_rules(record: SessionRecord, rules: Rules, headphones: Headphones) -> list[str]:
    """All rules that a listener's answers break, regardless of other listeners, as sentences."""
    reasons = []
    if len(record.answers) < record.num_trials:
        reasons.append(f"stopped after {len(record.answers)} of {record.num_trials}")
    if headphones is Headphones.REQUIRED and not record.headphones:
        failed_check = record.headphones is False
        reasons.append("failed the headphone check" if failed_check else "did not take the headphone check")
    checks = [answer for answer in record.answers if answer.trial.kind is TrialKind.ATTENTION_CHECK]
    failed = sum(fails_attention_check(answer, rules) for answer in checks)
    if failed > rules.max_failed_attention_checks:
        reasons.append(f"failed {failed} of {len(checks)} attention checks")
    rushed = sum(answer.response_seconds < answer.audio_seconds for answer in record.answers)
    if rushed > rules.max_rushed_ratio * len(record.answers):
        reasons.append(f"answered {rushed} of {len(record.answers)} before the recording could end")
    for question in dict.fromkeys(answer.trial.question for answer in record.answers):
        part = [answer.choice for answer in record.answers if answer.trial.question is question]
        choice, count = Counter(part).most_common(1)[0]
        if count > rules.max_straightlining_ratio * len(part):
            reasons.append(f"{question.value}: chose {choice} in {count} of {len(part)} answers")
    differences = retest_differences(record.answers)
    if differences and np.mean(differences) > rules.max_retest_difference:
        reasons.append(f"answers to repeated recordings are {np.mean(differences):.0%} of the scale apart on average")
    return reasons


def fails_attention_check(answer: Answer, rules: Rules) -> bool:
    """Whether an answer to an anchor is one that an attentive listener does not give."""
    middle = (1 + max(answer.trial.question.scale)) / 2
    return {
        Anchor.CLEAN: answer.choice < rules.lowest_for_clean,
        Anchor.DEGRADED: answer.choice > rules.highest_for_degraded,
        Anchor.SAME: answer.choice < middle,
        Anchor.OTHER: answer.choice > middle,
        Anchor.MIDDLING: False,
    }[Anchor(answer.trial.system)]


def retest_differences(answers: Sequence[Answer]) -> list[float]:
    """Differences between the two answers to each repeated recording, as fractions of the scale's span."""
    first = {answer.trial: answer.choice for answer in answers if answer.trial.kind is TrialKind.RATING}
    again = [
        (replace(answer.trial, kind=TrialKind.RATING), answer.choice)
        for answer in answers
        if answer.trial.kind is TrialKind.REPEAT
    ]
    return [abs(choice - first[trial]) / trial.question.span for trial, choice in again if trial in first]


def agreement(answers: Sequence[Answer], others: Sequence[Answer]) -> float:
    """Spearman's correlation of a listener's answers with the others' means of the same system, mean over questions.

    Anchors are included: they differ so much that attentive listeners agree on them, even where all systems are alike.
    The correlation of answers that are all the same is defined as 0.
    """
    from scipy import stats  # half a second of imports that serving the page need not wait for

    choices: dict[tuple[Question, str], list[int]] = defaultdict(list)
    for answer in others:
        choices[answer.trial.question, answer.trial.system].append(answer.choice)
    correlations = []
    for question in dict.fromkeys(answer.trial.question for answer in answers):
        pairs = [
            (answer.choice, float(np.mean(choices[question, answer.trial.system])))
            for answer in answers
            if answer.trial.question is question and (question, answer.trial.system) in choices
        ]
        varied = all(len(set(column)) > 1 for column in zip(*pairs, strict=True)) and bool(pairs)
        correlations.append(float(stats.spearmanr(pairs).statistic) if varied else 0.0)
    return float(np.mean(correlations)) if correlations else 0.0


def rate_systems(answers: Sequence[Answer]) -> list[SystemRating]:
    """The rating of every system under every question; the best first."""
    groups: dict[tuple[Question, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        if answer.trial.kind is TrialKind.RATING:
            groups[answer.trial.question, answer.trial.system].append(answer)
    ratings = [rate_system(question, system, group) for (question, system), group in groups.items()]
    order = list(Question)
    return sorted(ratings, key=lambda rating: (order.index(rating.question), -rating.mean, rating.system))


def rate_system(question: Question, system: str, answers: Sequence[Answer]) -> SystemRating:
    """Mean, interval and counts of one system."""
    units: dict[str, Callable[[Answer], str]] = {
        "listeners": lambda answer: answer.listener,
        "sentences": lambda answer: answer.trial.sentence,
    }
    intervals = {name: interval_over(answers, unit) for name, unit in units.items()}
    known = {name: interval for name, interval in intervals.items() if interval is not None}
    is_complete = len(known) == len(units)
    widest = max(known, key=lambda name: known[name].high - known[name].low) if is_complete else ""
    return SystemRating(
        question, system,
        mean=float(np.mean([answer.choice for answer in answers])),
        interval=known.get(widest), resampled=widest, num_ratings=len(answers),
        num_listeners=len({answer.listener for answer in answers}),
    )  # fmt: skip


def interval_over(answers: Sequence[Answer], unit: Callable[[Answer], str]) -> Interval | None:
    """The bootstrap interval of the mean where units are resampled with all their answers (percentile method).

    None where there is one unit, which does not show how much units differ.
    """
    clusters: dict[str, list[int]] = defaultdict(list)
    for answer in sorted(answers, key=unit):
        clusters[unit(answer)].append(answer.choice)
    if len(clusters) < 2:
        return None
    return bootstrap(np.array([[sum(cluster), len(cluster)] for cluster in clusters.values()], float), ratio)


def as_json(analysis: Analysis, rules: Rules) -> dict[str, Any]:
    """The result for programs, with the rules that were applied."""
    return {
        "ratings": [
            {
                "question": rating.question.value, "system": rating.system, "mean": rating.mean,
                "low": rating.interval.low if rating.interval else None,
                "high": rating.interval.high if rating.interval else None,
                "resampled": rating.resampled or None, "num_ratings": rating.num_ratings,
                "num_listeners": rating.num_listeners,
            }
            for rating in analysis.ratings
        ],
        "listeners": [
            {
                "listener": check.listener, "counts": check.counts, "num_answers": check.num_answers,
                "num_trials": check.num_trials, "correlation": check.correlation, "reasons": list(check.reasons),
            }
            for check in analysis.checks
        ],
        "rules": rules.model_dump(mode="json"),
    }  # fmt: skip


def as_markdown(analysis: Analysis) -> str:
    """The result as a table and a list."""
    lines = []
    for question, ratings in groupby(analysis.ratings, key=lambda rating: rating.question):
        rows = list(ratings)
        lines += [
            f"## {question.value}, {min(question.scale)} to {max(question.scale)}",
            "",
            "| system | mean [95 % interval] | ratings | listeners |",
            "|---|---|---|---|",
            *(f"| {row.system} | {format_mean(row)} | {row.num_ratings} | {row.num_listeners} |" for row in rows),
            "",
        ]
    excluded = [check for check in analysis.checks if not check.counts]
    num_counting = len(analysis.checks) - len(excluded)
    lines += [f"Listeners: {num_counting} count, {len(excluded)} excluded" + (":" if excluded else ".")]
    lines += [f"- {check.listener}: {'; '.join(check.reasons)}" for check in excluded]
    return "\n".join(lines)


def format_mean(rating: SystemRating) -> str:
    """Mean and interval of a system as text."""
    if rating.interval is None:
        return f"{rating.mean:.2f} (no interval: one listener or one sentence)"
    return rating.interval.format(2)
