"""Mechanical Turk: anonymous names, a form of all questions, results under the rules of the page."""

from __future__ import annotations

import csv
import json
import random
import re
from types import SimpleNamespace

import pytest
from simulated_listeners import SYSTEMS, always_four, guess, opinion
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.errors import DataError
from marstts.listening_test.analysis import analyze
from marstts.listening_test.config import Question
from marstts.listening_test.design import ListeningTrial, TrialKind
from marstts.listening_test.turk import MAX_LAYOUT_BYTES, export_sessions, read_results

LISTENERS = [opinion, opinion, opinion, opinion, guess, always_four]


@pytest.fixture(scope="session")
def exported(plan, tmp_path_factory):
    """Six sessions; to be read, not changed."""
    folder = tmp_path_factory.mktemp("turk") / "export"
    export_sessions(plan, folder, "https://host.example/test/", len(LISTENERS))
    return folder


def fill_in(folder, path, **changes):
    """The downloaded results when each session was taken by another kind of worker."""
    sessions = json.loads((folder / "key.json").read_text(encoding="utf-8"))["sessions"]
    rows = []
    for number, (name, session) in enumerate(sessions.items()):
        rng = random.Random(number)
        row = {"WorkerId": f"W{number}", "Input.session": name}
        for place, (quiet, _) in enumerate(session["tones"], 1):
            row[f"Answer.check_{place}"] = str(quiet + 1)
        for place, held in enumerate(session["trials"], 1):
            trial = ListeningTrial(
                Question(held["question"]), TrialKind(held["kind"]), held["system"], held["sentence"]
            )
            row[f"Answer.answer_{place:03d}"] = str(LISTENERS[number](trial, rng))
            row[f"Answer.seconds_answer_{place:03d}"] = str(held["audio_seconds"] + 2)
        rows.append({**row, **(changes if number == 0 else {})})
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.slow
def test_the_rules_of_the_page_apply_to_results(exported, config_file, tmp_path):
    results = fill_in(exported, tmp_path / "results.csv")
    words = ["listening-test", "analyze", str(config_file), "--turk", str(results), "--key", str(exported / "key.json")]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [one["counts"] for one in found["listeners"]] == [True] * 4 + [False] * 2
    assert {row["system"] for row in found["ratings"]} == set(SYSTEMS)
    assert not re.search(r"W\d", json.dumps(found["listeners"]))


@pytest.mark.slow
def test_the_table_has_a_value_for_every_variable_of_the_layout(exported):
    layout = (exported / "hit.html").read_text(encoding="utf-8")
    with (exported / "inputs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert set(re.findall(r"\$\{(\w+)\}", layout)) == set(rows[0]) and len(rows) == len(LISTENERS)
    for address in {value for row in rows for name, value in row.items() if name != "session"}:
        base, _, name = address.rpartition("/")
        assert base == "https://host.example/test/audio" and (exported / "audio" / name).is_file()
    assert layout.count('value="5"') == 22 and len(layout.encode()) < MAX_LAYOUT_BYTES
    assert len(set(re.findall(r'name="(answer_\d+)"', layout))) == 43


def test_nothing_that_workers_see_identifies_a_system(exported):
    layout = (exported / "hit.html").read_text(encoding="utf-8")
    seen = layout + (exported / "inputs.csv").read_text(encoding="utf-8") + " ".join(
        path.name for path in (exported / "audio").iterdir()
    )  # fmt: skip
    for secret in (*SYSTEMS, "(clean)", "degraded", "attention-check", "s00", "person0"):
        assert secret not in seen
    assert "Voices &amp; &lt;how&gt; natural" in layout and "<how>" not in layout


def test_two_exports_share_no_file_name(exported, plan, tmp_path):
    export_sessions(plan, tmp_path / "again", "https://host.example", 1)
    names = [{path.name for path in (folder / "audio").iterdir()} for folder in (exported, tmp_path / "again")]
    assert not names[0] & names[1]


def test_an_export_is_written_to_a_new_folder_only(exported, config_file, tmp_path):
    words = ["listening-test", "export", str(config_file), "--audio-url", "https://h", "--listeners", "1", "--output"]
    assert CliRunner().invoke(app, [*words, str(tmp_path / "new")]).exit_code == 0
    assert (tmp_path / "new" / "key.json").is_file()
    result = CliRunner().invoke(app, [*words, str(exported)])
    assert result.exit_code == 2 and "this folder holds other files" in result.stderr


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"Input.session": "another"}, "results.csv:2: session another is not in"),
        ({"Answer.answer_001": "7"}, "answer_001 is 7"),
        ({"Answer.answer_001": "good"}, "expected answers as numbers"),
    ],
)
def test_results_that_do_not_fit_the_key_are_refused_by_line(exported, tmp_path, changes, sentence):
    with pytest.raises(DataError, match=sentence):
        read_results(fill_in(exported, tmp_path / "results.csv", **changes), exported / "key.json")


def test_missing_answers_and_missing_keys_are_reported(exported, config, tmp_path):
    results = fill_in(exported, tmp_path / "results.csv", **{"Answer.answer_007": "", "Answer.check_1": ""})
    found = analyze(read_results(results, exported / "key.json"), config.rules, config.headphones)
    assert found.checks[0].reasons[0] == "stopped after 42 of 43"
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}", encoding="utf-8")
    for key, sentence in ((None, "need the key.json"), (wrong, "expected the key.json of an export"), (results, "but")):
        with pytest.raises(DataError, match=sentence):
            read_results(results, key)


def test_a_session_too_long_for_a_form_is_refused(plan, tmp_path):
    long = SimpleNamespace(title=plan.title, headphones=True, plan=lambda number: plan.plan(number) * 3)
    with pytest.raises(DataError, match="Mechanical Turk takes 65535"):
        export_sessions(long, tmp_path / "long", "https://h", 1)
    assert not (tmp_path / "long").exists()
