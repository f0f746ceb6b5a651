"""The journeys of a MARS5 by commands: recordings to speech, and published files to a bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mars5_published import AR, NAR, ar_content, nar_content, save
from marstts import models
from marstts.audio import Waveform, write
from marstts.bundle import read_info
from marstts.cli.main import app
from marstts.codec import registry
from marstts.synthesis import clone as cloning
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.loading import load
from marstts_lab.cli import export
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.training.mars5.run_folder import SpeechRate, read_rate, read_vocabulary
from scripted import with_parts

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end]

RATE = 24_000
PITCHES = {"la": 220, "le": 330, "lo": 440}
"""The language of the corpus: each word is a tone of a fifth of a second."""

CODEC = registry.ToyCodecPart(codebook_size=16, hop_lengths=(800, 800, 800))

TRAINING = """
precision = "fp32"
validation_batches = 1
[loop]
steps = {steps}
validate_every = 2
log_every = 1
[batching]
patches_per_batch = 120
concat_probability = 0
[objective]
min_reference_frames = 5
max_reference_frames = 9
[model]
text_vocab_size = 262
levels = 3
codebook_size = 16
"""

AR_SIZES = """
speech_vocab_size = 22
width = 12
layers = 1
heads = 2
head_size = 4
feed_forward_width = 20
speaker_layers = 1
speaker_heads = 3
speaker_feed_forward_width = 14
"""

NAR_SIZES = """
width = 18
heads = 2
encoder_layers = 1
decoder_layers = 1
speaker_layers = 1
feed_forward_width = 22
timestep_width = 10
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


@pytest.fixture
def shards(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shards of a toy codec with one rate, which is what `toy` means here."""
    for module in (registry, export):
        monkeypatch.setattr(module, "parse_codec", lambda name: CODEC)
    folder = manifest.parent / "shards"
    marstts("tokenize", manifest, "--output", folder, "--codec", "toy", "--identity", "toy:4", "--style", "toy:4")
    return folder


def refusal(*arguments: object) -> str:
    """The one sentence with which a command refuses."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) == 1, result.output
    return result.stderr


def write_configs(folder: Path, steps: int) -> None:
    (folder / "ar.toml").write_text(TRAINING.format(steps=steps) + AR_SIZES)
    (folder / "nar.toml").write_text(TRAINING.format(steps=steps) + NAR_SIZES)


def test_recordings_become_a_mars5_that_speaks(shards: Path, reference: Waveform, tmp_path: Path) -> None:
    write_configs(tmp_path, steps=1)
    ar_run, nar_run, bundle = tmp_path / "ar", tmp_path / "nar", tmp_path / "bundle"
    train_ar = ["train", "mars5-ar", "--config", tmp_path / "ar.toml", "--data", shards, "--output", ar_run]
    train_nar = ["train", "mars5-nar", "--config", tmp_path / "nar.toml", "--data", shards, "--output", nar_run]
    assert "262 text and 22 speech tokens" in marstts(*train_ar)
    first = read_vocabulary(ar_run)
    marstts(*train_nar, "--tokenizers-from", ar_run)
    write_configs(tmp_path, steps=2)
    assert "resuming at step 1" in marstts(*train_ar)
    assert "resuming at step 1" in marstts(*train_nar, "--tokenizers-from", ar_run)
    assert read_vocabulary(ar_run).speech == first.speech == read_vocabulary(nar_run).speech

    options = ["--nar", nar_run, "--name", "journey", "--output", bundle]
    assert "--codec" in refusal("export", ar_run, *options)
    assert "--identity" in refusal("export", ar_run, *options, "--codec", "toy", "--identity", "toy:4")
    chosen = tmp_path / "settings.toml"
    chosen.write_text("[sampling]\nfreq_penalty = 0.5\n[diffusion]\nx_0_tmp = 0.4\n")
    assert "x_0_tmp" in refusal("export", ar_run, *options, "--codec", "toy", "--settings", chosen)
    chosen.write_text("[sampling]\nfreq_penalty = 0.5\ntop_p = 0.7\n[diffusion]\nx_0_temp = 0.4\ntimesteps = 3\n")
    options += ["--codec", "toy", "--settings", chosen]
    marstts("export", ar_run, *options, "--timesteps", 2, "--guidance", 1.5)
    settings, rate = read_info(bundle).settings, read_rate(ar_run)
    assert (settings["diffusion"]["timesteps"], settings["diffusion"]["nar_guidance_w"]) == (2, 1.5)
    assert (settings["diffusion"]["x_0_temp"], settings["sampling"]["freq_penalty"]) == (0.4, 0.5)
    assert settings["sampling"]["eos_estimated_gen_length_factor"] == rate.per_character
    assert read_info(bundle).sampling.top_p == 0.7
    marstts("export", ar_run, *options, "--top-p", 0.9, "--output", tmp_path / "given")
    assert read_info(tmp_path / "given").sampling.top_p == 0.9

    synthesizer = with_parts(load(bundle), backoff=BackoffConfig(attempts=1))
    voice = cloning.clone(reference, None, codec=synthesizer.session.codec, encoders=synthesizer.session.encoders)
    speech, again = (synthesizer.speak("La le lo.", voice, seed=3) for _ in range(2))
    assert len(speech.samples) and np.array_equal(speech.samples, again.samples)


def test_the_speech_rate_counts_tokens_of_the_training_split(shards: Path, tmp_path: Path) -> None:
    """A fifth of a second is six frames of this codec, and a word of two letters with a space or a full stop."""
    write_configs(tmp_path, steps=1)
    marstts("train", "mars5-ar", "--config", tmp_path / "ar.toml", "--data", shards, "--output", tmp_path / "ar")
    rate: SpeechRate = read_rate(tmp_path / "ar")
    assert rate.codec == "toy-24000-800-800-800-16"
    assert rate.per_character / rate.per_second == pytest.approx(0.2 / 3)
    assert 5 < rate.per_second < 30, "merges shorten the 30 frames of a second"


def test_a_run_without_a_speech_rate_is_refused(shards: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("mars6").mkdir()
    options = ["--nar", tmp_path / "nar", "--codec", "toy", "--name", "a", "--output", tmp_path / "bundle"]
    assert "expected a run of `marstts train mars5-ar`" in refusal("export", tmp_path / "mars6", *options)


def test_published_files_become_a_bundle(tmp_path: Path) -> None:
    ar = AR.model_copy(update={"width": 64, "speaker_heads": 1})
    nar = NAR.model_copy(update={"width": 128, "heads": 2})
    files = save(ar_content(ar), tmp_path / "ar.pt"), "--nar", save(nar_content(nar), tmp_path / "nar.safetensors")
    assert "AR of width 64" in marstts("convert", *files, "--output", tmp_path / "bundle")
    info = read_info(tmp_path / "bundle")
    assert (info.name, info.architecture, info.codec.kind) == ("mars5-english", "mars5", "encodec")
    assert models.load_for_training(tmp_path / "bundle").ar.config == ar
    assert "--onnx" in refusal("convert", *files, "--output", tmp_path / "other", "--onnx")
    assert "--tokenizer" in refusal("convert", files[0], "--output", tmp_path / "other")
    assert not (tmp_path / "other").exists()
