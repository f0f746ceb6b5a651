"""The mini speaker encoders: the network, and the exported folder run without PyTorch."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.audio.spectral import log_mel
from marstts.errors import AudioError, CheckpointError
from marstts.speaker.mini import GRAPH_FILE, WEIGHTS_FILE, MiniEncoderConfig, MiniSpeakerEncoder
from marstts.speaker.mini_model import AttentiveStatistics, BatchNorm, MiniEncoderModel
from marstts_lab.training.speaker.export import export_encoder, load_encoder

SHIPPED = Path(str(files("marstts"))) / "models_data" / "mini" / "identity"
RATE = 24_000
CONFIG = MiniEncoderConfig(name="tiny", size=11, width=14, blocks=2, num_mels=20)


@pytest.fixture(scope="module")
def model() -> MiniEncoderModel:
    """A network as after training: its batch normalization has statistics."""
    torch.manual_seed(5)
    model = MiniEncoderModel(CONFIG)
    for _ in range(5):
        model.train()(3 * torch.randn(4, CONFIG.num_mels, 60) - 2)
    return model.eval()


@pytest.fixture(scope="module")
def folder(model: MiniEncoderModel, tmp_path_factory: pytest.TempPathFactory, operators_read_once: None) -> Path:
    folder = tmp_path_factory.mktemp("tiny-encoder")
    export_encoder(model, folder)
    return folder


@pytest.fixture(scope="module")
def encoder() -> MiniSpeakerEncoder:
    return MiniSpeakerEncoder(SHIPPED)


def babble(seconds: float, seed: int = 0, sample_rate: int = RATE) -> Waveform:
    rng = np.random.default_rng(seed)
    time = np.arange(int(seconds * sample_rate)) / sample_rate
    tones = sum(np.sin(2 * np.pi * hertz * time) for hertz in rng.uniform(100, 3000, 5))
    return Waveform((0.05 * tones + 0.002 * rng.standard_normal(len(time))).astype(np.float32), sample_rate)


def features(waveform: Waveform) -> NDArray[np.float32]:
    return log_mel(waveform.samples, RATE, fft_size=CONFIG.fft_size, hop=CONFIG.hop, num_mels=CONFIG.num_mels)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, 1.73, 4.2])
def test_the_exported_graph_equals_the_model(model: MiniEncoderModel, folder: Path, seconds: float) -> None:
    encoder = MiniSpeakerEncoder(folder)
    waveform = babble(seconds)
    with torch.no_grad():
        expected = model(torch.from_numpy(features(waveform))[None])[0].numpy()
    np.testing.assert_allclose(encoder.embed(waveform), expected, atol=2e-5)


def test_embedding_has_unit_length_and_the_promised_size(encoder: MiniSpeakerEncoder) -> None:
    embedding = encoder.embed(babble(2.0))
    assert embedding.shape == (encoder.size,) == (192,)
    assert embedding.dtype == np.float32
    assert np.linalg.norm(embedding) == pytest.approx(1.0, abs=1e-5)


def test_same_recording_gives_the_same_embedding(encoder: MiniSpeakerEncoder) -> None:
    first = encoder.embed(babble(2.3))
    np.testing.assert_array_equal(first, encoder.embed(babble(2.3)))
    np.testing.assert_array_equal(first, MiniSpeakerEncoder(SHIPPED).embed(babble(2.3)))


def test_level_makes_no_difference_but_the_voice_does(encoder: MiniSpeakerEncoder) -> None:
    loud, other = babble(2.0), babble(2.0, seed=1)
    quiet = Waveform(loud.samples * np.float32(0.1), RATE)
    np.testing.assert_allclose(encoder.embed(quiet), encoder.embed(loud), atol=1e-3)
    assert np.abs(encoder.embed(other) - encoder.embed(loud)).max() > 1e-2


def test_other_sample_rates_are_resampled(encoder: MiniSpeakerEncoder) -> None:
    waveform = babble(2.0, sample_rate=16_000)
    np.testing.assert_allclose(encoder.embed(waveform), encoder.embed(resample(waveform, RATE)), atol=1e-6)


def test_long_recordings_are_split_into_equal_chunks(encoder: MiniSpeakerEncoder) -> None:
    waveform = babble(24.0)
    pieces = [encoder.embed(Waveform(part, RATE)) for part in np.split(waveform.samples, 3)]
    mean = np.mean(pieces, axis=0)
    np.testing.assert_allclose(encoder.embed(waveform), mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize("samples", [1, 37, 2_400])
def test_the_shortest_recording_is_repeated(encoder: MiniSpeakerEncoder, samples: int) -> None:
    short = babble(0.2).samples[:samples]
    repeated = np.concatenate([short] * (-(-RATE // samples)))
    np.testing.assert_array_equal(encoder.embed(Waveform(short, RATE)), encoder.embed(Waveform(repeated, RATE)))


def test_silence_gives_a_finite_embedding_and_no_samples_an_error(encoder: MiniSpeakerEncoder) -> None:
    assert np.isfinite(encoder.embed(Waveform(np.zeros(RATE, np.float32), RATE))).all()
    with pytest.raises(AudioError, match="empty"):
        encoder.embed(Waveform(np.zeros(0, np.float32), RATE))


def test_the_name_distinguishes_weights(encoder: MiniSpeakerEncoder, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(SHIPPED, tmp_path / "copy"))
    assert MiniSpeakerEncoder(copy).name == encoder.name
    weights = bytearray((copy / WEIGHTS_FILE).read_bytes())
    weights[-2] ^= 1  # the last bit of the last number
    (copy / WEIGHTS_FILE).write_bytes(weights)
    assert MiniSpeakerEncoder(copy).name != encoder.name
    assert encoder.name.startswith("mini-identity-")


@pytest.mark.slow
def test_exported_weights_can_be_trained_on(folder: Path, model: MiniEncoderModel) -> None:
    loaded = load_encoder(folder)
    for (name, value), kept in zip(model.state_dict().items(), loaded.state_dict().values(), strict=True):
        torch.testing.assert_close(kept, value, rtol=0, atol=0, msg=name)
    loaded.train()(torch.randn(3, CONFIG.num_mels, 50)).sum().backward()
    assert loaded.stem.weight.grad is not None


def test_incomplete_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        MiniSpeakerEncoder(tmp_path)
    (tmp_path / "config.json").write_bytes((SHIPPED / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match=GRAPH_FILE):
        MiniSpeakerEncoder(tmp_path)


@pytest.mark.slow
def test_batch_norm_equals_pytorchs() -> None:
    torch.manual_seed(1)
    ours, theirs = BatchNorm(7), torch.nn.BatchNorm1d(7)
    for x in (torch.randn(3, 7, 11) * 2 + 1, torch.randn(5, 7)):
        torch.testing.assert_close(ours.train()(x), theirs.train()(x))
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_attentive_statistics_match_the_formula_by_hand() -> None:
    torch.manual_seed(2)
    pool, x = AttentiveStatistics(3, 5), torch.randn(2, 3, 8)
    pooled = pool(x)
    scores = pool.scores(torch.tanh(pool.hidden(x)))
    for row in range(2):
        for channel in range(3):
            weights = torch.exp(scores[row, channel]) / torch.exp(scores[row, channel]).sum()
            mean = sum(w * v for w, v in zip(weights, x[row, channel], strict=True))
            variance = sum(w * (v - mean) ** 2 for w, v in zip(weights, x[row, channel], strict=True))
            torch.testing.assert_close(pooled[row, channel], mean)
            torch.testing.assert_close(pooled[row, 3 + channel], torch.sqrt(variance + 1e-4))


def test_corrupt_weights_that_give_nan_are_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = shutil.copytree(SHIPPED, tmp_path / "encoder")
    content = bytearray((folder / WEIGHTS_FILE).read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    content[start:] = b"\x00\x7e" * ((len(content) - start) // 2)  # NaN in half precision
    (folder / WEIGHTS_FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match="expected a finite embedding"):
        MiniSpeakerEncoder(folder).embed(babble(1.0))
