"""Sessions: positions in order and once, links that resume, and no system's name or trial's kind on the page."""

from __future__ import annotations

import json
import sqlite3

import pytest

from marstts.errors import DataError
from marstts_listening_test.config import Headphones
from marstts_listening_test.design import Anchor, TrialKind
from marstts_listening_test.pages import HTTPError
from marstts_listening_test.rating import RatingPlan
from marstts_listening_test.service import SessionService
from marstts_listening_test.stimuli import ROLES
from marstts_listening_test.store import AnswerStore, read_records
from simulated_listeners import SYSTEMS, opinion

pytestmark = pytest.mark.slow


def refusal(act, *arguments) -> tuple[int, str]:
    with pytest.raises(HTTPError) as error:
        act(*arguments)
    return error.value.status, str(error.value)


def test_a_session_resumes_by_its_link(service, plan, config, clock, invite):
    first = invite()
    first.proceed(answers=5)
    service.store.close()
    store = AnswerStore(config.database, plan.digest)
    later = SessionService(plan, store, clock)
    state = later.state(first.link)
    assert (state["stage"], state["position"], state["total"]) == ("trials", 5, 43)
    first.service = later
    assert first.proceed()["stage"] == "done"
    [record] = read_records(config.database)
    assert len(record.answers) == 43 and record.headphones
    assert store.finished() == [0] and len(later.state(first.link)["code"]) == 8
    store.close()


def test_the_page_gets_no_system_and_no_attention_check_by_name(service, invite):
    listener = invite()
    trials = service.store.trials(0)
    for position in range(len(trials)):
        state = service.state(listener.link)
        state["trial"].pop("choices")  # the words of the scale, "same person" among them
        shown = json.dumps(state).lower()
        for secret in (*SYSTEMS, *(one.value.strip("()") for one in Anchor), "attention", "repeat", "s0", "person"):
            assert secret not in shown
        assert ('"example": true' in shown) == (trials[position].kind is TrialKind.EXAMPLE)
        listener.proceed(answers=1)


def test_recordings_are_those_of_the_session(service, plan, invite):
    listener = invite()
    for position, trial in list(enumerate(service.store.trials(0)))[::9]:
        for role in ROLES[trial.question]:
            assert service.sound(listener.link, position, role) == plan.stimuli.encode(trial, role)
    assert service.volume() == plan.volume_sample()


def test_answers_come_in_order_once_and_on_the_scale(service, invite):
    link = invite().link
    fine = {"position": 0, "choice": 3, "plays": 1}
    assert refusal(service.answer, link, {**fine, "position": 1})[0] == 409
    assert refusal(service.answer, link, {**fine, "choice": 6}) == (400, "Expected one of [1, 2, 3, 4, 5], but 6 came.")
    assert service.answer(link, fine)["position"] == 1
    assert service.answer(link, {**fine, "choice": 5})["position"] == 1  # the response to the first one was lost
    assert service.store.choices(0) == [3]


@pytest.mark.parametrize(
    "message",
    [None, [], "1", {}, {"position": 0, "choice": 3}, {"position": "0", "choice": 3, "plays": 1},
     {"position": True, "choice": 3, "plays": 1}, {"position": -1, "choice": 3, "plays": 1},
     {"position": 0, "choice": 3.0, "plays": 1}, {"position": 0, "choice": 3, "plays": 10**12}],
)  # fmt: skip
def test_malformed_answers_are_refused(service, invite, message):
    link = invite().link
    assert refusal(service.answer, link, message)[0] == 400
    assert service.store.choices(0) == []


def test_the_headphone_check_comes_first_and_may_be_repeated_once(service, invite):
    link = service.start()["link"]
    assert service.state(link)["stage"] == "headphones"
    assert refusal(service.answer, link, {"position": 0, "choice": 3, "plays": 1})[0] == 409
    for message in (None, {"answers": [0] * 5}, {"answers": [0] * 5 + [3]}, {"answers": [0] * 5 + [True]}):
        assert refusal(service.check_headphones, link, message)[0] == 400
    tones = service.plan_tones(service.find(link))
    assert service.tones(link, 0) and refusal(service.tones, link, 6)[0] == 404
    state = service.check_headphones(link, {"answers": [tone.antiphase for tone in tones]})
    assert (state["stage"], state["attempt"]) == ("headphones", 1)
    again = service.plan_tones(service.find(link))
    assert again != tones
    wrong_once = [tone.quiet for tone in again[:5]] + [again[5].antiphase]
    assert service.check_headphones(link, {"answers": wrong_once})["headphones_passed"] is True


def test_a_listener_who_fails_the_headphone_check_twice_is_informed_and_continues(service, config, invite):
    listener = invite(opinion, choose_tone=lambda tone: tone.antiphase)
    state = service.state(listener.link)
    assert (state["stage"], state["headphones_passed"]) == ("trials", False)
    assert read_records(config.database)[0].headphones is False


def test_a_test_without_headphones_starts_with_its_first_part(plan, config, clock, tmp_path):
    free = RatingPlan(config.model_copy(update={"headphones": Headphones.ANY}), plan.stimuli, plan.design)
    store = AnswerStore(tmp_path / "free.sqlite", free.digest)
    service = SessionService(free, store, clock)
    assert not service.describe()["headphones"]
    assert service.state(service.start()["link"])["stage"] == "trials"
    store.close()


def test_unknown_links_and_recordings_are_refused(service, invite):
    link = invite().link
    role = ROLES[service.store.trials(0)[0].question][0]
    assert refusal(service.state, "unknown")[0] == refusal(service.sound, "unknown", 0, role)[0] == 404
    assert refusal(service.sound, link, 43, role)[0] == 404
    assert refusal(service.sound, link, 0, ROLES[service.store.trials(0)[-1].question][0])[0] == 404


def test_listeners_beyond_the_maximum_are_refused(plan, config, clock, tmp_path):
    few = RatingPlan(config.model_copy(update={"max_listeners": 1}), plan.stimuli, plan.design)
    store = AnswerStore(tmp_path / "few.sqlite", few.digest)
    service = SessionService(few, store, clock)
    service.start()
    assert refusal(service.start) == (403, "This test has all the listeners it needs. Thank you for coming!")
    store.close()


def test_answers_of_one_test_are_not_mixed_with_those_of_another(service, config):
    with pytest.raises(DataError, match="holds answers to another test"):
        AnswerStore(config.database, "another")


def test_files_without_answers_are_refused(tmp_path):
    text, other = tmp_path / "notes.txt", tmp_path / "other.sqlite"
    text.write_text("not a database, but long enough to be looked at " * 40, encoding="utf-8")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    for path, sentence in (
        (tmp_path / "none", "no answers yet"),
        (text, "expected"),
        (other, "tables are others .birds."),
    ):
        with pytest.raises(DataError, match=sentence):
            read_records(path)
    with pytest.raises(DataError, match="expected a database"):
        AnswerStore(text, "x")
    with pytest.raises(DataError, match="expected a database"):
        AnswerStore(tmp_path / "no" / "folder.sqlite", "x")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"key TEXT, v", b"key TEXT) \xff"),
        (b"key TEXT, va", b"key T)  \xfe\xffva"),
        (b"TABLE metadata", b"\xc0\xffBLE metadata"),
    ],
)
def test_a_damaged_database_is_one_sentence(tmp_path, before, after):
    path = tmp_path / "answers.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE metadata (key TEXT, value TEXT)")
    connection.close()
    content = path.read_bytes()
    assert content.count(before) == 1 and len(before) == len(after)
    path.write_bytes(content.replace(before, after))
    for read in (read_records, lambda path: AnswerStore(path, "x")):
        with pytest.raises(DataError, match="expected"):
            read(path)


def test_the_database_stores_a_number_a_secret_and_times_of_a_listener_only(service, invite):
    invite()
    columns = [row[1] for row in service.store.connection.execute("PRAGMA table_info(listeners)")]
    assert columns == ["number", "link", "code", "started", "last_seen"]
    links = {invite().link for _ in range(20)}
    assert len(links) == 20 and all(len(link) >= 20 for link in links)
