"""Tables from hand-made scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marstts.evaluation.metrics.length import Verdict
from marstts.evaluation.report import summarize, write_report
from marstts.evaluation.score import TakeScore

PERFECT = {
    "speaker": "anna",
    "style": "regular",
    "seconds": 2.0,
    "source_seconds": 2.0,
    "verdict": Verdict.PLAUSIBLE,
    "problem": None,
    "heard": "",
    "word_errors": 0,
    "words": 5,
    "character_errors": 0,
    "characters": 20,
    "right_choices": 3,
    "choices": 3,
    "words_unknown": 0,
    "worst_word": "x",
    "worst_word_score": -3.0,
    "word_fault": False,
    "speaker_pairs": 6,
    "nearer_by_model": 6,
    "similarity_by_model": 0.9,
    "nearer_by_independent": 5,
    "similarity_by_independent": 0.8,
}
NOTHING = {
    "seconds": 0.0,
    "verdict": Verdict.MISSING,
    "problem": "no such take",
    "word_errors": 5,
    "character_errors": 20,
    "right_choices": 0,
    "word_fault": True,
    "nearer_by_model": 0,
    "nearer_by_independent": 0,
    "similarity_by_model": 0.0,
    "similarity_by_independent": 0.0,
}


def score(system: str, trial: str, **changed: object) -> TakeScore:
    return TakeScore(**{**PERFECT, "system": system, "trial": trial, **changed})


SCORES = [
    score("codec", "t1", character_errors=1),
    score("codec", "t2", character_errors=1),
    score("codec", "t3", character_errors=1, characters=60),
    score("mini", "t1", character_errors=2, word_errors=1, seconds=5.0, verdict=Verdict.TOO_LONG),
    score("mini", "t2", **NOTHING),
    score("mini", "t3", character_errors=3, characters=60, seconds=3.0, words_unknown=2),
]


def test_scores_are_ratios_of_sums():
    codec, mini = summarize(SCORES)
    values = {key: interval.value for key, interval in mini.scores.items()}
    assert (codec.system, mini.system, mini.takes) == ("codec", "mini", 3)
    assert values["cer"] == pytest.approx(25 / 100)
    assert values["wer"] == pytest.approx(6 / 15)
    assert values["word_choice"] == pytest.approx(6 / 9)
    assert values["word_faults"] == pytest.approx(1 / 3)
    assert values["length"] == pytest.approx((2.5 + 1.5) / 2)  # the missing take has no length to speak of
    assert values["pairs_model"] == pytest.approx(12 / 18)
    assert values["pairs_independent"] == pytest.approx(10 / 18)
    assert values["similarity_model"] == pytest.approx(1.8 / 3)
    assert mini.words_unknown == 2


def test_errors_are_divided_by_the_codecs_on_the_same_sentences():
    codec, mini = summarize(SCORES)
    assert codec.cer_over_ceiling.value == 1.0
    assert mini.cer_over_ceiling.value == pytest.approx(25 / 3)
    _, partial = summarize([*SCORES[:2], *SCORES[3:]])
    assert partial.cer_over_ceiling.value == pytest.approx((22 / 40) / (2 / 40))
    [alone] = summarize(SCORES[3:])
    assert alone.cer_over_ceiling is None


def test_implausible_takes_are_counted_and_named():
    _, mini = summarize(SCORES)
    assert mini.verdicts == {Verdict.TOO_LONG: 1, Verdict.MISSING: 1, Verdict.PLAUSIBLE: 1}
    assert mini.faults == ["t1: too long, 5.0 s for 2.0 s", "t2: missing, no such take"]


def test_a_measure_some_takes_lack_is_not_averaged_over_the_rest():
    half_judged = [score("mini", "t1"), score("mini", "t2", nearer_by_model=None, similarity_by_model=None)]
    [summary] = summarize(half_judged)
    assert summary.scores["pairs_model"] is None
    assert summary.scores["pairs_independent"].value == pytest.approx(10 / 12)


def test_report_files_hold_every_system_and_fault(tmp_path: Path):
    write_report(SCORES, tmp_path, {"test set": "three sentences"})
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["facts"] == {"test set": "three sentences"}
    codec, mini = results["systems"]
    assert codec["scores"]["cer"]["value"] == pytest.approx(0.03)
    assert mini["verdicts"] == {"too long": 1, "missing": 1, "plausible": 1}

    markdown = (tmp_path / "results.md").read_text()
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and len({row.count("|") for row in rows}) == 1
    assert rows[3].startswith("| mini | 3 | 0.250 [") and rows[3].endswith("| 1 / 0 / 1 |")
    assert "- mini: t2: missing, no such take" in markdown
    assert "left out of both: mini 2." in markdown


def test_columns_nobody_was_judged_by_are_left_out(tmp_path: Path):
    write_report([score("mini", "t1", nearer_by_model=None, similarity_by_model=None)], tmp_path, {})
    markdown = (tmp_path / "results.md").read_text()
    assert "own speaker, independent encoder" in markdown and "own speaker, model's encoder" not in markdown
    assert "No take is too long, too short, empty or missing." in markdown
