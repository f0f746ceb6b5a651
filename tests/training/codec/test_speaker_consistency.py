"""Speaker consistency loss: embeddings as in synthesis, a gradient for the output alone, and an encoder that stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import save_file

from marstts.audio import Waveform, resample
from marstts.audio.spectral import log_mel
from marstts.codec.mini import MiniCodecConfig
from marstts.errors import ConfigError
from marstts.io.config import write_config
from marstts.io.precision import Precision
from marstts.speaker.mini import CONFIG_FILE, WEIGHTS_FILE, MiniEncoderConfig
from marstts.speaker.mini_model import MiniEncoderModel
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.training.codec.config import CodecTrainingConfig, Stage
from marstts_lab.training.codec.losses import SpeakerConsistencyConfig, SpeakerConsistencyLoss
from marstts_lab.training.codec.task import CodecTask
from marstts_lab.training.codec.terms import SpeakerConsistencyTerm
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.speaker.campplus import CamPlusPlus

SIZES = MiniEncoderConfig(size=9, width=12, blocks=2, num_mels=20)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("identity")
    torch.manual_seed(0)
    save_file(MiniEncoderModel(SIZES).state_dict(), folder / WEIGHTS_FILE)
    write_config(SIZES, folder / CONFIG_FILE)
    return folder


def test_embeddings_are_those_of_the_encoder_in_synthesis(encoder: Path) -> None:
    samples = np.random.default_rng(0).standard_normal((2, 12_000)).astype(np.float32)
    loss = SpeakerConsistencyLoss(SpeakerConsistencyConfig(encoder=str(encoder)), SIZES.sample_rate)
    mels = [log_mel(row, 24_000, fft_size=SIZES.fft_size, hop=SIZES.hop, num_mels=SIZES.num_mels) for row in samples]
    expected = loss.encoder(torch.from_numpy(np.stack(mels)))
    torch.testing.assert_close(loss.embed(torch.from_numpy(samples)), expected, atol=1e-4, rtol=1e-3)


def test_the_loss_moves_the_output_nearer_to_the_target_and_leaves_the_encoder(encoder: Path) -> None:
    loss = SpeakerConsistencyLoss(SpeakerConsistencyConfig(encoder=str(encoder)), SIZES.sample_rate)
    target, other = torch.randn(2, 3, 8_000)
    output = (other * torch.linspace(0.01, 1, 8_000)).requires_grad_(True)
    before = loss(output, target)
    before.backward()
    assert output.grad is not None and bool(output.grad.isfinite().all())
    step = output.detach() - 1e-3 * output.grad / output.grad.norm() * output.detach().norm()
    assert 0 < float(loss(step, target)) < float(before.detach())
    assert abs(float(loss(target, target))) < 1e-6
    assert all(parameter.grad is None for parameter in loss.encoder.parameters())


def test_silence_has_a_finite_gradient(encoder: Path) -> None:
    loss = SpeakerConsistencyLoss(SpeakerConsistencyConfig(encoder=str(encoder)), SIZES.sample_rate)
    silence = torch.zeros(1, 8_000, requires_grad=True)
    loss(silence, torch.randn(1, 8_000)).backward()
    assert silence.grad is not None and bool(silence.grad.isfinite().all())


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_an_encoder_whose_frames_do_not_fit_the_codec_is_refused(encoder: Path, rate: int) -> None:
    with pytest.raises(ConfigError, match=f"24000 Hz, but the codec has {rate} Hz"):
        SpeakerConsistencyLoss(SpeakerConsistencyConfig(encoder=str(encoder)), rate)


def test_a_codec_of_a_higher_rate_has_the_embeddings_of_its_resampled_output(tmp_path: Path) -> None:
    sizes = MiniEncoderConfig(network="campplus", size=192, sample_rate=16_000, fft_size=512, hop=160, num_mels=80)
    torch.manual_seed(0)
    save_file(CamPlusPlus(sizes).state_dict(), tmp_path / WEIGHTS_FILE)
    write_config(sizes, tmp_path / CONFIG_FILE)
    times = np.arange(24_000) / 24_000
    tones = np.stack([sum(np.sin(2 * np.pi * f * k * times) / k for k in range(1, 20)) for f in (110, 230)]) * 0.1
    low = np.stack([resample(Waveform(row.astype(np.float32), 24_000), 16_000).samples for row in tones])
    config = SpeakerConsistencyConfig(encoder=str(tmp_path))
    high_rate, own_rate = SpeakerConsistencyLoss(config, 24_000), SpeakerConsistencyLoss(config, 16_000)
    ours = high_rate.embed(torch.from_numpy(tones.astype(np.float32)))
    expected = own_rate.embed(torch.from_numpy(low))
    assert bool(((ours * expected).sum(dim=1) > 0.99).all()) and float(ours[0] @ expected[1]) < 0.99


def test_a_codec_trained_with_it_logs_it_and_leaves_encoder_and_codes(encoder: Path, tmp_path: Path) -> None:
    rows = []
    for number, split in enumerate(("train", "train", "validation")):
        noise = np.random.default_rng(number).standard_normal(7_000)
        soundfile.write(tmp_path / f"{number}.wav", 0.1 * noise, 24_000)
        rows.append(Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker="ann", style="regular",
                              seconds=0.29, source_rate=24_000, split=split, license="own"))  # fmt: skip
    write_manifest(rows, tmp_path / "utterances.jsonl")
    lines = [f'{{"id": "{number}", "f0": [0, 120, 130, 140, 150]}}' for number in range(3)]
    (tmp_path / "f0.jsonl").write_text("\n".join(lines) + "\n")
    model = MiniCodecConfig(
        fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
        encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1), pitch_width=8, pitch_dilations=(1, 2),
    )  # fmt: skip
    config = CodecTrainingConfig(
        model=model, loop=LoopConfig(steps=2), stage=Stage.DECODER, batch_size=3, segment_patches=12, warmup_steps=0,
        precision=Precision.FP32, speaker_consistency=SpeakerConsistencyConfig(encoder=str(encoder), weight=2.0),
    )  # fmt: skip

    task, without = (
        CodecTask(one, tmp_path / "utterances.jsonl")
        for one in (config, config.model_copy(update={"speaker_consistency": None}))
    )
    (term,) = (term for term in task.terms if isinstance(term, SpeakerConsistencyTerm))
    trained_against = term.consistency.loss.encoder
    assert "speaker_consistency" not in without.train_step(0)
    before = {name: value.clone() for name, value in trained_against.state_dict().items()}
    assert 0 < float(task.train_step(0)["speaker_consistency"]) < 2
    for name, value in trained_against.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    for name, value in task.model.state_dict().items():
        same = bool(torch.equal(value, without.model.state_dict()[name]))
        assert same or name.startswith("decoder."), name
    assert not torch.equal(torch.cat([p.flatten() for p in task.model.decoder.parameters()]),
                           torch.cat([p.flatten() for p in without.model.decoder.parameters()]))  # fmt: skip
