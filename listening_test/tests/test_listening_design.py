"""Designs: balanced over listeners, different for each, and the same for the same number."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from marstts.errors import ConfigError
from marstts_listening_test.config import Question, read_listening_test
from marstts_listening_test.design import Anchor, TrialKind, make_design, plan_session, williams_square
from simulated_listeners import DESIGN, SYSTEMS


@pytest.mark.parametrize("count", range(1, 8))
def test_each_system_has_each_position_and_precedes_each_other_one_equally_often(count):
    square = williams_square(count)
    positions = Counter((position, system) for row in square for position, system in enumerate(row))
    neighbors = Counter(pair for row in square for pair in pairwise(row))
    assert len(positions) == count**2 and len(set(positions.values())) == 1
    assert len(neighbors) == count * (count - 1) and len(set(neighbors.values())) <= 1


def ratings(number, question=Question.NATURALNESS):
    return [
        (trial.system, trial.sentence)
        for trial in plan_session(DESIGN, number)
        if trial.question is question and trial.kind is TrialKind.RATING
    ]


def test_a_group_of_listeners_gets_each_sentence_from_every_system_once():
    for question in DESIGN.questions:
        assigned = Counter(pair for number in range(3) for pair in ratings(number, question))
        assert set(assigned.values()) == {1} and len(assigned) == 3 * 12
        assert Counter(sentence for _, sentence in assigned) == dict.fromkeys({name for _, name in assigned}, 3)


def test_a_listener_gets_each_sentence_once_and_all_systems_equally_often():
    for number in range(9):
        assigned = ratings(number)
        assert len({sentence for _, sentence in assigned}) == len(assigned)
        assert Counter(system for system, _ in assigned) == dict.fromkeys(SYSTEMS, 4)


def test_later_groups_use_the_sentences_that_the_first_did_not():
    assert {name for number in range(6) for _, name in ratings(number)} == set(DESIGN.sentences)


def test_each_part_starts_with_examples_and_has_its_attention_checks_and_repeats_among_the_ratings():
    for number in range(20):
        for question, examples in ((Question.NATURALNESS, 3), (Question.SIMILARITY, 2)):
            part = [trial for trial in plan_session(DESIGN, number) if trial.question is question]
            kinds = [trial.kind for trial in part]
            assert kinds[:examples] == [TrialKind.EXAMPLE] * examples and TrialKind.EXAMPLE not in kinds[examples:]
            assert Counter(kinds)[TrialKind.ATTENTION_CHECK] == 2 * 2 and Counter(kinds)[TrialKind.REPEAT] == 3
            anchors = Counter(trial.system for trial in part if trial.kind is TrialKind.ATTENTION_CHECK)
            assert set(anchors.values()) == {2} and Anchor.MIDDLING.value not in anchors
            for place, trial in enumerate(part):
                if trial.kind is TrialKind.REPEAT:
                    assert place - part.index(replace(trial, kind=TrialKind.RATING)) >= 4


def test_attention_checks_are_spread_over_a_part_at_unpredictable_positions():
    places = []
    for number in range(30):
        part = plan_session(DESIGN, number)[3:22]
        mine = [place for place, trial in enumerate(part) if trial.kind is TrialKind.ATTENTION_CHECK]
        assert mine[0] < 8 and mine[-1] >= 9
        places.append(tuple(mine))
    assert len(set(places)) > 20


def test_a_session_is_a_function_of_seed_and_number():
    assert plan_session(DESIGN, 4) == plan_session(DESIGN, 4) != plan_session(DESIGN, 7)
    assert plan_session(DESIGN, 4) != plan_session(replace(DESIGN, seed=4), 4)


@pytest.mark.parametrize(
    ("changes", "sentences", "sentence"),
    [
        ({}, 2, "3 systems need at least as many sentences"),
        ({"per_system": 5}, 13, "per_system is 5; with 13 sentences and 3 systems it is at most 4"),
        ({"repeats": 7, "per_system": 4}, 13, "repeats is 7; of 12 ratings at most 6 can be repeated"),
    ],
)
def test_impossible_designs_are_refused(config, changes, sentences, sentence):
    config = config.model_copy(update={"per_system": None, **changes})
    with pytest.raises(ConfigError, match=sentence):
        make_design(config, [f"s{number}" for number in range(sentences)], ["a"])


def test_by_default_all_sentences_are_used_up_to_eight_per_system(config):
    config = config.model_copy(update={"per_system": None})
    made = [make_design(config, [f"s{n}" for n in range(count)], ["a"]).per_system for count in (11, 13, 40)]
    assert made == [3, 4, 8]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('["naturalness", "similarity"]', '["preference"]', "for preference use `marstts-listening-test ab`"),
        ("recordings =", "# recordings =", "naturalness needs `recordings`"),
        ("references =", "# references =", "similarity needs `references`"),
        ('robot = "', '"../robot" = "', "systems"),
    ],
)  # fmt: skip
def test_files_that_describe_no_test_are_refused_by_the_field(config_file, old, new, sentence):
    text = config_file.read_text(encoding="utf-8")
    assert old in text
    config_file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=sentence):
        read_listening_test(config_file)


def test_paths_are_relative_to_the_file(tmp_path):
    path = tmp_path / "test.toml"
    path.write_text('title = "t"\nrecordings = "r"\n[systems]\na = "takes/a"\n', encoding="utf-8")
    config = read_listening_test(path)
    assert config.systems == {"a": tmp_path / "takes/a"} and config.recordings == tmp_path / "r"
    assert config.references is None and config.database == tmp_path / "answers.sqlite"
