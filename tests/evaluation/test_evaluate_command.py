"""`marstts evaluate` and `marstts report`, with stand-ins for the model."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.toy import ToyCodec
from marstts.errors import MarsError
from marstts.generation.request import SamplingConfig
from marstts.speaker.toy import ToySpeakerEncoder
from marstts_lab.cli import evaluate as evaluate_module
from marstts_lab.cli import report as report_module
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.evaluation import open_systems
from marstts_lab.evaluation.testsets import synthetic
from marstts_lab.metrics import panel, recognition
from marstts_lab.metrics.words import plain_words

RECORDINGS = Path(__file__).parents[1] / "audio"
TRANSCRIPTS = {
    "anna": ("LJ001-0008.flac", "Has never been surpassed."),
    "bert": ("sense-0930.flac", "He might even have been made amiable himself."),
}
RUN = CliRunner()


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Two readers with two utterances each: a recording, and the same one with a longer text."""
    utterances = []
    for speaker, (name, text) in TRANSCRIPTS.items():
        recording = audio.read(RECORDINGS / name)
        audio.write(recording, tmp_path / f"{speaker}.wav")
        for number, words in enumerate((text, f"{text} Indeed.")):
            utterances.append(
                Utterance(
                    id=f"{speaker}-{number}", audio=f"{speaker}.wav", text=words, speaker=speaker, style="regular",
                    seconds=recording.seconds, source_rate=16000, split="test", license="public domain",
                )
            )  # fmt: skip
    write_manifest(utterances, tmp_path / "utterances.jsonl")
    return tmp_path / "utterances.jsonl"


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of noise, a recognizer of two known recordings, and toy encoders."""

    @dataclass(frozen=True)
    class NoiseModel:
        architecture: str = "noise"
        sampling: SamplingConfig = field(default_factory=SamplingConfig)
        quality_prefix_hz: int | None = 48000

    @dataclass(frozen=True)
    class Noise:
        model: NoiseModel = field(default_factory=NoiseModel)
        codec: ToyCodec = field(default_factory=ToyCodec)
        name: str = "noise"
        label: str = "noise@0123456789ab"

        @property
        def session(self):
            return self

        def clone(self, reference, transcript=None):
            return transcript

        def speak(self, text, voice, seed):
            length = 12_000 if voice is None else 9_000
            samples = np.random.default_rng(seed).standard_normal(length).astype(np.float32) * 0.1
            return SimpleNamespace(waveform=Waveform(samples, 8000))

    class KnownRecordings:
        name = "known recordings"

        def transcribe(self, waveform):
            first = audio.resample(waveform, 8000).samples[:8000]
            for recording, words in TRANSCRIPTS.values():
                known = audio.resample(audio.read(RECORDINGS / recording), 8000).samples[: len(first)]
                if len(known) == len(first) and np.corrcoef(first, known)[0, 1] > 0.95:
                    return plain_words(words)
            return []

    encoders = {name: ToySpeakerEncoder(name, 24) for name in ("identity", "style")}
    monkeypatch.setitem(recognition.RECOGNIZERS, "sphinx", KnownRecordings)
    monkeypatch.setattr(open_systems, "load_model", lambda name: Noise())
    monkeypatch.setattr(panel, "open_speaker_metric", lambda name, config: encoders[name])


def evaluated(*arguments: str) -> str:
    result = RUN.invoke(evaluate_module.evaluate, list(arguments))
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


@pytest.fixture
def testset(manifest: Path, tmp_path: Path) -> Path:
    path = tmp_path / "testset.jsonl"
    made = evaluated("testset", str(manifest), "--output", str(path), "--speakers", "anna,bert", "--sentences", "2")
    assert "2 trials by anna, bert" in made
    return path


@pytest.mark.slow
def test_systems_are_evaluated_and_compared(testset: Path, tmp_path: Path, stand_ins: None):
    espeak = "espeak-ng" if shutil.which("espeak-ng") else ""
    options = ["--testset", str(testset), "--workers", "1", "--metrics", "sphinx,identity"]
    summary = evaluated(
        "--system",
        "mini",
        "--output",
        str(tmp_path / "a"),
        "--baselines",
        f"ground-truth,codec-resynthesis,{espeak}".strip(","),
        *options,
    )
    lines = summary.splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("system "))  # after the progress
    rows = [line[:18].strip() for line in lines[header + 1 : -1]]
    assert rows == ["mini (shallow)", "mini (deep)", "ground-truth", "codec-resynthesis", *([espeak] if espeak else [])]
    assert max(map(len, lines[header:-1])) <= 80
    assert lines[-1].endswith("results.md")
    results = json.loads((tmp_path / "a" / "results.json").read_text())
    by_name = {one["system"]: one for one in results["systems"]}
    assert (
        by_name["ground-truth"]["scores"]["wer"]["value"] < 0.5 < by_name["codec-resynthesis"]["scores"]["wer"]["value"]
    )
    assert by_name["mini (deep)"]["scores"]["real_time_factor"]["value"] > 0
    assert results["metadata"]["voice, identity"] == "toy-identity-24" and "machine" in results["metadata"]

    takes = tmp_path / "theirs"
    takes.mkdir()
    audio.write(audio.read(RECORDINGS / "LJ001-0008.flac"), takes / "anna-0.wav")
    again = evaluated("--system", str(takes), "--output", str(tmp_path / "b"), "--baselines", "", *options)
    assert any(line.startswith("theirs") for line in again.splitlines())
    assert "theirs: bert-0: missing" in (tmp_path / "b" / "results.md").read_text()

    report = Typer()
    report.command()(report_module.report)
    arguments = [str(tmp_path / "a"), str(tmp_path / "b"), "--output", str(tmp_path / "c")]
    compared = RUN.invoke(report, arguments)
    assert compared.exit_code == 0, f"{compared.output}\n{compared.exception!r}"
    table = (tmp_path / "c" / "report.md").read_text()
    for name in ("| theirs |", "| mini (deep) |"):
        assert name in table
    assert "wer_by_style.png" in table
    assert {path.name for path in (tmp_path / "c").glob("*.*")} >= {"report.md", "report.json", "wer_by_style.svg"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "expected --system"),
        (["--system", "codec-resynthesis", "--metrics-model", "none"], "needs a model for its codec"),
        (["--system", "ground-truth", "--metrics", "ears"], "there is no metric 'ears'"),
    ],
)
def test_impossible_options_are_refused_in_a_sentence(
    testset: Path, tmp_path: Path, stand_ins: None, arguments: list[str], complaint: str
):
    common = ["--testset", str(testset), "--output", str(tmp_path / "out"), "--baselines", "", "--workers", "1"]
    result = RUN.invoke(evaluate_module.evaluate, [*common, *arguments])
    assert isinstance(result.exception, MarsError) and complaint in str(result.exception)


def test_everything_that_is_missing_is_named_before_anything_is_rendered(
    tmp_path: Path, stand_ins: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(panel, "find_spec", lambda name: None)
    monkeypatch.setattr(synthetic.engines.shutil, "which", lambda program: None)
    monkeypatch.setattr(synthetic, "render", lambda line, root: pytest.fail("rendered before the check"))
    arguments = ["--system", "nowhere", "--root", str(tmp_path / "root"), "--output", str(tmp_path / "out")]
    result = RUN.invoke(evaluate_module.evaluate, [*arguments, "--metrics", "sphinx,utmos"])
    for complaint in (
        "jiwer, pocketsphinx, scipy: pip install 'marstts[eval]'", "pip install 'marstts[eval-models]'",
        "nowhere: there is no such system", "apt-get install",
    ):  # fmt: skip
        assert complaint in str(result.exception)
    assert not (tmp_path / "out").exists() and not (tmp_path / "root").exists()


def test_a_test_set_leaves_out_the_sentences_of_another_one(manifest: Path, testset: Path, tmp_path: Path):
    arguments = ["testset", str(manifest), "--output", str(tmp_path / "rest.jsonl"), "--speakers", "anna"]
    assert "1 trials by anna" in evaluated(*arguments, "--sentences", "1")
    result = RUN.invoke(evaluate_module.evaluate, [*arguments, "--sentences", "1", "--exclude", str(testset)])
    assert "two utterances of a second: has no utterance of anna" in str(result.exception)  # one of the two is left
