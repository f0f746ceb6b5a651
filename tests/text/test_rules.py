"""Rules are tried only where they can match; that changes nothing but the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from marstts.text.normalize import RULES
from marstts.text.prefilter import analyze
from marstts.text.rules import Rule, Text, Trace, apply_all, members_of, plan_of, rule

ROWS = (Path(__file__).parent / "written_forms.tsv").read_text(encoding="utf-8").splitlines()
TEXTS = [" ".join(line.split("\t")[0] for line in ROWS[start : start + 5]) for start in range(0, len(ROWS), 15)]


@pytest.mark.parametrize("text", TEXTS)
def test_no_match_is_skipped(text: str) -> None:
    plan = plan_of(RULES)
    held = plan.held(members_of(text))
    for needed, each in plan.steps:
        matches = list(each.pattern.finditer(text))
        assert needed & held == needed or not matches or each.words, (each.name, each.source)
        assert [match.span() for match in each._matches(Text(text))] == [match.span() for match in matches], each.name


def test_what_a_pattern_needs_is_found() -> None:
    found = analyze(r"(?<![0-9])[0-9]{1,2}:(?P<minute>[0-9]{2})")
    assert found.first == frozenset("0123456789") and found.starts_runs
    assert frozenset(":") in found.required
    assert frozenset({"0:"}) in found.pairs and frozenset({":0"}) in found.pairs


@pytest.mark.parametrize("source", [r"a?", r"(?i:ab)", r"\w+x", r"[^a]b"])
def test_patterns_that_tell_little_are_tried_everywhere(source: str) -> None:
    assert analyze(source).first is None


def test_words_that_a_rule_makes_are_seen_by_the_next() -> None:
    rules: tuple[Rule, ...] = (rule("one", "#", "number "), rule("two", "number (?=[0-9])", "No. ", words=["number"]))
    assert apply_all(rules, "#5", Trace()) == "No. 5"
