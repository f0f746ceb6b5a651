"""Honest listeners count, random and lazy ones do not; means and intervals against closed forms."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from simulated_listeners import LIKENESS, SYSTEMS, always_four, attend, guess, opinion
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.evaluation.listening.analysis import analyse, score_system
from marstts.evaluation.listening.config import Headphones, Question, Rules
from marstts.evaluation.listening.design import Anchor, Kind, Trial
from marstts.evaluation.listening.store import Answer, Attendance


def verdicts(attendances, **rules):
    return analyse(attendances, Rules(**rules), Headphones.REQUIRED).verdicts


def mostly_low(trial, rng):
    """A pattern that does not depend on what is heard."""
    return 1 + rng.randrange(2) + 2 * (rng.random() < 0.3)


def test_the_filter_keeps_honest_listeners_and_leaves_out_random_and_lazy_ones(config, config_file, invite):
    """Over the host, the store and the command, as it is used."""
    ways = [(guess, 3.0), (always_four, 3.0), (mostly_low, 3.0), (opinion, -9.0), *[(opinion, 3.0)] * 4]
    for seed, (choose, pace) in enumerate(ways):
        invite(choose, seed, pace=pace).go_on()
    result = CliRunner().invoke(app, ["listen", "analyse", str(config_file), "--json"])
    told = json.loads(result.stdout)
    assert [one["counts"] for one in told["listeners"]] == [False] * 4 + [True] * 4
    scores = {(row["question"], row["system"]): row for row in told["scores"]}
    for question, levels in (("naturalness", SYSTEMS), ("similarity", LIKENESS)):
        for system, level in levels.items():
            row = scores[question, system]
            assert (row["ratings"], row["listeners"]) == (4 * 4, 4)
            assert abs(row["mean"] - level) < 0.5 and row["low"] < row["mean"] < row["high"]
    text = CliRunner().invoke(app, ["listen", "analyse", str(config_file)]).stdout
    assert "Listeners: 4 count, 4 left out:" in text and "- listener 2: failed 4 of 8 traps" in text
    assert "before the recording could end" in text and "| source |" in text.splitlines()[4]


def test_guessers_are_caught_and_honest_listeners_kept_by_the_hundred():
    """Guessers are judged beside ten honest listeners, as they would be in a test that is going on."""
    honest = [attend(number) for number in range(100)]
    guessers = [attend(100 + number, guess) for number in range(100)]
    assert sum(not one.counts for one in verdicts(honest)) <= 2
    assert not any(one.counts for one in verdicts([*honest[:10], *guessers])[10:])


def test_each_rule_catches_what_it_is_for():
    """One listener for each rule, with all others off."""
    off = {
        "max_failed_traps": 10, "max_hasty_share": 1.0, "max_constant_share": 1.0, "max_repeat_difference": 1.0,
        "min_correlation": -1.0,
    }  # fmt: skip

    def contrary(trial, rng):
        return max(trial.question.scale) + 1 - opinion(trial, rng)

    def forgetful(trial, rng):
        return 1 if trial.kind is Kind.REPEAT else max(trial.question.scale)

    attendances = [
        *(attend(number) for number in range(4)), attend(4, answered=7), attend(5, headphones=False),
        attend(6, pace=-0.2), attend(7, lambda trial, rng: 3), attend(8, forgetful), attend(9, contrary),
    ]  # fmt: skip

    def left_out(**rules):
        return {place: v.reasons for place, v in enumerate(verdicts(attendances, **{**off, **rules})) if v.reasons}

    always = left_out()
    assert set(always) == {4, 5} and always[4] == ("stopped after 7 of 43",)
    assert always[5] == ("failed the headphone check",)
    assert set(left_out(max_hasty_share=0.1)) == {4, 5, 6}
    assert set(left_out(max_constant_share=0.95)) == {4, 5, 7}
    assert set(left_out(max_repeat_difference=0.45)) == {4, 5, 8}
    assert {7, 9} <= set(left_out(min_correlation=0.3)) and not {0, 1, 2, 3, 6} & set(left_out(min_correlation=0.3))
    assert {7, 8, 9} <= set(left_out(max_failed_traps=0)) and not {0, 1, 2, 3, 6} & set(left_out(max_failed_traps=0))
    assert 7 in left_out(max_failed_traps=3) and 7 not in left_out(max_failed_traps=9)
    naive = analyse(attendances, Rules(**off), Headphones.ASKED).verdicts
    assert naive[5].counts and not naive[4].counts


@pytest.mark.parametrize(
    ("rules", "failed"),
    [({}, 2), ({"lowest_for_clean": 2}, 1), ({"highest_for_degraded": 3}, 1)],
)
def test_the_bounds_of_traps_are_those_of_the_rules(rules, failed):
    trials = [Trial(Question.NATURALNESS, Kind.TRAP, anchor.value, "a") for anchor in (Anchor.CLEAN, Anchor.DEGRADED)]
    answers = [Answer("x", place, trial, 1.0, (2, 3)[place], 9.0) for place, trial in enumerate(trials)]
    found = analyse([Attendance("x", 2, None, answers)], Rules(**rules), Headphones.ANY).verdicts[0]
    assert found.reasons == (f"failed {failed} of 2 traps",)


def test_correlation_is_asked_for_only_among_enough_others():
    attendances = [attend(number) for number in range(4)]
    assert all(one.correlation is not None for one in verdicts(attendances))
    assert all(one.correlation is None for one in verdicts(attendances, min_others=4))


def ratings(choices: np.ndarray) -> list[Answer]:
    """choices (listeners, sentences) of one system."""
    return [
        Answer(f"l{row}", 0, Trial(Question.NATURALNESS, Kind.RATING, "mini", f"s{column}"), 1.0, int(choice), 2.0)
        for row, line in enumerate(choices)
        for column, choice in enumerate(line)
    ]


def test_the_interval_is_that_of_listeners_where_these_differ_and_of_sentences_where_those_do():
    """Closed form: 1.96 standard errors of the mean of the listeners' means, or of the sentences'."""
    rng = np.random.default_rng(0)
    severity = rng.integers(2, 5, 40)[:, None] + np.zeros((40, 30), int)
    for choices, drawn in ((severity, "listeners"), (severity.T, "sentences")):
        score = score_system(Question.NATURALNESS, "mini", ratings(choices))
        error = severity[:, 0].std() / np.sqrt(40)
        assert score.drawn == drawn and score.mean == choices.mean()
        assert score.interval.high - score.interval.low == pytest.approx(2 * 1.96 * error, rel=0.08)


@pytest.mark.parametrize("shape", [(1, 9), (9, 1)])
def test_one_listener_or_one_sentence_has_no_interval(shape):
    choices = np.random.default_rng(0).integers(1, 6, shape)
    assert score_system(Question.NATURALNESS, "mini", ratings(choices)).interval is None


def test_examples_traps_and_repeats_do_not_enter_the_mean():
    answers = ratings(np.full((3, 3), 4))
    others = [replace(one, choice=1, trial=replace(one.trial, kind=Kind.REPEAT)) for one in answers]
    anchors = [
        replace(one, choice=1, trial=Trial(Question.NATURALNESS, kind, Anchor.DEGRADED.value, "a"))
        for one in answers for kind in (Kind.TRAP, Kind.EXAMPLE)
    ]  # fmt: skip
    everything = [*answers, *others, *anchors]
    attendances = [
        Attendance(name, len(own), None, own)
        for name in ("l0", "l1", "l2")
        if (own := [one for one in everything if one.listener == name])
    ]
    rules = Rules(max_repeat_difference=1.0, min_correlation=-1.0)
    (score,) = analyse(attendances, rules, Headphones.ANY).scores
    assert (score.mean, score.ratings, score.system) == (4.0, 9, "mini")
