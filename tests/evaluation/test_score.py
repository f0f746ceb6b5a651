"""Scoring systems: nothing is left out in silence, and a killed run goes on where it stopped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError, TextError
from marstts.evaluation.metrics.length import Verdict
from marstts.evaluation.score import SCORES_FILE, Judges, TakeScore, read_scores, score_system
from marstts.evaluation.systems import CodecResynthesis, Model, SourceRecordings, TakesFolder, folder_digest, take_seed
from marstts.evaluation.testset import Trial
from marstts.speaker.toy import ToySpeakerEncoder

RECORDINGS = Path(__file__).parents[1] / "audio"


def trial(name: str, text: str, speaker: str, recording: str) -> Trial:
    return Trial(
        id=name,
        text=text,
        speaker=speaker,
        style="regular",
        reference=RECORDINGS / recording,
        reference_transcript=text,
        source=RECORDINGS / recording,
    )


TRIALS = [
    trial("a1", "Has never been surpassed.", "anna", "LJ001-0008.flac"),
    trial("b1", "He might even have been made amiable himself.", "bert", "sense-0930.flac"),
]


class Speaker:
    """A system that says what it is told, and counts how often it is asked."""

    version = "1"

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


COUNTS = (
    "word_errors", "words", "character_errors", "characters", "right_choices", "choices", "words_unknown",
    "speaker_pairs", "nearer_by_model", "nearer_by_independent",
)  # fmt: skip


class QuickJudges:
    """Stand-in for tests of who is judged when: its whole verdict is how long the take is."""

    def __init__(self) -> None:
        self.versions = {"judge": "quick"}

    def score(self, system: str, trial: Trial, take: Waveform | None, problem: str | None = None) -> TakeScore:
        counts = dict.fromkeys(COUNTS, 0)
        return TakeScore(
            **counts, system=system, trial=trial.id, speaker=trial.speaker, style=trial.style, heard="",
            seconds=0.0 if take is None else take.seconds, source_seconds=1.0, problem=problem, word_fault=False,
            verdict=Verdict.PLAUSIBLE, worst_word=None, worst_word_score=None, similarity_by_model=None,
            similarity_by_independent=0.0,
        )  # fmt: skip


@pytest.fixture(scope="module")
def judges() -> Judges:
    return Judges(TRIALS, ToySpeakerEncoder("identity", 24), ToySpeakerEncoder("style", 11))


@pytest.fixture(scope="module")
def spoken(judges: Judges) -> list[TakeScore]:
    """Scores of the recordings themselves."""
    return [judges.score("source", t, audio.read(t.source)) for t in TRIALS]


def run(system, output: Path, judges: Judges) -> list[TakeScore]:
    score_system(system, TRIALS, output, judges, lambda line: None)
    return [score for score in read_scores(output) if score.system == system.name]


def test_recordings_score_well_on_themselves(tmp_path: Path, judges: Judges):
    first, second = run(SourceRecordings(), tmp_path, judges)
    assert (first.trial, first.speaker, second.trial) == ("a1", "anna", "b1")
    assert first.heard == "has never been surpassed" and first.character_errors == first.word_errors == 0
    assert (first.words, first.characters) == (4, 24)
    for score in (first, second):
        assert score.verdict is Verdict.PLAUSIBLE and score.seconds == score.source_seconds
        assert not score.word_fault and score.right_choices >= score.choices - 1
        assert score.nearer_by_model == score.nearer_by_independent == score.speaker_pairs == 1
        assert score.similarity_by_model == pytest.approx(1.0, abs=1e-3)
    assert (tmp_path / "takes" / "source" / "a1.wav").is_file()


def test_another_speakers_take_is_not_nearer_to_its_own_reference(tmp_path: Path, judges: Judges):
    swapped = {"a1": audio.read(TRIALS[1].source), "b1": audio.read(TRIALS[0].source)}
    scores = run(Speaker("swapped", swapped), tmp_path, judges)
    assert [score.nearer_by_model for score in scores] == [0, 0]
    assert [score.verdict for score in scores] == [Verdict.PLAUSIBLE, Verdict.PLAUSIBLE]
    assert all(score.word_fault and score.word_errors > 0 for score in scores)


@pytest.mark.parametrize(
    ("take", "verdict", "problem"),
    [
        (TextError("there is nothing to say"), Verdict.MISSING, "there is nothing to say"),
        (Waveform(np.zeros(0, np.float32), 8000), Verdict.MISSING, "no samples"),
        (Waveform(np.full(9000, np.nan, np.float32), 8000), Verdict.MISSING, "NaN"),
        (Waveform(np.full(80, 0.5, np.float32), 8000), Verdict.EMPTY, None),
        (Waveform(np.zeros(9000, np.float32), 8000), Verdict.SILENT, None),
    ],
)
def test_takes_without_speech_get_the_worst_scores(
    tmp_path: Path, judges: Judges, spoken: list[TakeScore], take, verdict: Verdict, problem
):
    score = run(Speaker("broken", {"a1": take, "b1": take}), tmp_path, judges)[0]
    assert score.verdict is verdict
    assert score.problem is problem or problem in score.problem
    assert (score.word_errors, score.words) == (4, 4)
    assert (score.character_errors, score.characters) == (24, 24)
    assert (score.right_choices, score.choices) == (0, spoken[0].choices)
    assert score.word_fault
    assert (score.nearer_by_model, score.nearer_by_independent, score.speaker_pairs) == (0, 0, 1)


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path):
    judges = QuickJudges()
    takes = {t.id: audio.read(t.source) for t in TRIALS}
    whole = run(Speaker("model", takes), tmp_path / "whole", judges)

    run(Speaker("model", takes), tmp_path / "killed", judges)
    file = tmp_path / "killed" / SCORES_FILE
    first, second = file.read_text().splitlines()
    file.write_text(first + "\n" + second[: len(second) // 2])
    (tmp_path / "killed" / "takes" / "model" / "b1.wav").unlink()
    again = Speaker("model", takes)
    assert run(again, tmp_path / "killed", judges) == whole
    assert again.asked == ["b1"]

    nothing_left = Speaker("model", {})
    assert run(nothing_left, tmp_path / "killed", judges) == whole
    assert nothing_left.asked == []


def test_takes_that_were_spoken_but_not_judged_are_not_spoken_again(tmp_path: Path):
    judges = QuickJudges()
    takes = {t.id: audio.read(t.source) for t in TRIALS}
    whole = run(Speaker("model", takes), tmp_path, judges)
    (tmp_path / SCORES_FILE).unlink()
    again = Speaker("model", {})
    assert run(again, tmp_path, judges) == whole
    assert again.asked == []


def test_changed_systems_and_test_sets_do_not_mix_with_old_scores(tmp_path: Path):
    judges = QuickJudges()
    takes = {t.id: audio.read(t.source) for t in TRIALS}
    system = Speaker("model", takes)
    run(system, tmp_path, judges)
    system.version = "2"
    with pytest.raises(DataError, match="another system"):
        run(system, tmp_path, judges)
    system.version = "1"
    with pytest.raises(DataError, match="another testset"):
        score_system(system, TRIALS[:1], tmp_path, judges, lambda line: None)
    judges.versions = {"judge": "slow"}
    with pytest.raises(DataError, match="another judges"):
        run(system, tmp_path, judges)


def test_without_a_bundle_its_encoder_judges_nothing(spoken: list[TakeScore]):
    without_model = Judges(TRIALS, None, ToySpeakerEncoder("style", 11))
    unknown = {"nearer_by_model": None, "similarity_by_model": None}
    found = without_model.score("source", TRIALS[0], audio.read(TRIALS[0].source))
    assert found == spoken[0].model_copy(update=unknown)
    assert without_model.versions["identity encoder"] == "none"


def test_a_folder_is_a_system_and_its_missing_takes_are_named(tmp_path: Path, judges: Judges, spoken: list[TakeScore]):
    folder = tmp_path / "theirs"
    folder.mkdir()
    audio.write(audio.read(TRIALS[0].source), folder / "a1.flac")
    first, second = run(TakesFolder(folder), tmp_path / "out", judges)
    assert first == spoken[0].model_copy(update={"system": "theirs"})
    assert second.verdict is Verdict.MISSING and "b1.wav: no such take" in second.problem
    with pytest.raises(DataError, match="expected a model, or a folder"):
        TakesFolder(tmp_path / "nowhere")


def test_malformed_scores_are_named(tmp_path: Path):
    (tmp_path / SCORES_FILE).write_text("{}\n")
    with pytest.raises(Exception, match=r"scores\.jsonl:1: .*system"):
        read_scores(tmp_path)


class HalvingCodec:
    """Halves every sample, and pads to whole patches of 1,000 samples."""

    spec = SimpleNamespace(name="halving", sample_rate=8000)

    def encode(self, waveform: Waveform):
        return (np.pad(waveform.samples, (0, -len(waveform.samples) % 1000)),)

    def decode(self, codes):
        return Waveform((codes[0] / 2).astype(np.float32), 8000)


def test_resynthesis_is_cut_to_the_length_of_the_recording():
    take = CodecResynthesis(HalvingCodec()).speak(TRIALS[0])
    original = audio.resample(audio.read(TRIALS[0].source), 8000)
    assert take.sample_rate == 8000
    np.testing.assert_allclose(take.samples, original.samples / 2, atol=1e-7)


class EchoSynthesizer:
    """Returns what it was asked."""

    def clone(self, reference, transcript=None):
        return reference, transcript

    def speak(self, text, voice, seed):
        self.said = (text, *voice, seed)
        return SimpleNamespace(waveform=Waveform(np.ones(5, np.float32), 8000))


def test_deep_models_are_given_the_transcript_and_shallow_ones_are_not():
    echo = EchoSynthesizer()
    shallow, deep = (Model(echo, "mini", "digest", deep=kind, seed=3) for kind in (False, True))
    assert (shallow.name, deep.name) == ("mini (shallow)", "mini (deep)")
    assert shallow.version != deep.version
    shallow.speak(TRIALS[0])
    assert echo.said == (TRIALS[0].text, TRIALS[0].reference, None, take_seed(3, "a1"))
    deep.speak(TRIALS[0])
    assert echo.said[2] == TRIALS[0].reference_transcript


def test_seeds_differ_between_trials_and_runs():
    seeds = {take_seed(seed, name) for seed in range(5) for name in ("a1", "b1")}
    assert len(seeds) == 10 and all(0 <= seed < 2**32 for seed in seeds)


def test_folder_digest_changes_with_names_and_bytes(tmp_path: Path):
    (tmp_path / "a.wav").write_bytes(b"1")
    first = folder_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert folder_digest(tmp_path) != first
    assert folder_digest(tmp_path, (".wav",)) == first
    (tmp_path / "a.wav").write_bytes(b"2")
    assert folder_digest(tmp_path, (".wav",)) != first
