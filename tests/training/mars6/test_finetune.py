"""Fine-tuning: from a folder of recordings to a bundle, by one command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from marstts.audio import Waveform, write
from marstts.bundle import read_info
from marstts.cli.main import app
from marstts.errors import ConfigError, DataError
from marstts.io.config import write_config
from marstts.io.jsonl import read_rows
from marstts.models import load_for_training
from marstts_lab.data.corpora.folder import holds_recordings
from marstts_lab.evaluation import finetuning
from marstts_lab.training.mars6.finetune import (
    check_folders,
    finetune_defaults,
    tokenize_recordings,
)
from marstts_lab.training.mars6.take_validation import FineTuned, StepScores, best_step
from marstts_lab.training.run_log import read_log

TEXTS = ("She sells sea shells.", "The cat sat on the mat.", "The mat sat.", "She sat on shells.")


@pytest.fixture(scope="module")
def my_voice(tmp_path_factory) -> Path:
    """Six recordings with texts next to them, and one without."""
    folder = tmp_path_factory.mktemp("recordings") / "my_voice"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(7):
        time = np.arange(int(16_000 * (1.0 + 0.2 * index))) / 16_000
        tone = 0.2 * np.sin(2 * np.pi * (150 + 20 * index) * time) + 0.01 * rng.normal(size=len(time))
        write(Waveform(tone.astype(np.float32), 16_000), folder / f"{index}.wav")
        if index < 6:
            (folder / f"{index}.txt").write_text(TEXTS[index % 4])
    return folder


def run_command(*words: object) -> Result:
    return CliRunner().invoke(app, ["finetune", *map(str, words)])


class ScriptedEvaluator:
    """Gives the initial model and every later step the scores of a script, without speaking."""

    def __init__(self, words: tuple[float, float, float], voice: tuple[float, float, float]) -> None:
        """Of the initial model, of a step by its validation, and of the step by the confirming takes."""
        self.words, self.voice = words, voice

    def __call__(self, model: torch.nn.Module, step: int, seed: int = 0) -> StepScores:
        which = 0 if step == 0 else 1 + seed
        return StepScores(
            step=step, takes=3, words_by="script", word_errors=self.words[which], similarity=self.voice[which]
        )

    def ceiling(self) -> StepScores:
        return StepScores(step=0, takes=3, words_by="script", word_errors=0.05, similarity=0.9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "voice", "exit_code", "sentence"),
    [
        ((0.08, 0.085, 0.08), (0.70, 0.75, 0.74), 0, "step 1 was kept: its voice is nearer"),
        ((0.08, 0.20, 0.20), (0.70, 0.75, 0.75), 3, "the voice is nearer only where the words are worse"),
        ((0.08, 0.08, 0.08), (0.70, 0.65, 0.65), 3, "no step has a nearer voice"),
        ((0.08, 0.08, 0.20), (0.70, 0.75, 0.75), 3, "the voice is nearer only where the words are worse"),
    ],
    ids=["better", "words-worse", "voice-farther", "luck"],
)
def test_a_step_is_kept_where_the_voice_is_nearer_and_the_words_are_no_worse(
    words: tuple[float, float, float], voice: tuple[float, float, float], exit_code: int, sentence: str,
    toy_bundle: Path, my_voice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setattr(finetuning, "evaluator_of", lambda choice: lambda base, corpus: ScriptedEvaluator(words, voice))
    config = finetune_defaults(str(toy_bundle))
    loop = config.loop.model_copy(update={"steps": 1, "validate_every": 1})
    write_config(config.model_copy(update={"loop": loop}), tmp_path / "config.json")
    run = tmp_path / "run"
    words_of_command = (
        "--init-from",
        toy_bundle,
        "--data",
        my_voice,
        "--output",
        run,
        "--config",
        tmp_path / "config.json",
    )
    result = run_command(*words_of_command)
    assert (result.exit_code, sentence in result.stdout) == (exit_code, True), result.output
    assert [row.step for row in read_rows(StepScores, run / "validation.jsonl")] == [0, 1]
    tuned, before = (load_for_training(folder).state_dict() for folder in (run / "bundle", toy_bundle))
    assert tuned.keys() == before.keys()
    unchanged = all(torch.equal(tuned[name], before[name]) for name in tuned)
    assert unchanged is (exit_code == 3)


@pytest.mark.slow
def test_one_command_validates_takes_of_the_held_out_recordings(
    toy_bundle: Path, my_voice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(finetuning, "find_recognizer", lambda choice: None)
    run = tmp_path / "run"
    # a hundredth of a minute: stopped after a step or so
    words = ("--init-from", toy_bundle, "--data", my_voice, "--output", run, "--max-minutes", "0.01")
    result = run_command(*words)
    assert result.exit_code in (0, 3), result.output
    rejects = [json.loads(line) for line in (run / "corpus" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["id"] for reject in rejects] == ["6"]
    first = read_log(run)[0]
    assert (first["step"], first["split"]) == (0, "validation") and -1 <= first["similarity"] <= 1
    settings = json.loads((run / "config.json").read_text())
    assert settings["model"]["dropout"] == 0.1 and settings["loop"]["patience"] > 0
    assert json.loads((run / "bundle" / "bundle.json").read_text())["codec"]["kind"] == "toy"
    made = read_info(run / "bundle").provenance["mars6"]
    assert made.parent == read_info(toy_bundle).label and made.data
    for line in ("recordings after the codec", "before", "words by the model's own alignment"):
        assert line in result.stdout


def step_scores(step: int, words: float, voice: float) -> StepScores:
    return StepScores(step=step, takes=9, words_by="script", word_errors=words, similarity=voice)


def test_a_row_of_the_recordings_below_those_of_takes_is_explained():
    def notes(ceiling: StepScores, after: StepScores | None) -> list[str]:
        found = FineTuned(step_scores(0, 0.1, 0.73), after, ceiling, helped=False)
        assert all(note in found.table for note in found.notes)
        return [re.findall("less similar than takes|more word errors than takes", note)[0] for note in found.notes]

    better = step_scores(25, 0.1, 0.8)
    assert notes(step_scores(0, 0.05, 0.9), better) == []
    for ceiling, after in ((step_scores(0, 0.1, 0.75), better), (step_scores(0, 0.1, 0.7), None)):
        assert notes(ceiling, after) == ["less similar than takes"]
    assert notes(step_scores(0, 0.2, 0.9), better) == ["more word errors than takes"]
    assert len(notes(step_scores(0, 0.2, 0.7), better)) == 2


@pytest.mark.parametrize(
    ("steps", "best"),
    [
        ([], None),
        ([(25, 0.08, 0.74), (50, 0.085, 0.76), (75, 0.2, 0.8)], 50),
        ([(25, 0.12, 0.74), (50, 0.3, 0.76)], None),
        ([(25, 0.08, 0.70), (50, 0.01, 0.69)], None),
        ([(25, 0.08, 0.75), (50, 0.05, 0.75)], 25),
    ],
)
def test_the_best_step_has_the_nearest_voice_among_those_with_words_no_worse(
    steps: list[tuple[int, float, float]], best: int | None
):
    found = best_step([step_scores(0, 0.08, 0.7), *(step_scores(*step) for step in steps)])
    assert (None if found is None else found.step) == best


def test_recordings_are_tokenized_by_a_bundle_only(my_voice: Path, tmp_path: Path):
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "state.json").write_text("{}")
    with pytest.raises(ConfigError, match="which only a bundle has a codec and encoders for"):
        tokenize_recordings(my_voice, tmp_path / "new", str(tmp_path), 1)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("nope", "nope: no such folder"), ("file", "but this is a file"), ("empty", "no recordings here")],
)
def test_folders_without_recordings_are_refused_before_anything_is_opened(name: str, complaint: str, tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=complaint):
        check_folders([tmp_path / name])
    result = run_command("--init-from", "no-such-model", "--data", tmp_path / name, "--output", tmp_path / "run")
    assert result.exit_code == 2 and complaint in result.stderr and result.stderr.count("\n") == 1


def test_train_mars6_points_recordings_to_finetune(my_voice: Path, tmp_path: Path):
    (tmp_path / "mars6.toml").write_text("[model]\n[loop]\nsteps = 1\n")
    words = ["train", "mars6", "--data", str(my_voice), "--config", str(tmp_path / "mars6.toml")]
    result = CliRunner().invoke(app, [*words, "--output", str(tmp_path / "run")])
    assert result.exit_code == 2 and "marstts finetune --data" in result.stderr


def test_a_folder_holds_recordings_where_it_has_audio_or_a_table_and_no_shards(my_voice: Path, tmp_path: Path):
    assert holds_recordings(my_voice) and not holds_recordings(tmp_path / "nothing")
    assert not holds_recordings(tmp_path)
    (tmp_path / "metadata.csv").write_text("a|b")
    assert holds_recordings(tmp_path)
    (tmp_path / "shard-00000.safetensors").write_bytes(b"")
    assert not holds_recordings(tmp_path)
