"""The command: from a manifest to a table, with stand-ins for the model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

from marstts import audio
from marstts.audio import Waveform
from marstts.cli import evaluate as door
from marstts.cli import report as report_door
from marstts.codec.toy import ToyCodec
from marstts.data.manifest import Utterance, write_manifest
from marstts.errors import MarsError
from marstts.evaluation import judges
from marstts.evaluation.metrics.words import plain_words
from marstts.evaluation.testset import read_testset, write_testset
from marstts.mars6.generate import SamplingConfig
from marstts.speaker.toy import ToySpeakerEncoder

RECORDINGS = Path(__file__).parents[1] / "audio"
SAID = {
    "anna": ("LJ001-0008.flac", "Has never been surpassed."),
    "bert": ("sense-0930.flac", "He might even have been made amiable himself."),
}
RUN = CliRunner()


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Two readers with two utterances each: the recording, and the same again with a word more in its text."""
    utterances = []
    for speaker, (name, text) in SAID.items():
        recording = audio.read(RECORDINGS / name)
        audio.write(recording, tmp_path / f"{speaker}.wav")
        for number, words in enumerate((text, f"{text} Indeed.")):
            utterances.append(
                Utterance(
                    id=f"{speaker}-{number}", audio=f"{speaker}.wav", text=words, speaker=speaker, style="regular",
                    seconds=recording.seconds, source_rate=16000, split="test", licence="public domain",
                )
            )  # fmt: skip
    write_manifest(utterances, tmp_path / "utterances.jsonl")
    return tmp_path / "utterances.jsonl"


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that rustles, a recogniser that knows two recordings by heart, and toy encoders."""

    class Rustle:
        codec, identity_encoder, style_encoder = (
            ToyCodec(),
            ToySpeakerEncoder("identity", 24),
            ToySpeakerEncoder("style", 11),
        )
        sampling, quality = SamplingConfig(), 48000

        def clone(self, reference, transcript=None):
            return transcript

        def speak(self, text, voice, seed):
            length = 12_000 if voice is None else 9_000
            samples = np.random.default_rng(seed).standard_normal(length).astype(np.float32) * 0.1
            return SimpleNamespace(waveform=Waveform(samples, 8000))

    class ByHeart:
        name = "by heart"

        def hear(self, waveform):
            first = audio.resample(waveform, 8000).samples[:8000]
            for recording, words in SAID.values():
                known = audio.resample(audio.read(RECORDINGS / recording), 8000).samples[: len(first)]
                if len(known) == len(first) and np.corrcoef(first, known)[0, 1] > 0.95:
                    return plain_words(words)
            return []

    monkeypatch.setitem(judges.RECOGNISERS, "sphinx", ByHeart)
    monkeypatch.setattr(door, "load_model", lambda name: Rustle())
    monkeypatch.setattr(door, "take_away", lambda model, variant: model)
    monkeypatch.setattr(judges, "open_encoder", lambda name, bench: ToySpeakerEncoder(name, 24))


def evaluated(*arguments: str) -> str:
    result = RUN.invoke(door.evaluate, list(arguments))
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.output


@pytest.fixture
def testset(manifest: Path, tmp_path: Path) -> Path:
    path = tmp_path / "testset.jsonl"
    made = evaluated("testset", str(manifest), "--output", str(path), "--speakers", "anna,bert", "--sentences", "2")
    assert "2 trials by anna, bert" in made
    return path


def test_from_a_manifest_to_a_table_and_side_by_side(testset: Path, tmp_path: Path, stand_ins: None):
    floor = "espeak-ng" if shutil.which("espeak-ng") else ""
    options = ["--testset", str(testset), "--workers", "1", "--judges", "sphinx,identity"]
    table = evaluated(
        "--system", "mini", "--output", str(tmp_path / "a"), "--beside", f"source,codec,{floor}".strip(","), *options
    )
    rows = [line.split(" | ")[0].strip("| ") for line in table.split("\n\n")[1].splitlines()[2:]]
    assert rows == ["mini (shallow)", "mini (deep)", "source", "codec", *([floor] if floor else [])]
    results = json.loads((tmp_path / "a" / "results.json").read_text())
    by_name = {one["system"]: one for one in results["systems"]}
    assert by_name["source"]["scores"]["wer"]["value"] < 0.5 < by_name["codec"]["scores"]["wer"]["value"]
    assert by_name["mini (deep)"]["scores"]["real_time_factor"]["value"] > 0
    assert results["facts"]["voice, identity"] == "toy-identity-24" and "machine" in results["facts"]

    takes = tmp_path / "theirs"
    takes.mkdir()
    audio.write(audio.read(RECORDINGS / "LJ001-0008.flac"), takes / "anna-0.wav")
    again = evaluated("--system", str(takes), "--output", str(tmp_path / "b"), "--beside", "", *options)
    assert "| theirs | 2 |" in again and "missing" in again

    report = Typer()
    report.command()(report_door.report)
    arguments = [str(tmp_path / "a"), str(tmp_path / "b"), "--output", str(tmp_path / "c")]
    ablations = ["--ablations", "mini", "--testset", str(testset), "--judges", "sphinx,identity", "--workers", "1"]
    compared = RUN.invoke(report, [*arguments, *ablations])
    assert compared.exit_code == 0, f"{compared.output}\n{compared.exception!r}"
    for name in ("| theirs |", "| mini (deep) |", "| mini@no-ras (shallow) |", "| mini@no-quality-prefix (shallow) |"):
        assert name in compared.output
    assert "not run: no model before tuning was named" in compared.output
    assert {path.name for path in (tmp_path / "c").glob("*.*")} >= {"report.md", "report.json", "wer_by_style.svg"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "say what to judge with --system"),
        (["--system", "xttsv2"], "say which with --python xttsv2=INTERPRETER"),
        (["--system", "source", "--python", "gpt=python"], "expected NAME=INTERPRETER"),
        (["--system", "mini@no-words"], "expected one of no-ras, no-quality-prefix"),
        (["--system", "nowhere"], "expected a model, or a folder"),
        (["--system", "codec", "--judge-model", "none"], "needs a model to take the codec from"),
        (["--system", "source", "--judges", "ears"], "there is no judge 'ears'"),
    ],
)
def test_impossible_wishes_are_answered_in_a_sentence(
    testset: Path, tmp_path: Path, stand_ins: None, arguments: list[str], complaint: str
):
    common = ["--testset", str(testset), "--output", str(tmp_path / "out"), "--beside", "", "--workers", "1"]
    result = RUN.invoke(door.evaluate, [*common, *arguments])
    assert isinstance(result.exception, MarsError) and complaint in str(result.exception)


def test_without_real_recordings_nothing_is_read_beside_them(testset: Path, tmp_path: Path, stand_ins: None):
    trials = [trial.model_copy(update={"source": None}) for trial in read_testset(testset)]
    write_testset(trials, tmp_path / "unread.jsonl")
    table = evaluated(
        "--system", "mini", "--clone", "shallow", "--testset", str(tmp_path / "unread.jsonl"), "--beside",
        "source,codec",
        "--judges", "identity", "--workers", "1", "--output", str(tmp_path / "out"),
    )  # fmt: skip
    assert "| mini (shallow) | 2 |" in table and "source |" not in table and "codec |" not in table


def test_judges_are_judged_on_a_folder_of_recordings(manifest: Path, tmp_path: Path, stand_ins: None):
    for number, words in enumerate(("Has never been surpassed.", "Has never been surpassed. Indeed.")):
        path = tmp_path / "speech" / f"{number}.flac"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(RECORDINGS / "LJ001-0008.flac", path)
        path.with_suffix(".txt").write_text(words)
    command = ["judges", str(tmp_path / "speech"), "--codec", "toy", "--judges", "prosody", "--workers", "1"]
    table = evaluated(*command, "--output", str(tmp_path / "out"))
    assert "| judge | clean | codec | noisy | scrambled | order |" in table and "| pitch follows ↑ | 1.00" in table
    result = RUN.invoke(door.evaluate, [*command, "--max-seconds", "1", "--output", str(tmp_path / "none")])
    assert "all 2 recordings are longer than 1 s" in str(result.exception)


def test_a_models_encoder_errors_are_printed(manifest: Path, stand_ins: None):
    printed = evaluated("speakers", str(manifest), "--encoder", "style")
    assert "toy-style-11 on the test split" in printed and "| all | 4 | 2 | " in printed


def test_codec_command_writes_its_table(tmp_path: Path):
    pytest.importorskip("pystoi")
    pytest.importorskip("pesq")
    judged = RUN.invoke(
        door.evaluate, ["codec", "toy", "--audio", str(RECORDINGS), "--limit", "1", "--output", str(tmp_path)]
    )
    assert judged.exit_code == 0, judged.output
    assert "| bit rate | 0.98 kbit/s |" in judged.output
    assert (tmp_path / "codec.json").is_file()
