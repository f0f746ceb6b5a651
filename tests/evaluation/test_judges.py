"""Who judges: benches by name, the known orders, and encoders' own errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.toy import ToyCodec
from marstts.data.manifest import Utterance, write_manifest
from marstts.errors import ConfigError, DataError
from marstts.evaluation.intervals import Interval
from marstts.evaluation.judges import Bench, Judges, StyleJudge, open_judges, parse_bench
from marstts.evaluation.ladder import Climb, add_noise, climb, known_orders, scramble, verdict, write_ladder
from marstts.evaluation.measures import Better
from marstts.evaluation.score import HerePanel, ProcessPanel, score_system
from marstts.evaluation.scores import read_scores
from marstts.evaluation.systems import SourceRecordings
from marstts.evaluation.testset import Trial
from marstts.evaluation.verification import error_rate, measure_encoder
from marstts.speaker.verification import equal_error_rate, trials

RECORDINGS = Path(__file__).parents[1] / "audio"
TRIALS = [
    Trial(
        id=name, text=text, speaker=name, style="regular", reference=RECORDINGS / file, reference_transcript=text,
        source=RECORDINGS / file,
    )
    for name, text, file in (
        ("anna", "Has never been surpassed.", "LJ001-0008.flac"),
        ("bert", "He might even have been made amiable himself.", "sense-0930.flac"),
    )
]  # fmt: skip


def test_a_bench_is_named_or_spelled_out():
    assert parse_bench("paper", None).names == dict.fromkeys(["whisper", "wavlm", "utmos", "prosody"])
    for of_the_model in ("identity", "style"):
        assert of_the_model in parse_bench("offline", "mini").names
        assert of_the_model not in parse_bench("offline", None).names
    assert parse_bench("whisper=folder/base, dnsmos", None).names == {"whisper": "folder/base", "dnsmos": None}


@pytest.mark.parametrize(
    ("names", "complaint"),
    [("ears", "no judge 'ears'"), ("sphinx,whisper", "one recogniser at a time"), ("", "no judge ''")],
)
def test_impossible_benches_are_refused(names: str, complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        parse_bench(names, None)


def test_only_those_on_the_bench_judge():
    judges = open_judges(Bench(names={"sphinx": None}, model=None), TRIALS)
    score = judges.score("source", TRIALS[0], audio.read(TRIALS[0].source))
    assert score.words.heard == "has never been surpassed"
    assert score.word_test is None and score.voices == {} and score.quality == {} and score.prosody is None
    assert list(judges.versions) == ["recogniser", "jiwer"] and "pocketsphinx 5" in judges.versions["recogniser"]


class LevelEncoder:
    """Hears a style in the level alone."""

    name, embedding_size = "loudness", 2

    def embed(self, waveform: Waveform) -> np.ndarray:
        level = float(np.sqrt(np.mean(np.square(waveform.samples))))
        return np.array([np.cos(level), np.sin(level)], np.float32)


def test_a_style_is_right_where_a_reference_in_that_style_is_nearest(tmp_path: Path):
    def trial(style: str, gain: float) -> tuple[Trial, Waveform]:
        samples = gain * np.random.default_rng(0).normal(size=24_000).astype(np.float32)
        waveform = Waveform(samples, 24_000)
        audio.write(waveform, tmp_path / f"{style}.wav")
        changes = {"id": style, "speaker": "anna", "style": style, "reference": tmp_path / f"{style}.wav"}
        return TRIALS[0].model_copy(update=changes), waveform

    (quiet, whisper), (loud, shout) = trial("whisper", 0.01), trial("loud", 0.2)
    judge = StyleJudge(LevelEncoder(), [quiet, loud])
    assert judge.is_right(quiet, whisper) is True and judge.is_right(quiet, shout) is False
    assert judge.is_right(loud, shout) is True and judge.is_right(loud, None) is False
    assert StyleJudge(LevelEncoder(), [quiet]).is_right(quiet, whisper) is None
    opened = Judges([quiet, loud], style=LevelEncoder())
    assert opened.score("a", loud, whisper).style_is_right is False and opened.versions == {"style": "loudness"}
    assert Judges([quiet]).score("a", quiet, whisper).style_is_right is None


def test_processes_judge_as_one_does_and_say_what_they_cannot_open(tmp_path: Path):
    bench = Bench(names={}, model=None)
    with ProcessPanel(bench, TRIALS, 2) as panel:
        score_system(SourceRecordings(), TRIALS, tmp_path / "many", panel, lambda line: None)
    score_system(SourceRecordings(), TRIALS, tmp_path / "one", HerePanel(Judges(TRIALS)), lambda line: None)
    assert read_scores(tmp_path / "many") == read_scores(tmp_path / "one")
    with pytest.raises(Exception, match="nowhere"):
        ProcessPanel(Bench(names={"identity": None}, model="nowhere"), TRIALS, 1)


class Purity:
    """A judge of quality whom noise and broken order both annoy: how well samples foretell the next ones."""

    name, scales = "purity", ("purity",)

    def rate(self, waveform: Waveform):
        first, second = waveform.samples[:-1], waveform.samples[1:]
        return {"purity": 3.0 + 2.0 * float(np.corrcoef(first, second)[0, 1])}


class Loudness:
    """A judge who hears nothing but level."""

    name, scales = "loudness", ("loudness",)

    def rate(self, waveform: Waveform):
        return {"loudness": float(np.sqrt(np.mean(waveform.samples**2)))}


def test_each_rung_has_one_fault_more():
    rng = np.random.default_rng(0)
    tone = Waveform(np.sin(np.arange(16000) / 20).astype(np.float32) * 0.5, 16000)
    noise = add_noise(tone, rng).samples - tone.samples
    assert 20 * np.log10(tone.samples.std() / noise.std()) == pytest.approx(10.0, abs=0.3)
    shuffled = scramble(tone, rng).samples
    np.testing.assert_array_equal(np.sort(shuffled), np.sort(tone.samples))
    assert not np.array_equal(shuffled, tone.samples)


def test_judges_who_cannot_rank_known_orders_are_told_apart_from_those_who_can(tmp_path: Path):
    judges = Judges(TRIALS, quality=[Purity(), Loudness()])
    for rung in known_orders(ToyCodec()):
        score_system(rung, TRIALS, tmp_path, HerePanel(judges), lambda line: None)
    assert len(read_scores(tmp_path)) == 8
    found = {one.measure: one for one in climb(tmp_path)}
    assert found["purity"].scores["clean"].value > found["purity"].scores["noisy"].value
    assert not found["loudness"].ranked
    markdown = write_ladder(list(found.values()), tmp_path, {"recordings": "two"})
    assert "| judge | clean | codec | noisy | scrambled | order |" in markdown and "**wrong**" in markdown
    assert json.loads((tmp_path / "judges.json").read_text())["judges"][0]["measure"] == "purity"


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([(-3, -1), (-2, -1), (-2, -1)], "right"),
        ([(-3, -1), (-2, 1), (-2, -1)], "right, but codec / noisy within the noise"),
        ([(1, 3), (-2, -1), (0, 0)], "**wrong** at clean / codec; cannot tell noisy / scrambled"),
        ([(-3, -1), (-2, -1), (-1, 2)], "cannot tell noisy / scrambled"),
    ],
)
def test_steps_taken_the_wrong_way_are_told_from_those_within_the_noise(steps: list[tuple[int, int]], told: str):
    intervals = [Interval((low + high) / 2, low, high) for low, high in steps]
    ranked = all(step.value < 0 for step in intervals)
    assert verdict(Climb("x", "X ↑", Better.HIGHER, {}, intervals, ranked, False)) == told


class FirstSamples:
    """A speaker encoder that reads the speaker off the first samples."""

    name, size = "first-samples", 3

    def embed(self, waveform: Waveform):
        return waveform.samples[:3].copy()


def people(folder: Path) -> Path:
    """Six voices with four recordings each, two whispered; first samples tell the voice, the last two share a name."""
    rng, utterances = np.random.default_rng(0), []
    for number in range(6):
        direction = np.eye(3)[number % 3] * (1 if number < 3 else -1)
        for take in range(4):
            name = f"s{number}-{take}"
            samples = np.tile(direction + 0.1 * rng.standard_normal(3), 400).astype(np.float32) * 0.5
            audio.write(Waveform(samples, 8000), folder / f"{name}.wav")
            utterances.append(
                Utterance(
                    id=name, audio=f"{name}.wav", text="x", speaker=f"s{min(number, 4)}",
                    style="whisper" if take > 1 else "regular", seconds=0.15, source_rate=8000, split="test",
                    licence="none",
                )
            )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


def test_an_encoders_errors_are_printed_overall_and_by_style(tmp_path: Path):
    text = measure_encoder(FirstSamples(), people(tmp_path), "test", 50)
    assert text.startswith("first-samples on the test split")
    rows = [line for line in text.splitlines() if line.startswith(("| all", "| regular", "| whisper"))]
    assert [row.split(" | ")[1:3] for row in rows] == [["24", "5"], ["12", "5"], ["12", "5"]]
    assert float(rows[0].split(" | ")[3].split(" ")[0]) > 5.0  # one of them has two voices
    with pytest.raises(DataError, match="has not two speakers"):
        measure_encoder(FirstSamples(), tmp_path / "utterances.jsonl", "train", 50)


def test_the_error_rates_interval_is_over_people():
    rng = np.random.default_rng(3)
    names = [f"s{n}" for n in range(12) for _ in range(4)]
    voices = np.repeat(rng.standard_normal((12, 6)), 4, axis=0)
    embeddings = (voices + 0.8 * rng.standard_normal(voices.shape)).astype(np.float32)
    found = error_rate(embeddings, names)
    assert found.value == pytest.approx(equal_error_rate(*trials(embeddings, names)))
    assert 0.0 < found.low < found.value < found.high < 0.6
