"""The journey from recordings to speech by commands, with toy parts and a model of a few thousand parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from marstts.audio import Waveform, write
from marstts.cli.main import app
from marstts.data.manifest import Utterance, write_manifest
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.loading import load

pytestmark = pytest.mark.slow

RATE = 24_000
PITCHES = {"la": 220, "le": 330, "lo": 440}
"""The language of the corpus: each word is a tone of a fifth of a second."""

PARTS = {"codec": "toy:32", "identity": "toy:6", "style": "toy:5"}

CONFIG = """
precision = "fp32"
validation_patches = 40
[model]
text_vocab_size = 264
codebook_size = 32
width = 24
encoder_layers = 1
global_layers = 2
local_layers = 1
heads = 2
local_heads = 3
identity_size = 6
style_size = 5
[loop]
steps = 4
validate_every = 4
log_every = 2
[batching]
patches_per_batch = 60
[attention_guidance]
layers = [1]
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    utterances = []
    for number in range(9):
        words = rng.choice(list(PITCHES), size=4)
        time = np.arange(RATE // 5) / RATE
        tones = np.concatenate([0.2 * np.sin(2 * np.pi * PITCHES[word] * time) for word in words])
        write(Waveform(tones.astype(np.float32), RATE), tmp_path / f"{number}.wav")
        utterances.append(
            Utterance(
                id=f"u{number}",
                audio=f"{number}.wav",
                text=" ".join(words) + ".",
                speaker=f"s{number % 2}",
                style="regular",
                seconds=0.8,
                source_rate=RATE,
                split="validation" if number > 6 else "train",
                license="own",
            )
        )
    write_manifest(utterances, tmp_path / "utterances.jsonl")
    return tmp_path / "utterances.jsonl"


def marstts(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_recordings_become_a_model_that_speaks(manifest: Path, reference: Waveform, tmp_path: Path) -> None:
    parts = [word for name, value in PARTS.items() for word in (f"--{name}", value)]
    assert "9 utterances in 1 shards" in marstts("tokenize", manifest, "--output", tmp_path / "shards", *parts)
    (tmp_path / "mars6.toml").write_text(CONFIG)
    command = ["train", "mars6", "--config", tmp_path / "mars6.toml", "--data", tmp_path / "shards", "--threads", 1]
    assert "step 4 validation" in marstts(*command, "--output", tmp_path / "run")
    assert "resuming at step 4" in marstts(*command, "--output", tmp_path / "run")

    marstts("export", tmp_path / "run", *parts, "--name", "journey", "--output", tmp_path / "bundle")
    synthesizer = replace(load(tmp_path / "bundle"), backoff=BackoffConfig(attempts=1))
    voice = synthesizer.clone(reference, transcript="la le")
    speech = synthesizer.speak("La le lo.", voice, seed=3)
    again = synthesizer.speak("La le lo.", voice, seed=3)
    assert [take.text for take in speech.takes] == ["La le lo."]
    assert len(speech.samples) and np.array_equal(speech.samples, again.samples)
