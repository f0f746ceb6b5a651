"""An evaluation's folder as the input of a listening test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marstts.errors import DataError
from marstts_lab.evaluation.score import write_trials
from marstts_lab.evaluation.testset import read_testset
from marstts_lab.metrics.trial import Trial
from marstts_listening_test.command import app
from marstts_listening_test.config import Question, read_listening_test
from marstts_listening_test.rating import open_rating_plan
from simulated_listeners import write_buzz

pytestmark = pytest.mark.slow

SENTENCES = [f"s{number}" for number in range(7)]
SYSTEMS = ["codec-resynthesis", "ground-truth", "mini (deep)"]


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    """A folder as `marstts evaluate` writes it."""
    folder = tmp_path / "evaluation"
    for number, sentence in enumerate(SENTENCES):
        write_buzz(folder / "references" / f"{sentence}.wav", pitch=150 + number)
        for index, system in enumerate(SYSTEMS):
            write_buzz(folder / "takes" / system / f"{sentence}.wav", pitch=100 + 10 * index + number)
    (folder / "takes" / "mini (deep)" / "takes.jsonl").write_text("{}")
    rows = [{"id": sentence, "text": "Some words.", "speaker": "a", "style": "regular"} for sentence in SENTENCES]
    (folder / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_an_evaluation_folder_is_a_test_of_all_its_systems(evaluation: Path):
    config = read_listening_test(evaluation)
    assert list(config.systems) == SYSTEMS and config.database == evaluation / "answers.sqlite"
    assert config.questions == (Question.NATURALNESS, Question.SIMILARITY)
    plan = open_rating_plan(config)
    assert plan.stimuli.sentences == SENTENCES and set(plan.stimuli.references) == set(SENTENCES)
    assert plan.stimuli.recordings == plan.stimuli.references


def test_a_file_may_name_an_evaluation_and_override_its_folders(evaluation: Path, tmp_path: Path):
    write_buzz(tmp_path / "people" / "p.wav")
    path = tmp_path / "test.toml"
    path.write_text(
        'title = "t"\nevaluation = "evaluation"\nrecordings = "people"\n'
        '[systems]\nmini = "evaluation/takes/mini (deep)"\n'
    )
    config = read_listening_test(path)
    assert list(config.systems) == ["mini"] and config.recordings == tmp_path / "people"
    assert config.references == evaluation / "references" and config.database == tmp_path / "answers.sqlite"
    assert set(open_rating_plan(config).stimuli.recordings) == {"p"}


def test_systems_of_an_evaluation_may_differ_in_sample_rate(evaluation: Path, tmp_path: Path):
    """The documented example: espeak-ng speaks at 22050 Hz, mini at 24000 Hz."""
    for number, sentence in enumerate(SENTENCES):
        write_buzz(evaluation / "takes" / "codec-resynthesis" / f"{sentence}.wav", rate=22_050, pitch=90 + number)
        write_buzz(evaluation / "takes" / "mini (deep)" / f"{sentence}.wav", rate=24_000, pitch=120 + number)
    assert open_rating_plan(read_listening_test(evaluation)).stimuli.sample_rate == 24_000
    (tmp_path / "test.toml").write_text('title = "t"\nevaluation = "evaluation"\nsample_rate = 22050\n')
    assert open_rating_plan(read_listening_test(tmp_path / "test.toml")).stimuli.sample_rate == 22_050


@pytest.mark.parametrize("part", ["trials.jsonl", "references", "takes"])
def test_a_folder_that_is_no_evaluation_is_refused_by_the_command(evaluation: Path, part: str):
    path = evaluation / part
    path.unlink() if path.is_file() else shutil.rmtree(path)
    result = CliRunner().invoke(app, ["serve", str(evaluation)])
    assert result.exit_code == 2 and "expected the folder of an evaluation" in result.stderr


def test_an_evaluation_without_takes_is_refused(evaluation: Path):
    shutil.rmtree(evaluation / "takes")
    (evaluation / "takes").mkdir()
    with pytest.raises(DataError, match="holds no takes"):
        read_listening_test(evaluation)


def test_the_trials_and_references_that_an_evaluation_writes_are_read(tmp_path: Path):
    write_buzz(tmp_path / "r.wav", rate=24_000)
    output = tmp_path / "evaluation"
    trials = [
        Trial(
            id=sentence, text="Some words.", speaker="a", style="regular", reference=tmp_path / "r.wav",
            reference_transcript="Words.", ground_truth=None,
        )
        for sentence in SENTENCES
    ]  # fmt: skip
    write_trials(trials, output)
    for sentence in SENTENCES:
        write_buzz(output / "takes" / "mini (deep)" / f"{sentence}.wav", rate=24_000)
    plan = open_rating_plan(read_listening_test(output))
    assert plan.stimuli.sentences == SENTENCES and set(plan.stimuli.references) == set(SENTENCES)


def test_similarity_is_judged_against_the_other_recordings_of_a_test_set_that_has_some(evaluation: Path):
    for number, sentence in enumerate(SENTENCES):
        write_buzz(evaluation / "compared" / f"{sentence}.wav", pitch=250 + number)
    config = read_listening_test(evaluation)
    assert config.references == evaluation / "compared" and config.recordings == evaluation / "references"


def test_an_evaluation_keeps_the_recordings_that_listeners_compare_with(tmp_path: Path):
    write_buzz(tmp_path / "a.wav", pitch=150)
    write_buzz(tmp_path / "b.wav", pitch=250)
    first = Trial(
        id="s1", text="Some words.", speaker="a", style="loud", reference=tmp_path / "a.wav", reference_transcript="",
        compared_with=tmp_path / "b.wav",
    )  # fmt: skip
    second = first.model_copy(update={"id": "s2", "compared_with": None})
    write_trials([first, second], tmp_path / "evaluation")
    kept = {name: (tmp_path / "evaluation" / name).read_bytes() for name in (
        "references/s1.wav", "compared/s1.wav", "compared/s2.wav")}  # fmt: skip
    assert kept["compared/s1.wav"] != kept["references/s1.wav"] == kept["compared/s2.wav"]
    [one, _] = read_testset(tmp_path / "evaluation" / "trials.jsonl")
    assert one.compared_with.name == "s1.wav" and one.compared_with.parent.name == "compared"
