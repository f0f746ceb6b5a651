"""Which of two is better: blind, in balanced order, with an exact test, over folders and over models."""

from __future__ import annotations

import json
import queue
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from math import comb
from types import SimpleNamespace

import pytest
from simulated_listeners import RATE, Clock, write_buzz
from typer.testing import CliRunner

from marstts.audio import read
from marstts.cli import evaluate, listen
from marstts.cli.main import app
from marstts.errors import DataError
from marstts.evaluation.listening.host import Host
from marstts.evaluation.listening.preference import count_preferences, judge_preference, open_preference
from marstts.evaluation.listening.stimuli import Role
from marstts.evaluation.listening.store import Store
from marstts.evaluation.listening.web import PageServer


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Two folders of the same nine sentences, the first higher than the other."""
    folder = tmp_path_factory.mktemp("pair")
    for number in range(9):
        write_buzz(folder / "old" / f"s{number}.wav", pitch=200)
        write_buzz(folder / "new" / f"s{number}.wav", pitch=100)
    return folder / "old", folder / "new"


@pytest.fixture
def sheet(pair):
    return open_preference(*pair, limit=None, seed=1, sample_rate=None)


def test_each_side_comes_first_half_of_the_time_and_every_sentence_once(sheet):
    firsts = set()
    for number in range(20):
        trials = sheet.plan(number)
        assert sorted(trial.sentence for trial in trials) == sheet.stimuli.sentences
        assert sum(trial.system == "A" for trial in trials) == 5
        firsts.add(tuple(trial.system for trial in trials))
    assert len(firsts) > 15


def test_sounds_are_the_sides_in_their_order(sheet, pair):
    for trial in sheet.plan(0):
        sides = pair if trial.system == "A" else pair[::-1]
        for role, folder in zip((Role.FIRST, Role.SECOND), sides, strict=True):
            assert sheet.path(trial, role) == folder / f"{trial.sentence}.wav"
            assert sheet.encode(trial, role)[:4] == b"RIFF"
        assert sheet.trial_seconds(trial) == pytest.approx(0.8)


@pytest.mark.parametrize(("a", "b"), [(2, 7), (7, 2), (0, 6), (5, 5)])
def test_the_sign_test_is_that_of_coins(a, b):
    most = max(a, b)
    tail = sum(comb(a + b, k) for k in range(most, a + b + 1)) / 2 ** (a + b)
    found = judge_preference(a, b, 3)
    assert found.p_value == pytest.approx(min(1.0, 2 * tail))
    assert found.share_b.low <= b / (a + b) == found.share_b.value <= found.share_b.high


def test_the_interval_of_none_in_n_has_its_closed_form():
    assert judge_preference(8, 0, 0).share_b.high == pytest.approx(1 - 0.025 ** (1 / 8))


def test_without_a_difference_there_is_nothing_to_test():
    found = judge_preference(0, 0, 4)
    assert found.p_value is None and found.describe("A", "B").endswith("No difference was heard.")


def test_answers_are_counted_for_the_side_that_was_heard(sheet):
    trials = sheet.plan(3)
    prefer_b = [2 if trial.system == "A" else 1 for trial in trials]
    found = count_preferences(trials, [*prefer_b[:-1], 3])
    assert (found.a_better, found.b_better, found.no_difference) == (0, 8, 1)
    assert "B is preferred in 1.00" in found.describe("A", "B") and "a difference" in found.describe("A", "B")
    assert "within chance" in judge_preference(4, 5, 0).describe("A", "B")


def test_the_page_tells_names_of_neither_side_and_the_result_at_the_end(sheet, pair, tmp_path):
    store = Store(tmp_path / "ab.sqlite", sheet.digest)
    finished = []
    host = Host(sheet, store, Clock(), finished.append)
    link = host.begin()["link"]
    state = host.state(link)
    for position, trial in enumerate(store.trials(0)):
        told = json.dumps(state)
        assert state["trial"]["sounds"] == ["first", "second"] and not state["volume"]
        assert not any(word in told for word in ('"A"', '"B"', "old", "new", trial.sentence, str(pair[0])))
        choice = 2 if trial.system == "A" else 1
        state = host.answer(link, {"position": position, "choice": choice, "plays": 2})
    assert state["result"]["b_better"] == 9 and state["result"]["sentence"].startswith("B better: 9")
    assert finished == [0]
    store.close()


def test_folders_that_cannot_be_compared_are_refused(pair, tmp_path):
    write_buzz(tmp_path / "s0.wav")
    with pytest.raises(DataError, match="named twice"):
        open_preference(pair[0], pair[0], limit=None, seed=0, sample_rate=None)
    with pytest.raises(DataError, match="8 of 9 sentences are missing"):
        open_preference(pair[0], tmp_path, limit=None, seed=0, sample_rate=None)


class Answering(PageServer):
    """A server with a developer before it who always hears that the second one is better."""

    def serve(self) -> None:
        host = self.server.config.app.state.host
        link = host.begin()["link"]
        for position in range(host.state(link)["total"]):
            assert not self.server.should_exit
            host.answer(link, {"position": position, "choice": 2, "plays": 2})
        assert self.server.should_exit


@pytest.fixture
def answered(monkeypatch):
    monkeypatch.setattr(listen, "PageServer", Answering)


def test_the_command_ends_with_the_result_and_knows_it_the_next_time(pair, tmp_path, answered, monkeypatch):
    words = ["listen", "ab", *map(str, pair), "--limit", "4", "--seed", "5", "--sample-rate", "8000", "--port", "0"]
    words += ["--database", str(tmp_path / "ab.sqlite")]
    result = CliRunner().invoke(app, [*words, "--json"])
    told = json.loads(result.stdout)
    assert (told["a_better"], told["b_better"], told["no_difference"]) == (2, 2, 0) and told["a"] == str(pair[0])
    monkeypatch.setattr(listen, "PageServer", None)  # no page is needed any more
    assert "within chance" in CliRunner().invoke(app, words).stdout


def test_stopping_early_is_no_result(pair, monkeypatch):
    monkeypatch.setattr(listen, "PageServer", type("Leaving", (PageServer,), {"serve": lambda self: None}))
    result = CliRunner().invoke(app, ["listen", "ab", *map(str, pair), "--port", "0"])
    assert result.exit_code == 2 and "--database FILE" in result.stderr


def test_models_speak_the_test_set_once_and_are_compared_like_folders(pair, tmp_path, answered, monkeypatch):
    spoken = []

    class Synthesizer:
        def clone(self, reference, transcript):
            return transcript

        def speak(self, text, voice, seed):
            spoken.append((text, voice))
            return SimpleNamespace(waveform=read(pair[0] / "s0.wav"))

    model = tmp_path / "model"
    model.mkdir()
    (model / "bundle.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(evaluate, "load_model", lambda name: Synthesizer())
    lines = [
        {"id": f"s{number}", "text": f"Line {number}.", "speaker": "x", "style": "regular", "reference": "r.wav",
         "reference_transcript": "Hello.", "source": None}
        for number in range(9)
    ]  # fmt: skip
    testset = tmp_path / "testset.jsonl"
    testset.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_buzz(tmp_path / "r.wav")
    words = ["listen", "ab", str(pair[1]), str(model), "--testset", str(testset), "--takes", str(tmp_path / "takes")]
    for clone, voice in (("deep", "Hello."), ("deep", None), ("shallow", None)):
        result = CliRunner().invoke(app, [*words, "--clone", clone, "--port", "0"])
        assert result.exit_code == 0 and f"B ({model})" in result.stdout
        assert spoken == [(f"Line {number}.", voice) for number in range(9)] * (clone == "shallow" or voice is not None)
        spoken.clear()
    assert read(next((tmp_path / "takes").rglob("s3.wav"))).sample_rate == RATE


def test_a_model_that_cannot_speak_a_sentence_is_not_compared(pair, tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.mkdir()
    (model / "bundle.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(evaluate, "find_systems", lambda name, wanted: [evaluate.TakesFolder(model)])
    testset = tmp_path / "testset.jsonl"
    testset.write_text(
        '{"id": "a", "text": "A.", "speaker": "x", "style": "regular", "reference": "r.wav",'
        ' "reference_transcript": "B.", "source": null}\n',
        encoding="utf-8",
    )
    write_buzz(tmp_path / "r.wav")
    result = CliRunner().invoke(app, ["listen", "ab", str(pair[0]), str(model), "--testset", str(testset)])
    assert result.exit_code == 2 and "could not speak a:" in result.stderr
    elsewhere = ["--testset", "librispeech", "--root", str(tmp_path / "nowhere")]
    result = CliRunner().invoke(app, ["listen", "ab", str(pair[0]), str(model), *elsewhere])
    assert result.exit_code == 2 and str(tmp_path / "nowhere") in result.stderr


def test_the_last_reply_reaches_the_page_before_the_command_ends(pair, monkeypatch):
    """Over HTTP, with the command in a thread: the page has to show the result of a server that is about to stop."""
    started = queue.Queue()

    class Announced(PageServer):
        def serve(self) -> None:
            started.put(self.socket.getsockname()[:2])
            super().serve()

    monkeypatch.setattr(listen, "PageServer", Announced)
    with ThreadPoolExecutor() as pool:
        words = ["listen", "ab", *map(str, pair), "--limit", "2", "--port", "0", "--json"]
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
