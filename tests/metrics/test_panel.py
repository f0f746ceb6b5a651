"""Metrics by name, their requirements, and the speaker metric."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import ConfigError, MarsError
from marstts_lab.metrics import panel
from marstts_lab.metrics.panel import (
    WITH_WEIGHTS,
    MetricsConfig,
    missing_packages,
    open_metrics,
    open_speaker_metric,
    parse_metrics,
)
from marstts_lab.metrics.take_metrics import SpeakerMetric
from marstts_lab.metrics.trial import Trial

RECORDINGS = Path(__file__).parents[1] / "audio"
TRIALS = [
    Trial(
        id=name, text=text, speaker=name, style="regular", reference=RECORDINGS / file, reference_transcript=text,
        ground_truth=RECORDINGS / file,
    )
    for name, text, file in (
        ("anna", "Has never been surpassed.", "LJ001-0008.flac"),
        ("bert", "He might even have been made amiable himself.", "sense-0930.flac"),
    )
]  # fmt: skip


def test_metrics_are_a_named_set_or_a_list():
    paper = ["faster-whisper", "xvector", "resemblyzer", "utmos"]
    assert parse_metrics("paper", None).names == dict.fromkeys(paper)
    assert "identity" in parse_metrics("default", "mini").names
    assert "identity" not in parse_metrics("default", None).names
    judges = parse_metrics("default,faster-whisper=folder/base", None).names
    assert judges["faster-whisper"] == "folder/base" and "distillmos" in judges and "sphinx" not in judges
    assert parse_metrics("faster-whisper=small, dnsmos", None).names == {"faster-whisper": "small", "dnsmos": None}


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ("telepathy", "no metric 'telepathy'; expected default, paper, sphinx, faster-whisper, "),
        ("", "no metric ''"),
        ("default,sphinx", "at most one recognizer"),
        ("faster-whisper=", "no weights after 'faster-whisper='"),
    ],
)
def test_unknown_and_conflicting_metrics_are_refused(names: str, complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        parse_metrics(names, None)


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_the_metrics_whose_weights_may_be_chosen_take_them(name: str, monkeypatch: pytest.MonkeyPatch):
    opened = []
    if name in panel.RECOGNIZERS:
        monkeypatch.setitem(panel.RECOGNIZERS, name, lambda source: opened.append(source))
    monkeypatch.setattr(panel, "find_xvector", lambda name, source: opened.append(source))
    for encoder in ("WavLmEncoder", "XVectorEncoder"):
        monkeypatch.setattr(f"marstts.speaker.wavlm.{encoder}", lambda path: LevelEncoder())
    open_metrics(parse_metrics(f"{name}=folder", None), TRIALS)
    assert opened == ["folder"]


@pytest.mark.slow
def test_only_the_chosen_metrics_are_computed():
    metrics = open_metrics(MetricsConfig(names={"sphinx": None}, model=None), TRIALS)
    score = metrics.score("ground-truth", TRIALS[0], audio.read(TRIALS[0].ground_truth))
    assert score.words.transcript == "has never been surpassed"
    assert score.voices == {} and score.quality == {}
    assert list(metrics.versions) == ["recognizer", "jiwer"] and "pocketsphinx 5" in metrics.versions["recognizer"]


class LevelEncoder:
    """A style encoder of the level alone."""

    name, size = "loudness", 2

    def embed(self, waveform: Waveform) -> np.ndarray:
        level = float(np.sqrt(np.mean(np.square(waveform.samples))))
        return np.array([np.cos(level), np.sin(level)], np.float32)


class PitchEncoder:
    """A speaker encoder of the zero crossings alone."""

    name, size = "pitch", 2

    def embed(self, waveform: Waveform) -> np.ndarray:
        crossings = np.mean(np.diff(np.sign(waveform.samples)) != 0)
        return np.array([np.cos(10 * crossings), np.sin(10 * crossings)], np.float32)


def tone(frequency: float) -> Waveform:
    return Waveform(np.sin(2 * np.pi * frequency * np.arange(24_000) / 24_000).astype(np.float32), 24_000)


def test_a_take_is_identified_where_no_other_speakers_reference_is_as_near(tmp_path: Path):
    def trial(speaker: str, frequency: float) -> Trial:
        audio.write(tone(frequency), tmp_path / f"{speaker}.wav")
        return TRIALS[0].model_copy(update={"speaker": speaker, "reference": tmp_path / f"{speaker}.wav"})

    anna, bert = trial("anna", 100.0), trial("bert", 900.0)
    metric = SpeakerMetric(PitchEncoder(), [anna, bert])
    assert metric.score(anna, tone(300.0)).is_nearest is True and metric.score(bert, tone(300.0)).is_nearest is False
    assert metric.score(anna, None).is_nearest is False
    assert SpeakerMetric(PitchEncoder(), [anna]).score(anna, tone(300.0)).is_nearest is None


def test_missing_packages_are_named_by_extra_in_one_go(monkeypatch: pytest.MonkeyPatch):
    absent = {"jiwer", "pocketsphinx", "utmos_pytorch"}
    monkeypatch.setattr(panel, "find_spec", lambda name: None if name in absent else object())
    assert missing_packages(["sphinx", "utmos"]) == [
        "the metrics need the Python packages jiwer, pocketsphinx: pip install 'marstts[eval]'",
        "the metrics need the Python packages utmos_pytorch: pip install 'marstts[eval-models]'",
    ]
    assert missing_packages(["resemblyzer"]) == []


def test_null_speaker_encoders_and_models_without_one_are_refused():
    with pytest.raises(ConfigError, match="expected one of xvector, resemblyzer, wavlm, identity"):
        open_speaker_metric("telepathy", MetricsConfig(names={"telepathy": None}, model=None))
    with pytest.raises(MarsError, match="nowhere"):
        open_speaker_metric("identity", MetricsConfig(names={"identity": None}, model="nowhere"))
