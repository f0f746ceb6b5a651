"""Whose answers count, and what they say.

Upstream: `store.read_attendance`, `turk.read_results`.  Downstream: `marstts listen analyse`.
MARS6 (arXiv:2501.05787), Sec. V, leaves anomalous listeners out; by which rules is said in `config.Rules`, and a
listener who is left out is named with every rule they broke.

The mean of a system is over ratings (no examples, traps or repeats). Ratings of one listener, and of one sentence, are
alike, so each is drawn again as a whole: once by listeners, once by sentences, and the wider interval is reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from marstts.evaluation.intervals import Interval, bootstrap, ratio
from marstts.evaluation.listening.config import Headphones, Question, Rules
from marstts.evaluation.listening.design import Anchor, Kind
from marstts.evaluation.listening.store import Answer, Attendance


@dataclass(frozen=True)
class Verdict:
    """Whether a listener counts."""

    listener: str
    answered: int
    asked: int
    correlation: float | None
    """With the other listeners' means; None where these are too few."""
    reasons: tuple[str, ...]
    """Why not; empty if they count."""

    @property
    def counts(self) -> bool:
        return not self.reasons


@dataclass(frozen=True)
class Score:
    """What the listeners who count say of a system."""

    question: Question
    system: str
    mean: float
    interval: Interval | None
    """None where it was heard by one listener, or in one sentence: then nobody knows how far it could move."""
    drawn: str
    """Whether listeners or sentences gave the wider interval."""
    ratings: int
    listeners: int


@dataclass(frozen=True)
class Analysis:
    """The result of a listening test."""

    scores: Sequence[Score]
    """By question; the best system first."""
    verdicts: Sequence[Verdict]


def analyse(attendances: Sequence[Attendance], rules: Rules, headphones: Headphones) -> Analysis:
    """Filter the listeners by the rules, and average what is left."""
    broken = {one.name: broken_rules(one, rules, headphones) for one in attendances}
    passed = [one for one in attendances if not broken[one.name]]
    verdicts = [judge(one, broken[one.name], passed, rules) for one in attendances]
    counting = {verdict.listener for verdict in verdicts if verdict.counts}
    answers = [answer for one in attendances if one.name in counting for answer in one.answers]
    return Analysis(average(answers), verdicts)


def judge(one: Attendance, reasons: Sequence[str], passed: Sequence[Attendance], rules: Rules) -> Verdict:
    """A listener's verdict: the rules they broke, and whether they agree with the others who broke none."""
    others = [answer for other in passed if other.name != one.name for answer in other.answers]
    enough = sum(other.name != one.name for other in passed) >= rules.min_others
    correlation = agreement(one.answers, others) if enough else None
    reasons = list(reasons)
    if correlation is not None and correlation < rules.min_correlation:
        reasons.append(f"rank correlation with the others is {correlation:.2f}, below {rules.min_correlation:g}")
    return Verdict(one.name, len(one.answers), one.asked, correlation, tuple(reasons))


def broken_rules(one: Attendance, rules: Rules, headphones: Headphones) -> list[str]:
    """All rules that a listener broke by themselves, in words."""
    reasons = []
    if len(one.answers) < one.asked:
        reasons.append(f"stopped after {len(one.answers)} of {one.asked}")
    if headphones is Headphones.REQUIRED and not one.headphones:
        reasons.append("failed the headphone check" if one.headphones is False else "did not make the headphone check")
    traps = [answer for answer in one.answers if answer.trial.kind is Kind.TRAP]
    failed = sum(fails_trap(answer, rules) for answer in traps)
    if failed > rules.max_failed_traps:
        reasons.append(f"failed {failed} of {len(traps)} traps")
    hasty = sum(answer.seconds < answer.audio_seconds for answer in one.answers)
    if hasty > rules.max_hasty_share * len(one.answers):
        reasons.append(f"answered {hasty} of {len(one.answers)} before the recording could end")
    for question in dict.fromkeys(answer.trial.question for answer in one.answers):
        part = [answer.choice for answer in one.answers if answer.trial.question is question]
        choice, count = Counter(part).most_common(1)[0]
        if count > rules.max_constant_share * len(part):
            reasons.append(f"{question.value}: chose {choice} in {count} of {len(part)} answers")
    differences = repeat_differences(one.answers)
    if differences and np.mean(differences) > rules.max_repeat_difference:
        reasons.append(f"answers to repeated recordings are {np.mean(differences):.0%} of the scale apart on average")
    return reasons


def fails_trap(answer: Answer, rules: Rules) -> bool:
    """Whether an answer to an anchor is one that nobody gives who listens."""
    middle = (1 + max(answer.trial.question.scale)) / 2
    return {
        Anchor.CLEAN: answer.choice < rules.lowest_for_clean,
        Anchor.DEGRADED: answer.choice > rules.highest_for_degraded,
        Anchor.SAME: answer.choice < middle,
        Anchor.OTHER: answer.choice > middle,
        Anchor.MIDDLING: False,
    }[Anchor(answer.trial.system)]


def repeat_differences(answers: Sequence[Answer]) -> list[float]:
    """How far the second answer to a recording is from the first, as a share of the scale's span."""
    first = {answer.trial: answer.choice for answer in answers if answer.trial.kind is Kind.RATING}
    again = [
        (replace(answer.trial, kind=Kind.RATING), answer.choice)
        for answer in answers
        if answer.trial.kind is Kind.REPEAT
    ]
    return [abs(choice - first[trial]) / trial.question.span for trial, choice in again if trial in first]


def agreement(own: Sequence[Answer], others: Sequence[Answer]) -> float:
    """Spearman's correlation of a listener's answers with the others' means of the same system, mean over questions.

    Anchors are in it: they differ so much that whoever listens agrees on them, even where all systems are alike.
    A listener who answers always the same agrees with nobody: 0.
    """
    from scipy import stats  # half a second of imports that serving the page need not wait for

    choices: dict[tuple[Question, str], list[int]] = defaultdict(list)
    for answer in others:
        choices[answer.trial.question, answer.trial.system].append(answer.choice)
    correlations = []
    for question in dict.fromkeys(answer.trial.question for answer in own):
        pairs = [
            (answer.choice, float(np.mean(choices[question, answer.trial.system])))
            for answer in own
            if answer.trial.question is question and (question, answer.trial.system) in choices
        ]
        ranks = [stats.rankdata(column) for column in zip(*pairs, strict=True)]
        varied = all(len(set(rank)) > 1 for rank in ranks) and bool(ranks)
        correlations.append(float(np.corrcoef(ranks)[0, 1]) if varied else 0.0)
    return float(np.mean(correlations)) if correlations else 0.0


def average(answers: Sequence[Answer]) -> list[Score]:
    """A score for every question and system; the best first."""
    groups: dict[tuple[Question, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        if answer.trial.kind is Kind.RATING:
            groups[answer.trial.question, answer.trial.system].append(answer)
    scores = [score_system(question, system, group) for (question, system), group in groups.items()]
    order = list(Question)
    return sorted(scores, key=lambda score: (order.index(score.question), -score.mean, score.system))


def score_system(question: Question, system: str, answers: Sequence[Answer]) -> Score:
    """Mean, interval and counts of one system."""
    ways: dict[str, Callable[[Answer], str]] = {
        "listeners": lambda answer: answer.listener,
        "sentences": lambda answer: answer.trial.sentence,
    }
    intervals = {name: interval_over(answers, key) for name, key in ways.items()}
    known = {name: interval for name, interval in intervals.items() if interval is not None}
    complete = len(known) == len(ways)
    widest = max(known, key=lambda name: known[name].high - known[name].low) if complete else ""
    return Score(
        question, system,
        mean=float(np.mean([answer.choice for answer in answers])),
        interval=known.get(widest), drawn=widest, ratings=len(answers),
        listeners=len({answer.listener for answer in answers}),
    )  # fmt: skip


def interval_over(answers: Sequence[Answer], unit: Callable[[Answer], str]) -> Interval | None:
    """The interval of the mean where units are drawn again with all their answers; None where there is one unit."""
    groups = [list(group) for _, group in groupby(sorted(answers, key=unit), key=unit)]
    if len(groups) < 2:
        return None
    sums = np.array([[sum(answer.choice for answer in group), len(group)] for group in groups], dtype=float)
    return bootstrap(sums, ratio)


def as_json(analysis: Analysis, rules: Rules) -> dict[str, Any]:
    """The result for programs, with the rules that made it."""
    return {
        "scores": [
            {
                "question": score.question.value, "system": score.system, "mean": score.mean,
                "low": score.interval.low if score.interval else None,
                "high": score.interval.high if score.interval else None,
                "drawn": score.drawn or None, "ratings": score.ratings, "listeners": score.listeners,
            }
            for score in analysis.scores
        ],
        "listeners": [
            {
                "listener": verdict.listener, "counts": verdict.counts, "answered": verdict.answered,
                "asked": verdict.asked, "correlation": verdict.correlation, "reasons": list(verdict.reasons),
            }
            for verdict in analysis.verdicts
        ],
        "rules": rules.model_dump(mode="json"),
    }  # fmt: skip


def as_markdown(analysis: Analysis) -> str:
    """The result for people."""
    lines = []
    for question, scores in groupby(analysis.scores, key=lambda score: score.question):
        rows = list(scores)
        lines += [
            f"## {question.value}, {min(question.scale)} to {max(question.scale)}",
            "",
            "| system | mean [95 % interval] | ratings | listeners |",
            "|---|---|---|---|",
            *(f"| {row.system} | {format_score(row)} | {row.ratings} | {row.listeners} |" for row in rows),
            "",
        ]
    out = [verdict for verdict in analysis.verdicts if not verdict.counts]
    lines += [f"Listeners: {len(analysis.verdicts) - len(out)} count, {len(out)} left out" + (":" if out else ".")]
    lines += [f"- {verdict.listener}: {'; '.join(verdict.reasons)}" for verdict in out]
    return "\n".join(lines)


def format_score(score: Score) -> str:
    if score.interval is None:
        return f"{score.mean:.2f} (no interval: one listener or one sentence)"
    return score.interval.format(2)
