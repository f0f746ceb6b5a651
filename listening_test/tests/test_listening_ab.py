"""Preference tests: blind, in balanced order, with an exact test, over folders and over models."""

from __future__ import annotations

import json
import queue
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from math import comb
from types import SimpleNamespace

import pytest
from toy_mars6 import write_toy_bundle
from typer.testing import CliRunner

from marstts.audio import read
from marstts.errors import DataError
from marstts.http.server import Server
from marstts_lab.evaluation import open_systems
from marstts_listening_test.command import app
from marstts_listening_test.preference import count_preferences, open_preference_plan, sign_test
from marstts_listening_test.service import SessionService
from marstts_listening_test.stimuli import Role
from marstts_listening_test.store import AnswerStore
from marstts_listening_test.web import make_app
from simulated_listeners import RATE, Clock, write_buzz

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Two folders of the same nine sentences, the first higher than the other."""
    folder = tmp_path_factory.mktemp("pair")
    for number in range(9):
        write_buzz(folder / "old" / f"s{number}.wav", pitch=200)
        write_buzz(folder / "new" / f"s{number}.wav", pitch=100)
    return folder / "old", folder / "new"


@pytest.fixture
def plan(pair):
    return open_preference_plan(*pair, limit=None, seed=1, sample_rate=None)


def test_each_side_comes_first_half_of_the_time_and_every_sentence_once(plan):
    firsts = set()
    for number in range(20):
        trials = plan.plan(number)
        assert sorted(trial.sentence for trial in trials) == plan.stimuli.sentences
        assert sum(trial.system == "A" for trial in trials) == 5
        firsts.add(tuple(trial.system for trial in trials))
    assert len(firsts) > 15


def test_sounds_are_the_sides_in_their_order(plan, pair):
    for trial in plan.plan(0):
        sides = pair if trial.system == "A" else pair[::-1]
        for role, folder in zip((Role.FIRST, Role.SECOND), sides, strict=True):
            assert plan.stimuli.path(trial, role) == folder / f"{trial.sentence}.wav"
            assert plan.stimuli.encode(trial, role)[:4] == b"RIFF"
        assert plan.stimuli.trial_seconds(trial) == pytest.approx(0.8)


@pytest.mark.parametrize(("a", "b"), [(2, 7), (7, 2), (0, 6), (5, 5)])
def test_the_sign_test_matches_the_binomial_tail(a, b):
    most = max(a, b)
    tail = sum(comb(a + b, k) for k in range(most, a + b + 1)) / 2 ** (a + b)
    found = sign_test(a, b, 3)
    assert found.p_value == pytest.approx(min(1.0, 2 * tail))
    assert found.b_fraction.low <= b / (a + b) == found.b_fraction.value <= found.b_fraction.high


def test_the_interval_of_none_in_n_has_its_closed_form():
    assert sign_test(8, 0, 0).b_fraction.high == pytest.approx(1 - 0.025 ** (1 / 8))


def test_without_a_difference_there_is_no_p_value():
    found = sign_test(0, 0, 4)
    assert found.p_value is None and found.describe("A", "B").endswith("No difference was found.")


def test_answers_are_counted_for_the_side_that_was_played(plan):
    trials = plan.plan(3)
    prefer_b = [2 if trial.system == "A" else 1 for trial in trials]
    found = count_preferences(trials, [*prefer_b[:-1], 3])
    assert (found.a_better, found.b_better, found.no_difference) == (0, 8, 1)
    assert "B is preferred in 1.00" in found.describe("A", "B") and ": significant." in found.describe("A", "B")
    assert "not significant" in sign_test(4, 5, 0).describe("A", "B")


def test_the_page_gets_the_name_of_neither_side_and_the_result_at_the_end(plan, pair, tmp_path):
    store = AnswerStore(tmp_path / "ab.sqlite", plan.digest)
    finished = []
    service = SessionService(plan, store, Clock(), finished.append)
    link = service.start()["link"]
    state = service.state(link)
    for position, trial in enumerate(store.trials(0)):
        shown = json.dumps(state)
        assert state["trial"]["sounds"] == ["first", "second"] and not state["volume"]
        assert not any(word in shown for word in ('"A"', '"B"', "old", "new", trial.sentence, str(pair[0])))
        choice = 2 if trial.system == "A" else 1
        state = service.answer(link, {"position": position, "choice": choice, "plays": 2})
    assert state["result"]["b_better"] == 9 and state["result"]["sentence"].startswith("B better: 9")
    assert finished == [0]
    store.close()


def test_folders_that_cannot_be_compared_are_refused(pair, tmp_path):
    write_buzz(tmp_path / "s0.wav")
    with pytest.raises(DataError, match="given twice"):
        open_preference_plan(pair[0], pair[0], limit=None, seed=0, sample_rate=None)
    with pytest.raises(DataError, match="8 of 9 sentences are missing"):
        open_preference_plan(pair[0], tmp_path, limit=None, seed=0, sample_rate=None)


class AnsweringServer(Server):
    """A server whose only listener always prefers the second recording."""

    def __init__(self, service, address, port) -> None:
        super().__init__(make_app(service), address, port)
        self.service = service

    def serve(self) -> None:
        link = self.service.start()["link"]
        for position in range(self.service.state(link)["total"]):
            assert not self.server.should_exit
            self.service.answer(link, {"position": position, "choice": 2, "plays": 2})
        assert self.server.should_exit


@pytest.fixture
def answered(monkeypatch):
    monkeypatch.setattr("marstts_listening_test.web.open_server", AnsweringServer)


def test_the_command_ends_with_the_result_and_reads_it_from_the_database_the_next_time(
    pair, tmp_path, answered, monkeypatch
):
    words = [
        "ab",
        *map(str, pair),
        "--limit",
        "4",
        "--seed",
        "5",
        "--sample-rate",
        "8000",
        "--port",
        "0",
    ]
    words += ["--database", str(tmp_path / "ab.sqlite")]
    result = CliRunner().invoke(app, [*words, "--json"])
    found = json.loads(result.stdout)
    assert (found["a_better"], found["b_better"], found["no_difference"]) == (2, 2, 0) and found["a"] == str(pair[0])
    monkeypatch.setattr("marstts_listening_test.web.open_server", None)  # no page is needed any more
    assert "not significant" in CliRunner().invoke(app, words).stdout


def test_stopping_early_gives_no_result(pair, monkeypatch):
    monkeypatch.setattr(AnsweringServer, "serve", lambda self: None)
    monkeypatch.setattr("marstts_listening_test.web.open_server", AnsweringServer)
    result = CliRunner().invoke(app, ["ab", *map(str, pair), "--port", "0"])
    assert result.exit_code == 2 and "--database FILE" in result.stderr


def test_models_synthesize_the_test_set_once_and_are_compared_like_folders(pair, tmp_path, answered, monkeypatch):
    spoken = []

    class Synthesizer:
        session = SimpleNamespace(label="model@0123456789ab")

        def clone(self, reference, transcript):
            return transcript

        def speak(self, text, voice, seed):
            spoken.append((text, voice))
            return SimpleNamespace(waveform=read(pair[0] / "s0.wav"))

    model = tmp_path / "model"
    write_toy_bundle(model)
    monkeypatch.setattr(open_systems, "load_model", lambda name: Synthesizer())
    lines = [
        {"id": f"s{number}", "text": f"Line {number}.", "speaker": "x", "style": "regular", "reference": "r.wav",
         "reference_transcript": "Hello.", "ground_truth": None}
        for number in range(9)
    ]  # fmt: skip
    testset = tmp_path / "testset.jsonl"
    testset.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_buzz(tmp_path / "r.wav")
    words = [
        "ab",
        str(pair[1]),
        str(model),
        "--testset",
        str(testset),
        "--takes",
        str(tmp_path / "takes"),
    ]
    for clone, voice in (("deep", "Hello."), ("deep", None), ("shallow", None)):
        result = CliRunner().invoke(app, [*words, "--clone", clone, "--port", "0"])
        assert result.exit_code == 0 and f"B ({model})" in result.stdout
        assert spoken == [(f"Line {number}.", voice) for number in range(9)] * (clone == "shallow" or voice is not None)
        spoken.clear()
    assert read(next((tmp_path / "takes").rglob("s3.wav"))).sample_rate == RATE


def test_the_last_reply_reaches_the_page_before_the_command_ends(pair, monkeypatch):
    """Over HTTP, with the command in a thread: the server sends the last response before it stops."""
    started = queue.Queue()

    class AnnouncedServer(Server):
        def __init__(self, service, address, port) -> None:
            super().__init__(make_app(service), address, port)

        def serve(self) -> None:
            started.put(self.socket.getsockname()[:2])
            super().serve()

    monkeypatch.setattr("marstts_listening_test.web.open_server", AnnouncedServer)
    with ThreadPoolExecutor() as pool:
        words = ["ab", *map(str, pair), "--limit", "2", "--port", "0", "--json"]
        command = pool.submit(CliRunner().invoke, app, words)
        connection = HTTPConnection(*started.get(timeout=60), timeout=60)

        def ask(path, message):
            connection.request("POST", path, json.dumps(message), {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())

        link = ask("/api/listeners", {})["link"]
        states = [ask(f"/api/l/{link}/answers", {"position": place, "choice": 3, "plays": 2}) for place in range(2)]
        connection.close()
        assert states[-1]["result"]["no_difference"] == 2
        assert json.loads(command.result(timeout=60).stdout)["no_difference"] == 2
