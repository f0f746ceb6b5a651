"""Scoring systems: nothing is left out in silence, and a killed run goes on where it stopped."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError, TextError
from marstts.evaluation.judges import Judges, WordJudge
from marstts.evaluation.metrics.length import Verdict
from marstts.evaluation.metrics.recognition import SphinxRecogniser
from marstts.evaluation.score import SPOKEN_FILE, HerePanel, read_claims, score_system
from marstts.evaluation.scores import SCORES_FILE, Prosody, TakeScore, read_scores
from marstts.evaluation.systems import (
    Clone,
    CodecResynthesis,
    EspeakNg,
    Model,
    SourceRecordings,
    TakesFolder,
    Variant,
    folder_digest,
    take_away,
    take_seed,
)
from marstts.evaluation.testset import Trial
from marstts.mars6.generate import SamplingConfig
from marstts.mars6.prompt import prompt_string
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


class QuickJudges:
    """Stand-in for tests of who is judged when: its whole verdict is how long the take is."""

    def __init__(self) -> None:
        self.versions = {"judge": "quick"}

    def score(self, system, trial, take, problem=None, compute_seconds=None) -> TakeScore:
        return TakeScore(
            system=system, trial=trial.id, speaker=trial.speaker, style=trial.style, verdict=Verdict.PLAUSIBLE,
            problem=problem, seconds=0.0 if take is None else take.seconds, source_seconds=1.0, sample_rate=None,
            compute_seconds=compute_seconds, words=None, word_test=None, voices={}, quality={}, prosody=None,
        )  # fmt: skip


class Loudness:
    """A judge of quality that likes it loud."""

    name, scales = "loudness", ("loud",)

    def rate(self, waveform: Waveform):
        return {"loud": 1.0 + 4.0 * float(np.abs(waveform.samples).max())}


class Melody:
    """A judge of prosody to whom everything is the source itself."""

    name = "melody"

    def judge(self, source, speech):
        return Prosody(pitch_correlation=0.0 if speech is None else 1.0, energy_correlation=None)


@pytest.fixture(scope="module")
def judges() -> Judges:
    return Judges(
        TRIALS,
        recogniser=SphinxRecogniser(),
        word_test=WordJudge(),
        encoders={"identity": ToySpeakerEncoder("identity", 24), "other": ToySpeakerEncoder("style", 11)},
        quality=[Loudness()],
        prosody=Melody(),
    )


@pytest.fixture(scope="module")
def spoken(judges: Judges) -> list[TakeScore]:
    """Scores of the recordings themselves."""
    return [judges.score("source", t, audio.read(t.source)) for t in TRIALS]


def run(system, output: Path, judges) -> list[TakeScore]:
    score_system(system, TRIALS, output, HerePanel(judges), lambda line: None)
    return [score for score in read_scores(output) if score.system == system.name]


def test_recordings_score_well_on_themselves(tmp_path: Path, judges: Judges):
    first, second = run(SourceRecordings(), tmp_path, judges)
    assert (first.trial, first.speaker, second.trial) == ("a1", "anna", "b1")
    assert first.words.heard == "has never been surpassed"
    assert first.words.character_errors == first.words.word_errors == 0
    assert (first.words.words, first.words.characters) == (4, 24)
    assert not first.words.repeats and not first.words.cut_short
    for score in (first, second):
        assert score.verdict is Verdict.PLAUSIBLE and score.seconds == score.source_seconds
        assert score.compute_seconds is None and score.sample_rate > 0
        assert not score.word_test.word_fault and score.word_test.right_choices >= score.word_test.choices - 1
        for voice in score.voices.values():
            assert voice.nearer == voice.pairs == 1
            assert voice.similarity == pytest.approx(1.0, abs=1e-3)
            assert voice.source_similarity == pytest.approx(1.0, abs=1e-3)
        assert score.quality["loud"] > 1.0 and score.prosody.pitch_correlation == 1.0
    assert (tmp_path / "takes" / "source" / "a1.wav").is_file()


def test_another_speakers_take_is_not_nearer_to_its_own_reference(tmp_path: Path, judges: Judges):
    swapped = {"a1": audio.read(TRIALS[1].source), "b1": audio.read(TRIALS[0].source)}
    scores = run(Speaker("swapped", swapped), tmp_path, judges)
    assert [score.voices["identity"].nearer for score in scores] == [0, 0]
    assert [score.verdict for score in scores] == [Verdict.PLAUSIBLE, Verdict.PLAUSIBLE]
    assert all(score.word_test.word_fault and score.words.word_errors > 0 for score in scores)


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
    assert (score.words.word_errors, score.words.words) == (4, 4)
    assert (score.words.character_errors, score.words.characters) == (24, 24)
    assert score.words.cut_short
    assert (score.word_test.right_choices, score.word_test.choices) == (0, spoken[0].word_test.choices)
    assert score.word_test.word_fault
    for name, voice in score.voices.items():
        assert (voice.nearer, voice.pairs, voice.similarity) == (0, 1, -1.0)
        assert voice.source_similarity == spoken[0].voices[name].source_similarity
    assert score.quality == {"loud": 1.0}
    assert score.prosody == Prosody(pitch_correlation=0.0, energy_correlation=None)


def timeless(scores: list[TakeScore]) -> list[TakeScore]:
    """Scores without the time the takes took, which no two runs share."""
    return [score.model_copy(update={"compute_seconds": None}) for score in scores]


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path):
    judges = QuickJudges()
    takes = {t.id: audio.read(t.source) for t in TRIALS}
    whole = run(Speaker("model", takes), tmp_path / "whole", judges)
    assert all(score.compute_seconds is not None for score in whole)

    run(Speaker("model", takes), tmp_path / "killed", judges)
    for file in (tmp_path / "killed" / SCORES_FILE, tmp_path / "killed" / "takes" / "model" / SPOKEN_FILE):
        first, second = file.read_text().splitlines()
        file.write_text(first + "\n" + second[: len(second) // 2])
    (tmp_path / "killed" / "takes" / "model" / "b1.wav").unlink()
    again = Speaker("model", takes)
    assert timeless(run(again, tmp_path / "killed", judges)) == timeless(whole)
    assert again.asked == ["b1"]

    nothing_left = Speaker("model", {})
    assert timeless(run(nothing_left, tmp_path / "killed", judges)) == timeless(whole)
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
        score_system(system, TRIALS[:1], tmp_path, HerePanel(judges), lambda line: None)
    judges.versions = {"judge": "slow"}
    with pytest.raises(DataError, match="another judges"):
        run(system, tmp_path, judges)


def test_a_text_without_a_real_recording_is_judged_by_what_is_left(judges: Judges):
    alone = TRIALS[0].model_copy(update={"source": None})
    score = judges.score("model", alone, audio.read(TRIALS[0].source))
    assert score.source_seconds is None and score.verdict is Verdict.PLAUSIBLE
    assert score.voices["identity"].source_similarity is None and score.voices["identity"].similarity > 0.99
    with pytest.raises(DataError, match="no real recording"):
        SourceRecordings().speak(alone)


def test_judges_listen_for_what_is_read_aloud(judges: Judges):
    digits = TRIALS[0].model_copy(update={"text": "Has never been $5.", "spoken": TRIALS[0].text})
    score = judges.score("model", digits, audio.read(TRIALS[0].source))
    assert (score.words.word_errors, score.words.words) == (0, 4)


def test_two_lines_about_one_take_are_refused(tmp_path: Path):
    run(Speaker("model", {t.id: audio.read(t.source) for t in TRIALS}), tmp_path, QuickJudges())
    file = tmp_path / SCORES_FILE
    file.write_text(file.read_text() * 2)
    with pytest.raises(DataError, match="model has two lines for a1"):
        read_scores(tmp_path)


def test_a_folder_is_a_system_and_what_is_odd_about_it_is_counted_and_named(
    tmp_path: Path, judges: Judges, spoken: list[TakeScore]
):
    folder = tmp_path / "theirs"
    folder.mkdir()
    recording = audio.read(TRIALS[0].source)
    for name in ("a1.flac", "a1.wav", "c3.wav", "c4.flac"):
        audio.write(recording, folder / name)
    first, second = run(TakesFolder(folder), tmp_path / "out", judges)
    assert first == spoken[0].model_copy(update={"system": "theirs"})
    assert second.verdict is Verdict.MISSING and "b1.wav: no such take" in second.problem
    assert read_claims(tmp_path / "out")["theirs"].remarks == (
        "2 takes belong to no trial and were left alone: c3.wav, c4.flac",
        "1 takes are there twice; the .wav was judged: a1.wav, a1.flac",
    )
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
    shallow, deep = (Model(echo, "mini", "digest", clone=kind, seed=3) for kind in Clone)
    assert (shallow.name, deep.name) == ("mini (shallow)", "mini (deep)")
    assert shallow.version != deep.version
    shallow.speak(TRIALS[0])
    assert echo.said == (TRIALS[0].text, TRIALS[0].reference, None, take_seed(3, "a1"))
    deep.speak(TRIALS[0])
    assert echo.said[2] == TRIALS[0].reference_transcript
    unheard = TRIALS[0].model_copy(update={"reference_transcript": ""})
    with pytest.raises(DataError, match=r"LJ001-0008\.flac: nobody wrote down its words"):
        deep.speak(unheard)
    shallow.speak(unheard)


@dataclass(frozen=True)
class Parts:
    """What variants of a synthesizer change."""

    quality: int | None = 48000
    sampling: SamplingConfig = field(default_factory=SamplingConfig)


def test_ablations_take_one_thing_away():
    assert take_away(Parts(), Variant.NO_RAS) == Parts(sampling=SamplingConfig(ras_max_ratio=1.0))
    assert take_away(Parts(), Variant.NO_QUALITY_PREFIX) == Parts(quality=None)
    assert prompt_string("Hi.", quality=None) == "<|startoftext|>Hi.<|endoftext|>"


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
def test_the_floor_speaks_every_text():
    assert 1.0 < EspeakNg().speak(TRIALS[1]).seconds < 6.0


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
