"""`marstts speak` with a MARS5 and bad input: each refusal is one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import mars5_small as small
from marstts import audio, load, models
from marstts.audio import Waveform
from marstts.cli.main import app
from marstts.codec.registry import ToyCodecPart
from marstts.generation.request import SamplingConfig
from marstts.mars5.text import AR_FILE, NAR_FILE, SPEECH_FILE
from marstts.voice import Prefix

pytestmark = pytest.mark.slow

RATE = 24_000


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, folder = small.models(), tmp_path_factory.mktemp("bad") / "bundle"
    models.export_bundle(
        folder, made, made.vocabulary.text, encoders={}, name="small", architecture="mars5",
        codec=ToyCodecPart(codebook_size=small.CODES, hop_lengths=(640,) * small.LEVELS),
        settings={"diffusion": {"timesteps": 1}, "tokens_per_second": 30.0}, sampling=SamplingConfig(top_p=0.9),
    )  # fmt: skip
    return folder


def speak(bundle: Path, folder: Path, *options: object) -> tuple[int, str]:
    """Exit status and messages of `marstts speak`."""
    arguments = ["speak", "The cat.", "--model", bundle, "--engine", "torch", "--output", folder / "out.wav", *options]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr.strip()


def refusal(bundle: Path, folder: Path, *options: object) -> str:
    status, message = speak(bundle, folder, *options)
    assert status == 2 and len(message.splitlines()) == 1, message
    return message


def test_a_reference_of_a_tenth_of_a_second_is_refused(bundle: Path, reference: Waveform, tmp_path: Path) -> None:
    audio.write(Waveform(reference.samples[RATE : RATE + RATE // 10], RATE), tmp_path / "short.wav")
    assert "cloning needs at least 1 s" in refusal(bundle, tmp_path, "--reference", tmp_path / "short.wav")


def test_of_ten_minutes_the_first_seconds_make_the_voice_and_a_deep_clone_refuses_them(
    bundle: Path, reference: Waveform, tmp_path: Path
) -> None:
    audio.write(Waveform(np.tile(reference.samples, 200), RATE), tmp_path / "long.wav")
    options = ["--reference", tmp_path / "long.wav"]
    assert "with a transcript at most 12 s" in refusal(bundle, tmp_path, *options, "--transcript", "the cat")
    status, message = speak(bundle, tmp_path, *options)
    assert status == 0 and "the voice is taken from the first 15 s" in message
    assert len(audio.read(tmp_path / "out.wav").samples)


def truncate(folder: Path) -> None:
    (folder / AR_FILE).write_bytes((folder / AR_FILE).read_bytes()[:-100])


def lose_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / NAR_FILE)
    save_file({name: tensor for name, tensor in tensors.items() if name != "text_embedding.weight"}, folder / NAR_FILE)


def lose_the_end_of_speech(folder: Path) -> None:
    content = json.loads((folder / SPEECH_FILE).read_text())
    (folder / SPEECH_FILE).write_text(json.dumps({**content, "special": {}}))


def merge_what_is_not_there(folder: Path) -> None:
    content = json.loads((folder / SPEECH_FILE).read_text())
    (folder / SPEECH_FILE).write_text(json.dumps({**content, "merges": [[0, 999], *content["merges"][1:]]}))


def compute_no_tokens(folder: Path) -> None:
    tensors = load_file(folder / AR_FILE)
    save_file({**tensors, "output.weight": np.full_like(tensors["output.weight"], np.nan)}, folder / AR_FILE)


def compute_no_codes(folder: Path) -> None:
    tensors = load_file(folder / NAR_FILE)
    save_file(
        {**tensors, "heads.1.output.bias": tensors["heads.1.output.bias"] * np.float32(np.inf)}, folder / NAR_FILE
    )


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (truncate, "ar.safetensors"),
        (lose_a_tensor, "text_embedding.weight"),
        (lose_the_end_of_speech, "<|endofspeech|>"),
        (merge_what_is_not_there, "speech_tokenizer.json"),
        (compute_no_tokens, "NaN"),
        (compute_no_codes, "NaN"),
    ],
)
def test_malformed_models_are_refused(
    bundle: Path, reference_file: Path, tmp_path: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(bundle, broken)
    spoil(broken / "mars5")
    assert complaint in refusal(broken, tmp_path, "--reference", reference_file)


def test_prefixes_with_foreign_codes_or_longer_than_the_window_are_refused(
    bundle: Path, reference: Waveform, tmp_path: Path
) -> None:
    synthesizer = load(bundle, "torch")
    voice, long = synthesizer.clone(reference), np.arange(60) % small.CODES
    for codes, complaint in ((np.array([1, 99, 2]), "this model has 0 to 12"), (long, "the model attends to 40")):
        deep = replace(voice, prefix=Prefix("the cat", (codes,) * small.LEVELS))
        deep.save(tmp_path / "deep.voice")
        assert complaint in refusal(bundle, tmp_path, "--voice", tmp_path / "deep.voice")
