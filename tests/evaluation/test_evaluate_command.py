"""The command: from a manifest to a table, with stand-ins for the model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from marstts import audio
from marstts.cli import evaluate as door
from marstts.codec.toy import ToyCodec
from marstts.data.manifest import Utterance, write_manifest
from marstts.speaker.toy import ToySpeakerEncoder

RECORDINGS = Path(__file__).parents[1] / "audio"
RUN = CliRunner()


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Two readers with two utterances each: the recording, and the same again with a word more in its text."""
    said = {
        "anna": ("LJ001-0008.flac", "Has never been surpassed."),
        "bert": ("sense-0930.flac", "He might even have been made amiable himself."),
    }
    utterances = []
    for speaker, (name, text) in said.items():
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
    model = SimpleNamespace(codec=ToyCodec(), identity_encoder=ToySpeakerEncoder("identity", 24))
    monkeypatch.setattr(door, "load_model", lambda name: model)
    monkeypatch.setattr(door, "Resemblyzer", lambda: ToySpeakerEncoder("style", 11))


def test_from_a_manifest_to_a_table(manifest: Path, tmp_path: Path, stand_ins: None):
    testset, output = tmp_path / "testset.jsonl", tmp_path / "out"
    made = RUN.invoke(
        door.evaluate,
        ["make-testset", str(manifest), "--output", str(testset), "--speakers", "anna,bert", "--sentences", "2"],
    )
    assert made.exit_code == 0, made.output
    assert "2 trials by anna, bert" in made.output

    command = ["speech", str(testset), "--output", str(output), "--system"]
    for system in ("source", "codec"):
        judged = RUN.invoke(door.evaluate, [*command, system])
        assert judged.exit_code == 0, judged.output
    results = json.loads((output / "results.json").read_text())
    source, codec = results["systems"]
    assert (source["system"], codec["system"], codec["takes"]) == ("source", "codec", 2)
    assert source["scores"]["cer"]["value"] < 0.5 < codec["scores"]["cer"]["value"]
    assert source["cer_over_ceiling"]["value"] < 1.0
    assert results["facts"]["identity encoder"] == "toy-identity-24"
    assert (output / "takes" / "codec").is_dir()


def test_codec_command_writes_its_table(tmp_path: Path):
    pytest.importorskip("pystoi")
    pytest.importorskip("pesq")
    judged = RUN.invoke(
        door.evaluate, ["codec", "toy", "--audio", str(RECORDINGS), "--limit", "1", "--output", str(tmp_path)]
    )
    assert judged.exit_code == 0, judged.output
    assert "| bit rate | 0.98 kbit/s |" in judged.output
    assert (tmp_path / "codec.json").is_file()
