"""Rules are tried only where they can match; that changes nothing but the time."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from marstts.text import prefilter
from marstts.text.prefilter import analyze, key_of, prefilter_of
from marstts.text.prefilter_grams import required_grams, strings_of, tokens_of, within_spaces
from marstts.text.prefilter_tokens import token_parts
from marstts.text.prefilter_words import required_words
from marstts.text.rules.engine import Plan, Rule, Trace, apply_all, plan_of, rule
from marstts.text.rules.order import MARKUP, RULES

ROWS = (Path(__file__).parent / "written_forms.tsv").read_text(encoding="utf-8").splitlines()
TEXTS = [" ".join(line.split("\t")[0] for line in ROWS[start : start + 5]) for start in range(0, len(ROWS), 15)]


@pytest.mark.parametrize("text", TEXTS)
def test_no_match_is_skipped(text: str) -> None:
    plan = plan_of(RULES)
    tried = plan.may_match(plan.held(text))
    for place, each in enumerate(plan.rules):
        matches = list(each.pattern.finditer(text))
        assert tried >> place & 1 or not matches or each.words, (each.name, each.source)
        assert [match.span() for match in each.matches(text)] == [match.span() for match in matches], each.name


def test_what_a_pattern_needs_is_found() -> None:
    found = analyze(r"(?<![0-9])[0-9]{1,2}:(?P<minute>[0-9]{2})")
    assert found.first == frozenset("0123456789")
    assert frozenset({"0:00"}) in found.grams


@pytest.mark.parametrize(
    ("source", "group"),
    [
        (r"(?<=[A-Z]{2})([1-9])s(?![A-Za-z0-9])", {"0s"}),
        (r"[0-9] ?(?:am|pm)", {"am", "pm"}),
        (r"[0-9] ?x", {"0x", " x"}),  # a part that may be missing leaves both neighbors
        (r"(?<![a-z])to(?= [0-9])", {"to 0"}),  # has a space inside, so it is not asked for
        (r"(?:ab)+", {"ab"}),
        (r"a(\S)\1b", {"a!"}),  # what follows may be anything
    ],
)
def test_strings_that_every_match_holds_are_found(source: str, group: set[str]) -> None:
    found = required_grams(list(importlib.import_module(prefilter._MODULE).parse(source)))
    may_be_asked = all(" " not in gram[1:-1] for gram in group) and group != {"a!"}
    assert (frozenset(group) in found) == may_be_asked


def test_strings_of_a_token_are_those_of_the_text_around_it() -> None:
    text = 'Take 12x4" boards, 5km/h!'
    heads = (" 0", "00", "x0", "km", "/h")
    held = set().union(*(strings_of(within_spaces(token), heads, 4) for token in tokens_of(text)))
    for gram in (" 00", "00x0", 'x0"', "km/", "/h! "):
        assert gram in held, gram
    assert "12" not in held and "s 0" not in held


@pytest.mark.parametrize(
    ("source", "held", "not_held"),
    [
        (r"(?<![A-Za-z])zip: (?=[0-9]{1,4} ?KB)", ["zip:"], ["zip", "gzip:", "zip:x"]),
        (r"[1-9][0-9]?(?:st|nd|rd|th)(?= [A-Z])", ["00th", "0st"], ["000", "th", "0the"]),
        (r"9/11(?=[,;)]|$)", ["0/00", "0/00,"], ["0/0", "0/000"]),
        (r"(?<=\bin )(?:cm|mm)", ["cm", "mm"], ["xcm", "m"]),
    ],
)
def test_a_part_of_a_pattern_is_searched_in_one_token(source: str, held: list[str], not_held: list[str]) -> None:
    parse = importlib.import_module(prefilter._MODULE).parse
    (_, part), *_ = token_parts(list(parse(source)), parse)
    assert [token for token in held + not_held if re.search(part, f" {token} ")] == held


def test_a_rule_whose_parts_touch_a_long_token_is_tried() -> None:
    rules = (rule("test", r"ab[0-9]{60}x", "found"),)
    assert apply_all(rules, f"ab{'1' * 60}x", Trace()) == "found"


def test_a_token_that_an_earlier_rule_made_is_searched_for_parts() -> None:
    rules = (rule("first", "q", "bc", parted=False), rule("second", "abcd(?= )", "found"))
    assert apply_all(rules, "x aqd y", Trace()) == "x found y"


@pytest.mark.slow
def test_the_stored_facts_are_those_of_the_patterns() -> None:
    """If this fails: python tools/text_prefilters.py."""
    stored = (Path(prefilter.__file__).parent / "data" / "prefilters.json").read_text(encoding="utf-8")
    patterns = {(each.source, not each.words) for each in (*MARKUP, *RULES)}
    assert set(json.loads(stored)) == {key_of(*each) for each in patterns}
    for each in patterns:
        assert prefilter_of(*each) == analyze(*each), each


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (r"(?<![A-Za-z])(Mr|Mrs?)\. ", [{"Mr", "Mrs"}]),
        (r"(?<![A-Za-z])Mr", []),  # Mrs holds it, and is another word
        (r"(?<=, )(Ky|Va)\.", [{"Ky", "Va"}]),
        (r"\b([Nn])o\. (?=[0-9])", [{"No", "no"}]),
        (r"[0-9]+ (?:(?:ft|in)|km)\b", [{"ft", "in", "km"}]),
        (r"(?:a|b)?(?![a-z])", []),
        (r"(?<![A-Za-z])(?:[a-z]x| y)", []),
    ],
)
def test_words_that_every_match_holds_are_found(source: str, words: list[set[str]]) -> None:
    tree = importlib.import_module(prefilter._MODULE).parse(source)
    assert [set(group) for group in required_words(list(tree))] == words


@pytest.mark.parametrize("source", [r"a?", r"(?i:ab)", r"\w+x", r"[^a]b"])
def test_patterns_that_tell_little_are_tried_everywhere(source: str) -> None:
    assert analyze(source).first is None


def test_words_that_a_rule_makes_are_seen_by_the_next() -> None:
    rules: tuple[Rule, ...] = (rule("one", "#", "number "), rule("two", "number (?=[0-9])", "No. ", words=["number"]))
    assert apply_all(rules, "#5", Trace()) == "No. 5"


def test_what_a_change_adds_is_seen_with_its_neighbors() -> None:
    rules: tuple[Rule, ...] = (rule("one", "#", "No", parted=False), rule("two", "No(?=[0-9]{4})", "number "))
    assert apply_all(rules, "a #1234", Trace()) == "a number 1234"


def test_no_rule_is_missed_among_those_that_may_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading is that of all rules tried everywhere."""
    texts = TEXTS[::4]
    filtered = [apply_all(RULES, text, Trace()) for text in texts]
    monkeypatch.setattr(Plan, "may_match", lambda plan, held: (1 << len(plan.rules)) - 1)
    assert [apply_all(RULES, text, Trace()) for text in texts] == filtered
