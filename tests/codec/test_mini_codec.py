"""The mini codec: geometry, quantization, and exported graphs that equal the trained model."""

from __future__ import annotations

import os
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from marstts.audio import Waveform
from marstts.codec import harmonics
from marstts.codec.mini import (
    HIGHEST_PITCH,
    LOWEST_PITCH,
    MIDDLE_PITCH,
    MIN_PITCH_PATCHES,
    MiniCodec,
    MiniCodecConfig,
)
from marstts.codec.mini_model import (
    ConvNeXtBlock,
    MiniCodecModel,
    downsample,
    pulse_train,
    to_hertz,
    upsample,
    warp_frequencies,
)
from marstts.errors import CheckpointError

SHIPPED = Path(str(files("marstts"))) / "models_data" / "mini" / "codec"
TINY = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1),
    pitch_width=8, pitch_dilations=(1, 2),
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> MiniCodecModel:
    torch.manual_seed(0)
    return MiniCodecModel(TINY).eval()


@pytest.fixture(scope="module")
def codec() -> MiniCodec:
    return MiniCodec(SHIPPED)


def speech(seconds: float) -> Waveform:
    noise = np.random.default_rng(1).standard_normal(int(seconds * 24000)).astype(np.float32)
    return Waveform(0.1 * noise, 24000)


def test_the_decoder_filters_pulses_at_the_given_pitch() -> None:
    torch.manual_seed(1)
    model = MiniCodecModel(TINY)
    with torch.no_grad():
        filters = model.decoder(torch.zeros(1, TINY.latent_width, 200))
        loud = filters._replace(pulse_gain=torch.zeros_like(filters.pulse_gain), shift=torch.zeros_like(filters.shift),
                                noise_gain=torch.full_like(filters.noise_gain, -9.0))  # fmt: skip
        for hertz in (93.75, 375.0):
            spectrum = np.abs(np.fft.rfft(model.synthesize(loud, torch.full((1, 400), hertz))[0].numpy()))
            loudest = np.sort(np.argsort(spectrum)[-20:]) * 24000 / 12800
            assert np.allclose(loudest % hertz, 0.0)


def test_pulses_hold_all_harmonics_below_nyquist_at_equal_power() -> None:
    pitch = np.full(2400, 1000.0)
    cycles = harmonics.phase(pitch, 24000, before=0.0)
    pulses = harmonics.pulse_train(pitch, cycles, 24000)
    slow = sum(np.cos(2 * np.pi * number * cycles) for number in range(1, 12)) * np.sqrt(2 / 11)
    np.testing.assert_allclose(pulses, slow, atol=1e-5)
    assert float((pulses**2).mean()) == pytest.approx(1.0, rel=1e-4)


def test_pulses_continue_in_phase() -> None:
    pitch = harmonics.interpolate_f0(np.linspace(100, 300, 40), 32)
    whole = harmonics.phase(pitch, 24000, before=0.25)
    rest = harmonics.phase(pitch[500:], 24000, before=whole[499])
    np.testing.assert_allclose(rest, whole[500:], atol=1e-9)


def test_numpy_and_pytorch_compute_the_same_pulses() -> None:
    pitch = np.random.default_rng(0).uniform(60, 500, (2, 30)).astype(np.float32)
    before = np.array([[0.0], [0.7]])
    ours = pulse_train(torch.from_numpy(pitch), TINY, torch.from_numpy(before)).numpy()
    for row, start, pulses in zip(pitch, before[:, 0], ours, strict=True):
        hertz = harmonics.interpolate_f0(row, TINY.hop)
        expected = harmonics.pulse_train(hertz, harmonics.phase(hertz, 24000, start), 24000)
        np.testing.assert_allclose(pulses, expected, atol=1e-4)


def test_pitch_is_clamped_to_the_range_of_voices() -> None:
    hertz = to_hertz(torch.tensor([-9.0, 0.0, 1.0, 9.0]))
    assert hertz.tolist() == [LOWEST_PITCH, MIDDLE_PITCH, 2 * MIDDLE_PITCH, HIGHEST_PITCH]


def test_the_pitch_of_the_smallest_window_is_that_of_a_long_one_bit_for_bit(codec: MiniCodec) -> None:
    """Phase sums up F0: rounded otherwise, a stream would slowly leave the audio of the whole sentence."""
    patches = np.random.default_rng(0).integers(0, codec.spec.codebook_size, (3 * MIN_PITCH_PATCHES, 7))
    whole, window = codec.pitch(patches), codec.pitch(patches[:MIN_PITCH_PATCHES])
    ahead = codec.config.pitch_reach[1] * len(whole) // len(patches)
    assert np.array_equal(window[:-ahead], whole[: len(window) - ahead])


def test_a_block_sees_no_further_ahead_than_configured() -> None:
    block = ConvNeXtBlock(4, dilation=3, ahead=1)
    x = torch.randn(1, 4, 60)
    later = x.clone()
    later[:, :, 30] += 1
    changed = (block(x) - block(later)).abs().amax(dim=(0, 1)) > 0
    assert torch.nonzero(changed)[:, 0].tolist() == [27, 30, 33, 36, 39, 42, 45]


def test_levels_hold_one_two_and_four_codes_per_patch(codec: MiniCodec) -> None:
    codes = codec.encode(speech(0.05))
    assert [len(level) for level in codes] == [len(codes[0]), 2 * len(codes[0]), 4 * len(codes[0])]


def test_decoding_gives_whole_patches_of_audio(codec: MiniCodec) -> None:
    codes = codec.encode(speech(0.05))
    assert len(codec.decode(codes).samples) == len(codes[0]) * codec.spec.patch_samples


def test_other_rates_are_resampled_before_encoding(codec: MiniCodec) -> None:
    halved = Waveform(speech(0.1).samples[::2].copy(), 12000)
    assert len(codec.encode(halved)[0]) == len(codec.encode(speech(0.1))[0])


def test_levels_that_do_not_match_are_refused(codec: MiniCodec) -> None:
    with pytest.raises(CheckpointError, match="decodes levels"):
        codec.decode([np.zeros(2, np.int64), np.zeros(3, np.int64), np.zeros(8, np.int64)])


def test_no_codes_decode_to_no_audio(codec: MiniCodec) -> None:
    assert codec.decode([np.zeros(0, np.int64)] * 3).seconds == 0


@pytest.mark.slow
def test_each_level_codes_the_residual_of_the_coarser_ones(model: MiniCodecModel) -> None:
    latents = torch.randn(2, TINY.latent_width, 8)
    levels, codes, _ = model.quantizer(latents)
    left, total = latents, torch.zeros_like(latents)
    for (stride, codebook), level_codes in zip(model.quantizer.codebooks, codes, strict=True):
        torch.testing.assert_close(codebook.encode(downsample(left, stride)), level_codes)
        part = upsample(codebook.decode(level_codes), stride)
        left, total = left - part, total + part
    torch.testing.assert_close(torch.stack(levels).sum(dim=0), total)
    torch.testing.assert_close(model.quantizer.decode(codes), total)


def test_gradients_pass_through_the_quantizer_to_the_encoder(model: MiniCodecModel) -> None:
    samples = model(torch.randn(1, 512)).samples
    samples.square().mean().backward()
    gradient = model.encoder.embed.weight.grad
    assert gradient is not None and float(gradient.abs().sum()) > 0


def test_strides_that_do_not_nest_are_refused() -> None:
    for strides in ((4, 3, 1), (4, 2), (2, 4, 1), ()):
        with pytest.raises(ValueError, match="strides"):
            MiniCodecConfig(strides=strides)


def test_a_folder_without_graphs_is_refused_by_name(codec: MiniCodec, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((codec.folder / "config.json").read_text())
    with pytest.raises(CheckpointError, match="incomplete"):
        MiniCodec(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["config.json", "decoder.onnx", "codec.safetensors"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "loop", "empty", "garbage"])
def test_files_that_are_no_codec_are_refused_without_waiting(tmp_path: Path, file: str, kind: str) -> None:
    folder = shutil.copytree(SHIPPED, tmp_path / "codec")
    path = folder / (file if (folder / file).exists() else next(folder.glob("*.safetensors")).name)
    path.unlink()
    {
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "loop": lambda: path.symlink_to(path),
        "empty": lambda: path.write_bytes(b""),
        "garbage": lambda: path.write_bytes(bytes(range(256)) * 9),
    }[kind]()
    with pytest.raises(CheckpointError) as error:
        MiniCodec(folder)
    assert path.name in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.8, 1.0, 1.3])
def test_warped_frequencies_are_those_of_bins_divided_by_the_factor(factor: float) -> None:
    spectrum = torch.rand(2, 33, 5)
    warped = warp_frequencies(spectrum, torch.tensor([1.0, factor]))
    torch.testing.assert_close(warped[0], spectrum[0])
    for time in range(5):
        expected = np.interp(np.arange(33) / factor, np.arange(33), spectrum[1, :, time].numpy(), right=0.0)
        np.testing.assert_allclose(warped[1, :, time].numpy(), expected, atol=1e-5)
