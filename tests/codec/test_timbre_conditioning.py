"""The mini codec's timbre embedding: identity at first, equal in both runtimes, and refused where it does not fit."""

from __future__ import annotations

import copy
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from marstts.audio import Waveform
from marstts.bundle import PACKAGED_MODELS, copy_files
from marstts.codec.base import SPEAKER_FOLDER, TIMBRE, noise_of, timbre_encoders
from marstts.codec.mini import MiniCodec, MiniCodecConfig, MiniCodecFolder
from marstts.codec.mini_model import MiniCodecModel, pulse_train, to_hertz
from marstts.errors import AudioError, CheckpointError, ConfigError
from marstts.onnx.export import Graph, export_graphs
from marstts.speaker.mini import MiniEncoderConfig, MiniSpeakerEncoder
from marstts.speaker.mini_model import MiniEncoderModel
from marstts_lab.training.codec.export import export_codec, load_codec, timbre_encoder_name
from marstts_lab.training.speaker.export import load_encoder

PLAIN = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, strides=(2, 1), codebook_size=24, codebook_width=3, latent_width=10,
    encoder_width=14, encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8,
    pitch_dilations=(2,),
)  # fmt: skip
VOICED = PLAIN.model_copy(
    update={
        "timbre_width": 6,
        "timbre_encoder_width": 14,
        "timbre_encoder_blocks": 1,
        "timbre_mels": 9,
        "recognizer_layers": 2,
        "recognizer_width": 64,
        "timbre_speaker_size": 5,
        "timbre_f0_width": 8,
    }
)
SPEAKER = MiniEncoderConfig(size=5, width=12, blocks=1, sample_rate=16_000, fft_size=256, hop=160, num_mels=20)


def random_model(config: MiniCodecConfig) -> MiniCodecModel:
    """A model whose modulations, and what the speaker embedding adds, are not zero, as after some training."""
    torch.manual_seed(0)
    model = MiniCodecModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "modulation" in name or "timbre_speaker" in name:
                parameter.normal_(std=0.3)
    return model


def random_speaker(size: int = 5) -> MiniEncoderModel:
    """A speaker encoder that the timbre embeddings depend on."""
    torch.manual_seed(1)
    return MiniEncoderModel(SPEAKER.model_copy(update={"size": size})).eval()


@pytest.fixture(scope="module")
def folder(written_once: Callable[..., Path], request: pytest.FixtureRequest) -> Path:
    def write(folder: Path) -> None:
        request.getfixturevalue("operators_read_once")  # not where another process has written the folder
        export_codec(random_model(VOICED), "tiny", folder, random_speaker())

    return written_once("timbre-codec", write)


@pytest.fixture
def graphs_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports of weights have the graphs of `folder`, which are of the same network: tracing takes seconds of each."""

    def write_weights(
        target: Path, weights_file: str, model: MiniCodecModel, graphs: dict[str, Graph], **options: Any
    ) -> None:
        export_graphs(target, weights_file, model, {}, **options)
        for name in graphs:
            shutil.copyfile(folder / f"{name}.onnx", target / f"{name}.onnx")

    def copy_encoder(speaker: MiniEncoderModel, target: Path, int8: bool) -> None:
        shutil.copytree(folder / SPEAKER_FOLDER, target)

    monkeypatch.setattr("marstts_lab.training.codec.export.export_graphs", write_weights)
    monkeypatch.setattr("marstts_lab.training.codec.export.export_encoder", copy_encoder)


@pytest.fixture(scope="module")
def model(folder: Path) -> MiniCodecModel:
    """The exported model, whose weights were rounded."""
    return load_codec(folder).eval()


@pytest.fixture(scope="module")
def codec(folder: Path) -> MiniCodec:
    return MiniCodec(folder)


def latents_alone(model: MiniCodecModel, samples: torch.Tensor) -> torch.Tensor:
    """The latents of a whole recording (1, N): spectra and recognizer features are zero around it."""
    patches = VOICED.context_patches
    around, latents = patches * VOICED.strides[0], samples.shape[1] // VOICED.hop_lengths[-1]
    mels = model.log_mel(F.pad(samples, (patches * VOICED.hop_lengths[0],) * 2))
    mels[:, :, : 2 * around] = mels[:, :, -2 * around :] = 0
    features = F.pad(model.recognizer.features_at_latents(samples, latents), (0, 0, around, around))
    return model.encoder(mels, features)[:, :, around:-around]


def noise(seconds: float, seed: int = 1) -> Waveform:
    samples = np.random.default_rng(seed).standard_normal(int(seconds * 24000)).astype(np.float32)
    return Waveform(0.1 * samples, 24000)


def test_an_untrained_timbre_embedding_changes_nothing() -> None:
    torch.manual_seed(0)
    model = MiniCodecModel(VOICED).eval()
    latents = torch.randn(2, VOICED.latent_width, 12)
    with torch.no_grad():
        for ours, theirs in zip(model.decoder(latents, torch.randn(2, 6)), model.decoder(latents), strict=True):
            torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(model.decoder.pitch(latents, torch.randn(2, 6)), model.decoder.pitch(latents))


def test_the_zero_vector_leaves_the_decoder_as_it_is() -> None:
    model = random_model(VOICED)
    latents = torch.randn(1, VOICED.latent_width, 12)
    with torch.no_grad():
        for ours, theirs in zip(model.decoder(latents, torch.zeros(1, 6)), model.decoder(latents), strict=True):
            torch.testing.assert_close(ours, theirs)
        assert not torch.allclose(model.decoder(latents, torch.ones(1, 6))[0], model.decoder(latents)[0])


def test_timbre_embeddings_ignore_the_level_and_the_upper_bands() -> None:
    model = random_model(VOICED)
    mels = torch.randn(1, 12, 40)
    other = mels + 1.5
    other[:, VOICED.timbre_mels :] = -9.0
    with torch.no_grad():
        timbre = model.timbre_encoder(mels)
        torch.testing.assert_close(model.timbre_encoder(other), timbre, rtol=1e-4, atol=1e-4)
    assert float((timbre**2).mean()) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.slow
def test_exported_codes_equal_the_trained_models(model: MiniCodecModel, codec: MiniCodec) -> None:
    waveform = noise(0.1)
    codes = codec.encode(waveform)
    patches = len(codes[0])
    padded = np.pad(waveform.samples, (0, patches * codec.spec.patch_samples - len(waveform.samples)))
    with torch.no_grad():
        expected = model.quantizer.encode(latents_alone(model, torch.from_numpy(padded)[None]))
    for ours, theirs in zip(codes, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs[0].numpy())


@pytest.mark.slow
def test_exported_timbre_embeddings_equal_the_trained_models(model: MiniCodecModel, codec: MiniCodec) -> None:
    waveform = noise(0.1)
    padded = np.pad(waveform.samples, (0, -len(waveform.samples) % VOICED.hop))
    speaker = MiniSpeakerEncoder(codec.folder / SPEAKER_FOLDER).embed(waveform)
    with torch.no_grad():
        wanted = model.timbre_of(torch.from_numpy(padded)[None], torch.from_numpy(speaker)[None])[0].numpy()
    np.testing.assert_allclose(codec.timbre_embedding(waveform), wanted, atol=1e-3)


@pytest.mark.slow
def test_timbre_embeddings_are_of_the_first_fifteen_seconds(codec: MiniCodec) -> None:
    long = noise(16)
    np.testing.assert_array_equal(
        codec.timbre_embedding(long), codec.timbre_embedding(Waveform(long.samples[: 15 * 24000], 24000))
    )
    with pytest.raises(AudioError, match="the recording is empty"):
        codec.timbre_embedding(Waveform(np.zeros(0, np.float32), 24000))


@pytest.mark.slow
def test_a_codec_whose_speaker_encoder_has_another_size_is_refused_where_a_voice_is_made(
    folder: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(folder, tmp_path / "codec")
    shutil.rmtree(other / SPEAKER_FOLDER)
    codec = MiniCodec(other)
    assert codec.encode(noise(0.1)), "codes need no speaker encoder"
    with pytest.raises(CheckpointError, match=r"speaker.*config\.json"):
        codec.timbre_embedding(noise(1))
    shutil.copytree(PACKAGED_MODELS / "mini" / "style", other / SPEAKER_FOLDER)
    with pytest.raises(CheckpointError, match="embeddings of length 5"):
        codec.timbre_embedding(noise(1))


@pytest.mark.parametrize("speaker", [None, random_speaker(4)])
def test_a_codec_is_exported_with_the_speaker_encoder_that_it_depends_on(speaker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="speaker embedding of length 5"):
        export_codec(random_model(VOICED), "tiny", tmp_path / "codec", speaker)


def test_an_untrained_speaker_embedding_changes_nothing() -> None:
    torch.manual_seed(0)
    config = VOICED.model_copy(update={"timbre_f0_width": 0})
    model, mels = MiniCodecModel(config).eval(), torch.randn(2, 12, 40)
    with torch.no_grad():
        torch.testing.assert_close(model.timbre_from(mels, torch.randn(2, 5)), model.timbre_encoder(mels))
        changed = random_model(config)
        assert not torch.allclose(changed.timbre_from(mels, torch.ones(2, 5)), changed.timbre_encoder(mels))


def test_a_timbre_embedding_holds_the_median_f0_of_its_reference_in_one_direction() -> None:
    with_f0, mels = random_model(VOICED), torch.randn(2, 12, 40)
    without = MiniCodecModel(VOICED.model_copy(update={"timbre_f0_width": 0})).eval()
    without.load_state_dict({name: value for name, value in with_f0.state_dict().items() if "timbre_f0" not in name})
    with_f0.timbre_f0.direction.copy_(F.normalize(torch.arange(6.0), dim=0))
    with torch.no_grad():
        ours, plain = (one.timbre_from(mels, torch.ones(2, 5)) for one in (with_f0, without))
        octaves, weights = with_f0.timbre_f0.of_frames(mels)
        mean = (octaves * weights).sum(dim=1) / weights.sum(dim=1)
        torch.testing.assert_close(ours @ with_f0.timbre_f0.direction, 2 * mean)
        across = torch.eye(6) - torch.outer(with_f0.timbre_f0.direction, with_f0.timbre_f0.direction)
        torch.testing.assert_close(ours @ across, plain @ across)
        louder = with_f0.timbre_f0(mels + 1.5)
        torch.testing.assert_close(louder, mean)


def test_a_bundle_keeps_the_speaker_encoder_of_its_codec(folder: Path, tmp_path: Path) -> None:
    copy_files(folder, tmp_path / "codec")
    (tmp_path / "codec" / SPEAKER_FOLDER / "encoder.onnx").stat()
    np.testing.assert_array_equal(
        MiniCodec(tmp_path / "codec").timbre_embedding(noise(1)), MiniCodec(folder).timbre_embedding(noise(1))
    )


@pytest.mark.slow
def test_exported_decoder_equals_the_trained_models_with_a_timbre(model: MiniCodecModel, codec: MiniCodec) -> None:
    codes, vector = codec.encode(noise(0.08)), np.linspace(-1, 1, 6, dtype=np.float32)
    size, patches = codec.spec.patch_samples, len(codes[0])
    hiss = torch.from_numpy(np.concatenate([noise_of((0,), patch, size) for patch in range(patches)]))[None]
    with torch.no_grad():
        latents = model.quantizer.decode([torch.from_numpy(level)[None] for level in codes])
        timbre = torch.from_numpy(vector)[None]
        pitch = to_hertz(model.decoder.pitch(latents, timbre))
        pulses = pulse_train(pitch, VOICED, torch.zeros(1, 1))
        wanted = model.synthesize(model.decoder(latents, timbre), pitch, pulses, hiss)[0].numpy()
    decoded = codec.with_timbre(vector).decode(codes).samples
    np.testing.assert_allclose(decoded, wanted, atol=1e-3 * float(np.abs(wanted).max()))


@pytest.mark.slow
def test_windows_with_a_timbre_equal_the_whole(codec: MiniCodec) -> None:
    conditioned = codec.with_timbre(np.ones(6, np.float32))
    codes = conditioned.encode(noise(0.2))
    decoding, patches = conditioned.decoding(), len(codes[0])
    parts = [decoding.decode_until(codes, stop) for stop in range(0, patches + 1)]
    np.testing.assert_allclose(np.concatenate(parts), conditioned.decode(codes).samples, atol=1e-4)


@pytest.mark.slow
def test_the_timbre_encoder_is_a_speaker_encoder_whose_name_changes_with_its_weights(
    codec: MiniCodec, model: MiniCodecModel
) -> None:
    encoder = timbre_encoders(codec)[TIMBRE]
    np.testing.assert_array_equal(encoder.embed(noise(0.1)), codec.timbre_embedding(noise(0.1)))
    speaker = load_encoder(codec.folder / SPEAKER_FOLDER)
    assert encoder.size == 6 and encoder.name == codec.timbre_encoder == timbre_encoder_name(model, speaker)
    for part in ("timbre_encoder.project.bias", "timbre_speaker.linear.bias", "timbre_f0.project.bias"):
        trained_on = copy.deepcopy(model)
        with torch.no_grad():
            trained_on.get_parameter(part).add_(0.1)
        assert timbre_encoder_name(trained_on, speaker) != codec.timbre_encoder
    with torch.no_grad():
        speaker.project.bias += 0.1
    assert timbre_encoder_name(model, speaker) != codec.timbre_encoder


def test_a_codec_folder_names_its_timbre_encoder_or_has_none() -> None:
    with pytest.raises(ValueError, match="timbre_encoder"):
        MiniCodecFolder(name="tiny", model=VOICED)
    with pytest.raises(ValueError, match="timbre_encoder"):
        MiniCodecFolder(name="tiny", timbre_encoder="timbre-1", model=PLAIN)
    with pytest.raises(ValueError, match="timbre_speaker_size needs a timbre embedding"):
        MiniCodecConfig(timbre_speaker_size=5)
    with pytest.raises(ValueError, match="timbre_f0_width needs a timbre embedding"):
        MiniCodecConfig(timbre_f0_width=5)


@pytest.mark.slow
def test_the_recipe_replaces_decoder_and_timbre_and_keeps_codes_name_and_notices(
    folder: Path, graphs_copied: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = shutil.copytree(folder / SPEAKER_FOLDER, tmp_path / "speaker")
    (speaker / "NOTICE").write_text("by others\n")
    state = load_codec(folder).state_dict()
    weights = {name: value + 0.1 for name, value in state.items() if name.startswith(("decoder.", "timbre_"))}
    named = {name.replace("timbre_speaker.", "mlp.") if "speaker" in name else f"codec.{name}": weights[name].half()
             for name in weights}  # fmt: skip
    script = str(Path(__file__).parents[2] / "recipes" / "mini" / "codec_weights.py")
    arguments = [script, str(folder), str(tmp_path / "weights.safetensors"), str(speaker), str(tmp_path / "codec")]
    monkeypatch.setattr(sys, "argv", arguments)
    save_file({name: value for name, value in named.items() if "pitch" not in name}, arguments[2])
    with pytest.raises(CheckpointError, match="expected all weights of decoder and timbre alone"):
        runpy.run_path(script, run_name="__main__")
    save_file(named, arguments[2])
    runpy.run_path(script, run_name="__main__")
    before, after = MiniCodec(folder), MiniCodec(tmp_path / "codec")
    assert after.spec == before.spec and after.timbre_encoder != before.timbre_encoder
    assert all(np.array_equal(*pair) for pair in zip(before.encode(noise(1)), after.encode(noise(1)), strict=True))
    for name, value in load_codec(tmp_path / "codec").state_dict().items():
        torch.testing.assert_close(value, weights.get(name, state[name]), atol=2e-3, rtol=2e-3)
    assert (tmp_path / "codec" / SPEAKER_FOLDER / "NOTICE").read_text() == "by others\n"
