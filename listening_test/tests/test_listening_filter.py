"""Attentive listeners count, random and straightlining ones do not; means and intervals match closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marstts_listening_test.analysis import analyze, rate_system
from marstts_listening_test.config import Headphones, Question, Rules
from marstts_listening_test.design import Anchor, ListeningTrial, TrialKind
from marstts_listening_test.store import Answer, SessionRecord
from simulated_listeners import guess, opinion, simulate_record


def checks(records, **rules):
    return analyze(records, Rules(**rules), Headphones.REQUIRED).checks


@pytest.mark.slow
def test_a_hundred_guessers_are_excluded_and_a_hundred_attentive_listeners_kept():
    """Guessers are compared with ten attentive listeners, as in a running test."""
    honest = [simulate_record(number) for number in range(100)]
    guessers = [simulate_record(100 + number, guess) for number in range(100)]
    assert sum(not one.counts for one in checks(honest)) <= 2
    assert not any(one.counts for one in checks([*honest[:10], *guessers])[10:])


@pytest.mark.slow
def test_each_rule_excludes_its_kind_of_listener():
    """One listener for each rule, with all other rules off."""
    off = {
        "max_failed_attention_checks": 10,
        "max_rushed_ratio": 1.0,
        "max_straightlining_ratio": 1.0,
        "max_retest_difference": 1.0,
        "min_correlation": -1.0,
    }

    def contrary(trial, rng):
        return max(trial.question.scale) + 1 - opinion(trial, rng)

    def forgetful(trial, rng):
        return 1 if trial.kind is TrialKind.REPEAT else max(trial.question.scale)

    records = [
        *(simulate_record(number) for number in range(4)),
        simulate_record(4, answered=7),
        simulate_record(5, headphones=False),
        simulate_record(6, pace=-0.2),
        simulate_record(7, lambda trial, rng: 3),
        simulate_record(8, forgetful),
        simulate_record(9, contrary),
    ]

    def excluded(**rules):
        return {place: v.reasons for place, v in enumerate(checks(records, **{**off, **rules})) if v.reasons}

    always = excluded()
    assert set(always) == {4, 5} and always[4] == ("stopped after 7 of 43",)
    assert always[5] == ("failed the headphone check",)
    assert set(excluded(max_rushed_ratio=0.1)) == {4, 5, 6}
    assert set(excluded(max_straightlining_ratio=0.95)) == {4, 5, 7}
    assert set(excluded(max_retest_difference=0.45)) == {4, 5, 8}
    assert {7, 9} <= set(excluded(min_correlation=0.3)) and not {0, 1, 2, 3, 6} & set(excluded(min_correlation=0.3))
    assert {7, 8, 9} <= set(excluded(max_failed_attention_checks=0)) and not {0, 1, 2, 3, 6} & set(
        excluded(max_failed_attention_checks=0)
    )
    assert 7 in excluded(max_failed_attention_checks=3) and 7 not in excluded(max_failed_attention_checks=9)
    naive = analyze(records, Rules(**off), Headphones.ASKED).checks
    assert naive[5].counts and not naive[4].counts


@pytest.mark.parametrize(
    ("rules", "failed"),
    [({}, 2), ({"lowest_for_clean": 2}, 1), ({"highest_for_degraded": 3}, 1)],
)
def test_the_rules_bound_the_ratings_of_anchors(rules, failed):
    trials = [
        ListeningTrial(Question.NATURALNESS, TrialKind.ATTENTION_CHECK, anchor.value, "a")
        for anchor in (Anchor.CLEAN, Anchor.DEGRADED)
    ]
    answers = [Answer("x", place, trial, 1.0, (2, 3)[place], 9.0) for place, trial in enumerate(trials)]
    found = analyze([SessionRecord("x", 2, None, answers)], Rules(**rules), Headphones.ANY).checks[0]
    assert found.reasons == (f"failed {failed} of 2 attention checks",)


def test_correlation_is_computed_only_with_enough_other_listeners():
    records = [simulate_record(number) for number in range(4)]
    assert all(one.correlation is not None for one in checks(records))
    assert all(one.correlation is None for one in checks(records, min_others=4))


def ratings(choices: np.ndarray) -> list[Answer]:
    """choices (listeners, sentences) of one system."""
    return [
        Answer(
            f"l{row}",
            0,
            ListeningTrial(Question.NATURALNESS, TrialKind.RATING, "mini", f"s{column}"),
            1.0,
            int(choice),
            2.0,
        )
        for row, line in enumerate(choices)
        for column, choice in enumerate(line)
    ]


def test_the_wider_interval_is_over_listeners_where_these_differ_and_over_sentences_where_those_do():
    """Closed form: 1.96 standard errors of the mean of the listeners' means, or of the sentences'."""
    rng = np.random.default_rng(0)
    severity = rng.integers(2, 5, 40)[:, None] + np.zeros((40, 30), int)
    for choices, unit in ((severity, "listeners"), (severity.T, "sentences")):
        score = rate_system(Question.NATURALNESS, "mini", ratings(choices))
        error = severity[:, 0].std() / np.sqrt(40)
        assert score.resampled == unit and score.mean == choices.mean()
        assert score.interval.high - score.interval.low == pytest.approx(2 * 1.96 * error, rel=0.08)


def test_examples_attention_checks_and_repeats_do_not_enter_the_mean():
    answers = ratings(np.full((3, 3), 4))
    others = [replace(one, choice=1, trial=replace(one.trial, kind=TrialKind.REPEAT)) for one in answers]
    anchors = [
        replace(one, choice=1, trial=ListeningTrial(Question.NATURALNESS, kind, Anchor.DEGRADED.value, "a"))
        for one in answers for kind in (TrialKind.ATTENTION_CHECK, TrialKind.EXAMPLE)
    ]  # fmt: skip
    everything = [*answers, *others, *anchors]
    records = [
        SessionRecord(name, len(answers), None, answers)
        for name in ("l0", "l1", "l2")
        if (answers := [one for one in everything if one.listener == name])
    ]
    rules = Rules(max_retest_difference=1.0, min_correlation=-1.0)
    (score,) = analyze(records, rules, Headphones.ANY).ratings
    assert (score.mean, score.num_ratings, score.system) == (4.0, 9, "mini")
