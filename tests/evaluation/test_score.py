"""Generating and scoring takes: no trial is dropped, and a killed run resumes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError, MarsError
from marstts.speaker.toy import ToySpeakerEncoder
from marstts_lab.data.workers import Processes
from marstts_lab.evaluation.score import TAKES_FILE, read_provenances, score_systems
from marstts_lab.evaluation.systems import (
    GroundTruth,
    TakesFolder,
)
from marstts_lab.evaluation.testset import read_testset
from marstts_lab.metrics.length import LengthStatus
from marstts_lab.metrics.panel import Metrics
from marstts_lab.metrics.recognition import SphinxRecognizer
from marstts_lab.metrics.scores import SCORES_FILE, TakeScore, read_scores
from marstts_lab.metrics.trial import Trial

pytestmark = pytest.mark.slow

RECORDINGS = Path(__file__).parents[1] / "audio"


def trial(name: str, text: str, speaker: str, recording: str) -> Trial:
    return Trial(
        id=name,
        text=text,
        speaker=speaker,
        style="regular",
        reference=RECORDINGS / recording,
        reference_transcript=text,
        ground_truth=RECORDINGS / recording,
    )


TRIALS = [
    trial("a1", "Has never been surpassed.", "anna", "LJ001-0008.flac"),
    trial("b1", "He might even have been made amiable himself.", "bert", "sense-0930.flac"),
]


class Speaker:
    """A system with given takes that records which ones it was asked for."""

    version = "1"
    model = ""
    timed = True

    def __init__(self, name: str, takes: dict[str, Waveform | Exception]) -> None:
        self.name = name
        self.takes = takes
        self.asked: list[str] = []

    def speak(self, trial: Trial) -> Waveform:
        self.asked.append(trial.id)
        take = self.takes[trial.id]
        if isinstance(take, Exception):
            raise take
        return take


class LengthOnly:
    """A stand-in for `Metrics` that measures the length of a take."""

    def __init__(self) -> None:
        self.versions = {"length": "1"}

    def score(self, system, trial, take, error=None, compute_seconds=None) -> TakeScore:
        return TakeScore(
            system=system, trial=trial.id, speaker=trial.speaker, style=trial.style,
            length_status=LengthStatus.PLAUSIBLE, error=error, seconds=0.0 if take is None else take.seconds,
            ground_truth_seconds=1.0, sample_rate=None,
            compute_seconds=compute_seconds, words=None, voices={}, quality={},
        )  # fmt: skip


class Loudness:
    """A quality metric of the level alone."""

    name, scales = "loudness", ("loud",)

    def rate(self, waveform: Waveform):
        return {"loud": 1.0 + 4.0 * float(np.abs(waveform.samples).max())}


@pytest.fixture(scope="module")
def metrics() -> Metrics:
    return Metrics(
        TRIALS,
        recognizer=SphinxRecognizer(),
        encoders={"identity": ToySpeakerEncoder("identity", 24), "other": ToySpeakerEncoder("style", 11)},
        quality=[Loudness()],
    )


@pytest.fixture(scope="module")
def of_recordings(metrics: Metrics) -> list[TakeScore]:
    """Scores of the recordings themselves."""
    return [metrics.score("ground-truth", t, audio.read(t.ground_truth)) for t in TRIALS]


def run(system, output: Path, metrics) -> list[TakeScore]:
    score_systems([system], TRIALS, output, lambda: metrics)
    return [score for score in read_scores(output) if score.system == system.name]


def test_ground_truth_scores_best(tmp_path: Path, metrics: Metrics):
    first, second = run(GroundTruth(), tmp_path, metrics)
    assert (first.trial, first.speaker, second.trial) == ("a1", "anna", "b1")
    assert first.words.transcript == "has never been surpassed"
    assert first.words.character_errors == first.words.word_errors == 0
    assert (first.words.words, first.words.characters) == (4, 24)
    assert not first.words.has_repetition and not first.words.truncated
    for score in (first, second):
        assert score.length_status is LengthStatus.PLAUSIBLE and score.seconds == score.ground_truth_seconds
        assert score.compute_seconds is None and score.sample_rate > 0
        for voice in score.voices.values():
            assert voice.similarity == pytest.approx(1.0, abs=1e-3)
            assert voice.ground_truth_similarity == pytest.approx(1.0, abs=1e-3)
            assert voice.is_nearest is True
        assert score.quality["loud"] > 1.0
    assert (tmp_path / "takes" / "ground-truth" / "a1.wav").is_file()


def timeless(scores: list[TakeScore]) -> list[TakeScore]:
    """Scores without compute time, which differs between runs."""
    return [score.model_copy(update={"compute_seconds": None}) for score in scores]


def test_a_killed_run_resumes(tmp_path: Path):
    metrics = LengthOnly()
    takes = {t.id: audio.read(t.ground_truth) for t in TRIALS}
    whole = run(Speaker("model", takes), tmp_path / "whole", metrics)
    assert all(score.compute_seconds is not None for score in whole)

    run(Speaker("model", takes), tmp_path / "killed", metrics)
    for file in (tmp_path / "killed" / SCORES_FILE, tmp_path / "killed" / "takes" / "model" / TAKES_FILE):
        first, second = file.read_text().splitlines()
        file.write_text(first + "\n" + second[: len(second) // 2])
    (tmp_path / "killed" / "takes" / "model" / "b1.wav").unlink()
    again = Speaker("model", takes)
    assert timeless(run(again, tmp_path / "killed", metrics)) == timeless(whole)
    assert again.asked == ["b1"]

    nothing_left = Speaker("model", {})
    assert timeless(run(nothing_left, tmp_path / "killed", metrics)) == timeless(whole)
    assert nothing_left.asked == []


def test_changed_systems_and_test_sets_do_not_mix_with_old_scores(tmp_path: Path):
    metrics = LengthOnly()
    takes = {t.id: audio.read(t.ground_truth) for t in TRIALS}
    system = Speaker("model", takes)
    run(system, tmp_path, metrics)
    system.version = "2"
    with pytest.raises(DataError, match="another system"):
        run(system, tmp_path, metrics)
    system.version = "1"
    with pytest.raises(DataError, match="another test set"):
        score_systems([system], TRIALS[:1], tmp_path, lambda: metrics)
    metrics.versions = {"length": "2"}
    with pytest.raises(DataError, match=r"another set of metrics \(metrics.length: 1 before, 2 now\)"):
        run(system, tmp_path, metrics)


def test_two_systems_of_one_name_are_refused_before_anything_is_written(tmp_path: Path):
    with pytest.raises(DataError, match="two systems are named 'ground-truth'"):
        score_systems([GroundTruth(), GroundTruth()], TRIALS, tmp_path / "out", load_length_only)
    assert not (tmp_path / "out").exists()


def test_a_trial_without_ground_truth_is_scored_by_the_other_metrics(metrics: Metrics):
    alone = TRIALS[0].model_copy(update={"ground_truth": None})
    score = metrics.score("model", alone, audio.read(TRIALS[0].ground_truth))
    assert score.ground_truth_seconds is None and score.length_status is LengthStatus.PLAUSIBLE
    assert score.voices["identity"].ground_truth_similarity is None and score.voices["identity"].similarity > 0.99
    with pytest.raises(DataError, match="no recording of this text"):
        GroundTruth().speak(alone)


def test_word_metrics_use_the_text_as_it_is_read_aloud(metrics: Metrics):
    digits = TRIALS[0].model_copy(update={"text": "Has never been $5.", "spoken": TRIALS[0].text})
    score = metrics.score("model", digits, audio.read(TRIALS[0].ground_truth))
    assert (score.words.word_errors, score.words.words) == (0, 4)


def test_scores_with_two_lines_for_a_take_are_refused(tmp_path: Path):
    run(Speaker("model", {t.id: audio.read(t.ground_truth) for t in TRIALS}), tmp_path, LengthOnly())
    file = tmp_path / SCORES_FILE
    file.write_text(file.read_text() * 2)
    with pytest.raises(DataError, match=r"scores\.jsonl:3: system 'model' and trial 'a1' was used before on line 1"):
        read_scores(tmp_path)


def test_a_folder_is_a_system_and_its_extra_and_double_takes_are_named(
    tmp_path: Path, metrics: Metrics, of_recordings: list[TakeScore]
):
    folder = tmp_path / "theirs"
    folder.mkdir()
    recording = audio.read(TRIALS[0].ground_truth)
    for name in ("a1.flac", "a1.wav", "c3.wav", "c4.flac"):
        audio.write(recording, folder / name)
    first, second = run(TakesFolder(folder), tmp_path / "out", metrics)
    assert first == of_recordings[0].model_copy(update={"system": "theirs"})
    assert second.length_status is LengthStatus.MISSING and "b1.wav: no such take" in second.error
    assert read_provenances(tmp_path / "out")["theirs"].warnings == (
        "2 takes belong to no trial and were ignored: c3.wav, c4.flac",
        "1 takes exist twice; the .wav was scored: a1.wav, a1.flac",
    )
    with pytest.raises(DataError, match="expected a folder with one"):
        TakesFolder(tmp_path / "nowhere")


def test_malformed_scores_are_refused_with_their_line(tmp_path: Path):
    (tmp_path / SCORES_FILE).write_text("{}\n")
    with pytest.raises(Exception, match=r"scores\.jsonl:1: .*system"):
        read_scores(tmp_path)


def test_outputs_have_the_references_and_trials_of_a_listening_test(tmp_path: Path):
    run(GroundTruth(), tmp_path, LengthOnly())
    trials = read_testset(tmp_path / "trials.jsonl")
    assert [trial.id for trial in trials] == ["a1", "b1"]
    assert [trial.reference for trial in trials] == [tmp_path / "references" / f"{name}.wav" for name in ("a1", "b1")]
    assert audio.read(trials[0].reference).seconds == pytest.approx(audio.read(TRIALS[0].reference).seconds, abs=1e-3)
    assert trials[0].ground_truth.samefile(TRIALS[0].ground_truth)


def test_a_failing_disk_stops_the_run_instead_of_counting_as_a_missing_take(tmp_path: Path):
    folder = tmp_path / "takes" / "ground-truth"
    folder.mkdir(parents=True)
    (folder / "a1.wav").mkdir()
    with pytest.raises(MarsError, match=r"a1\.wav: expected a file"):
        run(GroundTruth(), tmp_path, LengthOnly())


def load_length_only() -> LengthOnly:
    return LengthOnly()


def test_two_processes_score_as_one_does_and_in_the_same_order(tmp_path: Path):
    score_systems([GroundTruth()], TRIALS, tmp_path / "one", load_length_only, Processes(1))
    score_systems([GroundTruth()], TRIALS, tmp_path / "two", load_length_only, Processes(2))
    assert (tmp_path / "one" / SCORES_FILE).read_text() == (tmp_path / "two" / SCORES_FILE).read_text()
