import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from marstts.audio import Waveform, resample
from marstts.errors import AudioError, CheckpointError
from marstts.speaker.wavlm import WavLmEncoder

pytestmark = pytest.mark.slow  # transformers takes seconds to import

SIZES = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    conv_dim=(8,) * 7,
    num_conv_pos_embeddings=8,
    num_conv_pos_embedding_groups=2,
    tdnn_dim=(12, 12, 12, 12, 20),
    xvector_output_dim=13,
    use_weighted_layer_sum=True,
)
"""The architecture of WavLM-SV, every width reduced."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wavlm")
    torch.manual_seed(0)
    transformers.WavLMForXVector(transformers.WavLMConfig(**SIZES)).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(do_normalize=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(folder):
    return WavLmEncoder(folder)


def noise(seconds=1.0, sample_rate=16_000, seed=0):
    samples = np.random.default_rng(seed).normal(scale=0.1, size=round(seconds * sample_rate))
    return Waveform(samples.astype(np.float32), sample_rate)


def test_the_embedding_is_the_unit_xvector_of_the_normalized_recording(folder, encoder):
    model = transformers.WavLMForXVector.from_pretrained(folder).eval()
    samples = noise().samples.astype(np.float64)
    standardized = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
    with torch.no_grad():
        expected = model(torch.from_numpy(standardized.astype(np.float32))[None]).embeddings[0].numpy()
    embedding = encoder.embed(noise())
    assert embedding.shape == (13,) and embedding.dtype == np.float32 and encoder.size == 13
    np.testing.assert_allclose(embedding, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize("lengths", [(1.0,), (0.3, 2.0, 1.1), (1.5, 1.5)])
def test_a_batch_has_the_embeddings_of_its_recordings(encoder, lengths):
    recordings = [noise(seconds, seed=index) for index, seconds in enumerate(lengths)]
    alone = [encoder.embed(recording) for recording in recordings]
    np.testing.assert_allclose(encoder.embed_batch(recordings), alone, atol=1e-5)
    np.testing.assert_array_equal(encoder.embed(recordings[0]), alone[0])


def test_loading_and_embedding_leave_the_callers_generator_alone(folder):
    before = torch.get_rng_state()
    WavLmEncoder(folder).embed(noise())
    assert torch.equal(before, torch.get_rng_state())


def test_recordings_of_other_rates_are_resampled(encoder):
    expected = encoder.embed(resample(noise(sample_rate=24_000), 16_000))
    np.testing.assert_array_equal(encoder.embed(noise(sample_rate=24_000)), expected)


def test_the_shortest_recordings_are_embedded_and_empty_ones_refused(encoder):
    for seconds in (0.001, 0.1, 0.5):
        assert np.isfinite(encoder.embed(noise(seconds))).all()
    assert np.isfinite(encoder.embed(Waveform(np.zeros(16_000, np.float32), 16_000))).all()
    with pytest.raises(AudioError, match="no samples"):
        encoder.embed(Waveform(np.zeros(0, np.float32), 16_000))


def test_the_name_follows_the_weights_and_a_checksum_refuses_others(folder, encoder):
    assert encoder.name.startswith("wavlm-sv-") and WavLmEncoder(str(folder)).name == encoder.name
    with pytest.raises(CheckpointError, match="expected weights with SHA-256"):
        WavLmEncoder(folder, sha256="ab" * 32)


def copy_without(folder, target, missing):
    target.mkdir()
    for path in folder.iterdir():
        if path.name != missing:
            (target / path.name).write_bytes(path.read_bytes())
    return target


@pytest.mark.parametrize("missing", ["config.json", "preprocessor_config.json", "model.safetensors"])
def test_incomplete_folders_are_refused_by_the_missing_file(tmp_path, folder, missing):
    with pytest.raises(CheckpointError, match=missing):
        WavLmEncoder(copy_without(folder, tmp_path / "part", missing))


def test_weights_of_another_model_are_refused(tmp_path, folder):
    other = copy_without(folder, tmp_path / "other", "model.safetensors")
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    del tensors["feature_extractor.weight"]
    safetensors.torch.save_file(tensors, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="weights of another model"):
        WavLmEncoder(other)
    tensors["feature_extractor.weight"] = torch.zeros(2, 2)
    safetensors.torch.save_file(tensors, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"cannot be loaded as WavLM-SV: .*size mismatch"):
        WavLmEncoder(other)
    (other / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(CheckpointError, match="expected weights"):
        WavLmEncoder(other)
    (other / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be loaded as WavLM-SV"):
        WavLmEncoder(other)
