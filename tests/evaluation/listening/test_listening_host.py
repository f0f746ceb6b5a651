"""What the page may ask: positions in order and once, links that resume, and never a word of systems or traps."""

from __future__ import annotations

import json
import sqlite3

import pytest
from simulated_listeners import SYSTEMS, opinion

from marstts.errors import DataError
from marstts.evaluation.listening.config import Headphones
from marstts.evaluation.listening.design import Anchor, Kind
from marstts.evaluation.listening.host import Host, Refusal
from marstts.evaluation.listening.session import SessionSheet
from marstts.evaluation.listening.stimuli import ROLES
from marstts.evaluation.listening.store import Store, read_attendance


def refusal(act, *arguments) -> tuple[int, str]:
    with pytest.raises(Refusal) as error:
        act(*arguments)
    return error.value.status, str(error.value)


def test_a_session_goes_on_by_its_link_where_it_stopped(host, sheet, config, clock, invite):
    first = invite()
    first.go_on(answers=5)
    host.store.close()
    store = Store(config.database, sheet.digest)
    later = Host(sheet, store, clock)
    state = later.state(first.link)
    assert (state["stage"], state["position"], state["total"]) == ("trials", 5, 43)
    first.host = later
    assert first.go_on()["stage"] == "done"
    [attendance] = read_attendance(config.database)
    assert len(attendance.answers) == 43 and attendance.headphones
    assert store.finished() == [0] and len(later.state(first.link)["code"]) == 8
    store.close()


def test_the_page_is_never_told_who_speaks_or_what_is_a_trap(host, invite):
    listener = invite()
    trials = host.store.trials(0)
    for position in range(len(trials)):
        state = host.state(listener.link)
        state["trial"].pop("choices")  # the words of the scale, "same person" among them
        told = json.dumps(state).lower()
        for secret in (*SYSTEMS, *(one.value.strip("()") for one in Anchor), "trap", "repeat", "s0", "person"):
            assert secret not in told
        assert ('"example": true' in told) == (trials[position].kind is Kind.EXAMPLE)
        listener.go_on(answers=1)


def test_equal_looking_trials_of_all_kinds_have_equal_words(host, invite):
    """But for the place in the session, a trap's state has the fields of a rating's, with the same values."""
    listener = invite()
    trials = host.store.trials(0)
    seen = {}
    for trial in trials:
        state = host.state(listener.link)
        words = json.dumps(
            {k: v for k, v in state["trial"].items() if k not in ("number", "opens_part", "ends_examples")}
        )
        if trial.kind is not Kind.EXAMPLE:
            seen.setdefault(trial.question, set()).add(words)
        listener.go_on(answers=1)
    assert [len(one) for one in seen.values()] == [1, 1]


def test_sounds_are_those_of_the_session(host, sheet, invite):
    listener = invite()
    for position, trial in list(enumerate(host.store.trials(0)))[::9]:
        for role in ROLES[trial.question]:
            assert host.sound(listener.link, position, role) == sheet.encode(trial, role)
    assert host.volume() == sheet.volume_sample()


def test_answers_come_in_order_once_and_on_the_scale(host, invite):
    link = invite().link
    fine = {"position": 0, "choice": 3, "plays": 1}
    assert refusal(host.answer, link, {**fine, "position": 1})[0] == 409
    assert refusal(host.answer, link, {**fine, "choice": 6}) == (400, "Expected one of [1, 2, 3, 4, 5], but 6 came.")
    assert host.answer(link, fine)["position"] == 1
    assert host.answer(link, {**fine, "choice": 5})["position"] == 1  # the reply to the first one was lost
    assert host.store.choices(0) == [3]


@pytest.mark.parametrize(
    "message",
    [None, [], "1", {}, {"position": 0, "choice": 3}, {"position": "0", "choice": 3, "plays": 1},
     {"position": True, "choice": 3, "plays": 1}, {"position": -1, "choice": 3, "plays": 1},
     {"position": 0, "choice": 3.0, "plays": 1}, {"position": 0, "choice": 3, "plays": 10**12}],
)  # fmt: skip
def test_messages_that_are_no_answers_are_refused(host, invite, message):
    link = invite().link
    assert refusal(host.answer, link, message)[0] == 400
    assert host.store.choices(0) == []


def test_the_headphone_check_comes_first_and_may_be_tried_twice(host, invite):
    link = host.begin()["link"]
    assert host.state(link)["stage"] == "headphones"
    assert refusal(host.answer, link, {"position": 0, "choice": 3, "plays": 1})[0] == 409
    for message in (None, {"answers": [0] * 5}, {"answers": [0] * 5 + [3]}, {"answers": [0] * 5 + [True]}):
        assert refusal(host.check, link, message)[0] == 400
    tones = host.plan_tones(host.find(link))
    assert host.tones(link, 0) and refusal(host.tones, link, 6)[0] == 404
    state = host.check(link, {"answers": [tone.opposed for tone in tones]})
    assert (state["stage"], state["attempt"]) == ("headphones", 1)
    again = host.plan_tones(host.find(link))
    assert again != tones
    wrong_once = [tone.quiet for tone in again[:5]] + [again[5].opposed]
    assert host.check(link, {"answers": wrong_once})["heard_with_headphones"] is True


def test_who_fails_the_headphone_check_twice_is_told_and_goes_on(host, config, invite):
    listener = invite(opinion, hear=lambda tone: tone.opposed)
    state = host.state(listener.link)
    assert (state["stage"], state["heard_with_headphones"]) == ("trials", False)
    assert read_attendance(config.database)[0].headphones is False


def test_a_test_without_headphones_begins_with_its_first_part(sheet, config, clock, tmp_path):
    free = SessionSheet(config.model_copy(update={"headphones": Headphones.ANY}), sheet.stimuli, sheet.design)
    store = Store(tmp_path / "free.sqlite", free.digest)
    host = Host(free, store, clock)
    assert not host.describe()["headphones"]
    assert host.state(host.begin()["link"])["stage"] == "trials"
    store.close()


def test_foreign_links_and_sounds_are_refused(host, invite):
    link = invite().link
    role = ROLES[host.store.trials(0)[0].question][0]
    assert refusal(host.state, "nobody")[0] == refusal(host.sound, "nobody", 0, role)[0] == 404
    assert refusal(host.sound, link, 43, role)[0] == 404
    assert refusal(host.sound, link, 0, ROLES[host.store.trials(0)[-1].question][0])[0] == 404


def test_after_the_last_listener_others_are_turned_away(sheet, config, clock, tmp_path):
    few = SessionSheet(config.model_copy(update={"max_listeners": 1}), sheet.stimuli, sheet.design)
    store = Store(tmp_path / "few.sqlite", few.digest)
    host = Host(few, store, clock)
    host.begin()
    assert refusal(host.begin) == (403, "This test has all the listeners it needs. Thank you for coming!")
    store.close()


def test_time_is_counted_from_the_answer_or_the_visit_before(host, config, clock, invite):
    link = invite().link
    clock.now += 100.0
    host.state(link)
    clock.now += 4.0
    host.answer(link, {"position": 0, "choice": 3, "plays": 2})
    clock.now += 5.5
    host.answer(link, {"position": 1, "choice": 3, "plays": 1})
    assert [answer.seconds for answer in read_attendance(config.database)[0].answers] == [4.0, 5.5]


def test_answers_of_one_test_are_not_mixed_with_those_of_another(host, config):
    with pytest.raises(DataError, match="holds answers to another test"):
        Store(config.database, "another")


def test_files_that_hold_no_answers_are_refused(tmp_path):
    text, other = tmp_path / "notes.txt", tmp_path / "other.sqlite"
    text.write_text("not a database, but long enough to be looked at " * 40, encoding="utf-8")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    for path, sentence in ((tmp_path / "none", "no answers yet"), (text, "expected"), (other, "expected answers")):
        with pytest.raises(DataError, match=sentence):
            read_attendance(path)
    with pytest.raises(DataError, match="expected a database"):
        Store(text, "x")
    with pytest.raises(DataError, match="expected a database"):
        Store(tmp_path / "no" / "folder.sqlite", "x")


def test_the_file_keeps_nothing_of_listeners_but_a_number_a_secret_and_times(host, invite):
    invite()
    columns = [row[1] for row in host.store.connection.execute("PRAGMA table_info(listeners)")]
    assert columns == ["number", "link", "code", "began", "seen"]
    links = {invite().link for _ in range(20)}
    assert len(links) == 20 and all(len(link) >= 20 for link in links)
