"""The journey from a model to a wav file: export, load, clone, speak. Random weights, toy codec, toy encoders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from toy_mars6 import export_by_copying, write_toy_run
from typer.testing import CliRunner

import marstts
from marstts import audio
from marstts.bundle import read_info
from marstts.cli.main import app
from marstts.generation.request import StopReason
from marstts.models import load_for_training

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end]

TEXT = "The cat sat on the mat. She sells sea shells."
RUN = CliRunner()


def test_a_loaded_bundle_clones_and_speaks(toy_bundle: Path, reference_file: Path, tmp_path: Path):
    tts = marstts.load(toy_bundle)
    assert type(tts.session.engine).__name__ == "OnnxEngine" and tts.session.model.quality_prefix_hz == 24_000
    shallow, deep = tts.clone(reference_file), tts.clone(reference_file, "She sells sea shells.")
    assert shallow.prefix is None and deep.prefix is not None
    for voice in (shallow, deep):
        speech = tts.speak(TEXT, voice, seed=1)
        assert len(speech.takes) == 2 and speech.model.startswith("toy@")
        assert all(take.stop in StopReason and len(take.codes[0]) for take in speech.takes)
        speech.save(tmp_path / "hello.wav")
        written = audio.read(tmp_path / "hello.wav")
        assert written.sample_rate == 24_000 and written.seconds == pytest.approx(speech.seconds, abs=0.01)


def test_speech_depends_on_the_seed_alone(toy_bundle: Path, reference_file: Path):
    tts = marstts.load(toy_bundle)
    voice = tts.clone(reference_file)
    first, again, other = (tts.speak("The cat sat.", voice, seed=seed, top_p=0.8) for seed in (1, 1, 2))
    assert np.array_equal(first.samples, again.samples)
    assert len(first.samples) != len(other.samples) or not np.array_equal(first.samples, other.samples)


@pytest.mark.slow
def test_both_engines_give_the_same_codes(toy_bundle: Path, reference_file: Path):
    light, heavy = marstts.load(toy_bundle, engine="onnx"), marstts.load(toy_bundle, engine="torch")
    assert [type(tts.session.engine).__name__ for tts in (light, heavy)] == ["OnnxEngine", "TorchEngine"]
    voice = light.clone(reference_file, "She sells sea shells.")
    ours, theirs = (tts.speak("The cat sat.", voice, seed=3) for tts in (light, heavy))
    assert [take.codes[0].tolist() for take in ours.takes] == [take.codes[0].tolist() for take in theirs.takes]


@pytest.mark.slow
def test_a_training_run_becomes_a_model_that_speaks(
    toy_bundle: Path, reference_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`marstts export` on what training leaves behind, then `marstts speak` with the result."""
    run, output = write_toy_run(tmp_path / "run"), tmp_path / "bundle"
    export_by_copying(toy_bundle, monkeypatch)
    parts = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7", "--name", "seven", "--top-p", "0.4"]
    exported = RUN.invoke(app, ["export", str(run), *parts, "--spelling", "simple", "--output", str(output)])
    assert exported.exit_code == 0, exported.output
    assert exported.stdout.startswith(f"{output}: seven@")

    weights, trained = (load_for_training(folder).state_dict() for folder in (output, toy_bundle))
    assert all(tensor.equal(trained[name]) for name, tensor in weights.items())

    twin = [str(run), "--template", str(output), "--name", "eight", "--output", str(tmp_path / "twin")]
    assert RUN.invoke(app, ["export", *twin]).exit_code == 0
    one, other = (read_info(folder) for folder in (output, tmp_path / "twin"))
    assert other == one.model_copy(update={"name": "eight"}) and other.sampling.top_p == 0.4
    assert other.settings["spelling"] == "simple"
    loud = RUN.invoke(app, ["export", str(run), *parts, "--spelling", "loud", "--output", str(tmp_path / "loud")])
    assert loud.exit_code == 2 and "spelling: Input should be 'as written', 'simple' or" in loud.stderr

    voice = ["--reference", str(reference_file), "--model", str(output)]
    spoken = RUN.invoke(app, ["speak", "The cat sat.", *voice, "--json", "--output", str(tmp_path / "seven.wav")])
    assert spoken.exit_code == 0, spoken.stderr
    report = json.loads(spoken.stdout)
    assert report["model"].startswith("seven@") and report["takes"][0]["top_p"] >= 0.4
    assert audio.read(tmp_path / "seven.wav").seconds > 0


def test_exporting_without_a_codec_asks_for_one(tmp_path: Path):
    result = RUN.invoke(app, ["export", str(tmp_path), "--name", "x", "--output", str(tmp_path / "bundle")])
    assert result.exit_code == 2 and "name the codec and encoders of the shards" in result.stderr


def test_exporting_a_folder_that_is_no_run_is_refused_in_a_sentence(tmp_path: Path):
    parts = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7", "--name", "x"]
    result = RUN.invoke(app, ["export", str(tmp_path), *parts, "--output", str(tmp_path / "bundle")])
    assert result.exit_code == 2 and result.stderr.startswith("marstts: ") and result.stderr.count("\n") == 1
    assert not (tmp_path / "bundle").exists()
