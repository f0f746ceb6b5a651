"""The mini codec: geometry, quantisation, and an exported form that equals the trained one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marstts.audio import Waveform
from marstts.codec.mini import MiniCodec, MiniCodecConfig
from marstts.codec.mini_model import MiniCodecModel, pool, stretch
from marstts.errors import CheckpointError
from marstts.training.codec import export_codec

TINY = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1),
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> MiniCodecModel:
    torch.manual_seed(0)
    return MiniCodecModel(TINY).eval()


@pytest.fixture(scope="module")
def codec(model: MiniCodecModel, tmp_path_factory: pytest.TempPathFactory) -> MiniCodec:
    folder = tmp_path_factory.mktemp("codec")
    export_codec(model, "tiny", folder)
    return MiniCodec(folder)


def speech(seconds: float) -> Waveform:
    noise = np.random.default_rng(1).standard_normal(int(seconds * 24000)).astype(np.float32)
    return Waveform(0.1 * noise, 24000)


def test_default_geometry_is_that_of_snac() -> None:
    assert MiniCodecConfig().hop_lengths == (2048, 1024, 512)


def test_exported_codes_equal_the_trained_models(model: MiniCodecModel, codec: MiniCodec) -> None:
    waveform = speech(0.1)
    codes = codec.encode(waveform)
    patches = len(codes[0])
    padded = np.pad(waveform.samples, (0, patches * codec.spec.patch_samples - len(waveform.samples)))
    with torch.no_grad():
        wanted = model.quantizer.encode(model.encoder(model.log_mel(torch.from_numpy(padded)[None])))
    for ours, theirs in zip(codes, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs[0].numpy())


def test_exported_decoder_equals_the_trained_models(model: MiniCodecModel, codec: MiniCodec) -> None:
    codes = codec.encode(speech(0.08))
    with torch.no_grad():
        latents = model.quantizer.decode([torch.from_numpy(level)[None] for level in codes])
        wanted = model.to_samples(*model.decoder(latents))
    np.testing.assert_allclose(codec.decode(codes).samples, wanted[0].numpy(), atol=1e-5)


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


def test_each_level_codes_what_the_coarser_ones_left(model: MiniCodecModel) -> None:
    latents = torch.randn(2, TINY.latent_width, 8)
    levels, codes, _ = model.quantizer(latents)
    left, total = latents, torch.zeros_like(latents)
    for (stride, book), level_codes in zip(model.quantizer.books, codes, strict=True):
        torch.testing.assert_close(book.encode(pool(left, stride)), level_codes)
        part = stretch(book.decode(level_codes), stride)
        left, total = left - part, total + part
    torch.testing.assert_close(torch.stack(levels).sum(dim=0), total)
    torch.testing.assert_close(model.quantizer.decode(codes), total)


def test_gradients_pass_through_the_quantiser_to_the_encoder(model: MiniCodecModel) -> None:
    heard = model(torch.randn(1, 512)).samples
    heard.square().mean().backward()
    gradient = model.encoder.embed.weight.grad
    assert gradient is not None and float(gradient.abs().sum()) > 0


def test_strides_that_do_not_nest_are_refused() -> None:
    with pytest.raises(ValueError, match="fall to 1"):
        MiniCodecConfig(strides=(4, 3, 1))


def test_a_folder_without_graphs_is_refused_by_name(codec: MiniCodec, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((codec.folder / "config.json").read_text())
    with pytest.raises(CheckpointError, match="incomplete"):
        MiniCodec(tmp_path)
