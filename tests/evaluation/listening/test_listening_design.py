"""Who hears what: balanced over listeners, fresh for each, and the same for the same number."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from simulated_listeners import DESIGN, SYSTEMS

from marstts.errors import ConfigError
from marstts.evaluation.listening.config import Question, read_listening_test
from marstts.evaluation.listening.design import Anchor, Kind, make_design, plan_session, williams_square


@pytest.mark.parametrize("count", range(1, 8))
def test_each_system_stands_in_each_place_and_before_each_other_one_equally_often(count):
    square = williams_square(count)
    places = Counter((place, system) for row in square for place, system in enumerate(row))
    neighbours = Counter(pair for row in square for pair in pairwise(row))
    assert len(places) == count**2 and len(set(places.values())) == 1
    assert len(neighbours) == count * (count - 1) and len(set(neighbours.values())) <= 1


def ratings(number, question=Question.NATURALNESS):
    return [
        (trial.system, trial.sentence)
        for trial in plan_session(DESIGN, number)
        if trial.question is question and trial.kind is Kind.RATING
    ]


def test_a_group_of_listeners_hears_each_of_its_sentences_from_every_system_once():
    for question in DESIGN.questions:
        heard = Counter(pair for number in range(3) for pair in ratings(number, question))
        assert set(heard.values()) == {1} and len(heard) == 3 * 12
        assert Counter(sentence for _, sentence in heard) == dict.fromkeys({name for _, name in heard}, 3)


def test_nobody_hears_a_sentence_from_two_systems_and_all_systems_equally_often():
    for number in range(9):
        heard = ratings(number)
        assert len({sentence for _, sentence in heard}) == len(heard)
        assert Counter(system for system, _ in heard) == dict.fromkeys(SYSTEMS, 4)


def test_later_groups_reach_the_sentences_that_the_first_did_not():
    assert {name for number in range(6) for _, name in ratings(number)} == set(DESIGN.sentences)


def test_each_part_begins_with_examples_and_has_its_traps_and_repeats_among_the_ratings():
    for number in range(20):
        for question, examples in ((Question.NATURALNESS, 3), (Question.SIMILARITY, 2)):
            part = [trial for trial in plan_session(DESIGN, number) if trial.question is question]
            kinds = [trial.kind for trial in part]
            assert kinds[:examples] == [Kind.EXAMPLE] * examples and Kind.EXAMPLE not in kinds[examples:]
            assert Counter(kinds)[Kind.TRAP] == 2 * 2 and Counter(kinds)[Kind.REPEAT] == 3
            anchors = Counter(trial.system for trial in part if trial.kind is Kind.TRAP)
            assert set(anchors.values()) == {2} and Anchor.MIDDLING.value not in anchors
            for place, trial in enumerate(part):
                if trial.kind is Kind.REPEAT:
                    assert place - part.index(replace(trial, kind=Kind.RATING)) >= 4


def test_traps_are_spread_over_a_part_and_stand_at_places_nobody_can_learn():
    places = []
    for number in range(30):
        part = plan_session(DESIGN, number)[3:22]
        mine = [place for place, trial in enumerate(part) if trial.kind is Kind.TRAP]
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
        ({"repeats": 7, "per_system": 4}, 13, "repeats is 7; of 12 ratings at most 6 can recur"),
    ],
)
def test_designs_that_cannot_be_are_refused(config, changes, sentences, sentence):
    config = config.model_copy(update={"per_system": None, **changes})
    with pytest.raises(ConfigError, match=sentence):
        make_design(config, [f"s{number}" for number in range(sentences)], ["a"])


def test_without_a_number_as_many_sentences_are_heard_as_there_are_up_to_eight(config):
    config = config.model_copy(update={"per_system": None})
    made = [make_design(config, [f"s{n}" for n in range(count)], ["a"]).per_system for count in (11, 13, 40)]
    assert made == [3, 4, 8]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('["naturalness", "similarity"]', '["preference"]', "for preference use `marstts listen ab`"),
        ('questions = ["naturalness", "similarity"]', "questions = []", "name each once"),
        ("recordings =", "# recordings =", "naturalness needs `recordings`"),
        ("references =", "# references =", "similarity needs `references`"),
        ("seed = 3", "sneed = 3", "sneed"),
        ('robot = "', '"../robot" = "', "systems"),
    ],
)  # fmt: skip
def test_files_that_make_no_test_are_refused_by_name(config_file, old, new, sentence):
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
