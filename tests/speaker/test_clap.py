import math

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from marstts.audio import Waveform
from marstts.errors import AudioError, CheckpointError
from marstts.speaker import clap
from marstts.speaker.clap import ClapEncoder

WIDTH, DEPTHS, HEADS, SIZE, BINS, MELS = 8, [1, 2, 1], [1, 2, 4], 11, 513, 64


def htsat_names(model):
    """A `ClapAudioModel`'s tensors under the names that HTSAT gives them in an MS-CLAP checkpoint."""
    state = {key.removeprefix("audio_encoder."): value for key, value in model.state_dict().items()}
    named = {}
    for key, tensor in state.items():
        if ".key." in key or ".value." in key:
            continue
        if ".query." in key:
            parts = [state[key.replace("query", part)] for part in ("query", "key", "value")]
            key, tensor = key.replace("attention.self.query", "attn.qkv"), torch.cat(parts, dim=0)
        for theirs, ours in (
            ("attention.output.dense", "attn.proj"),
            ("attention.self", "attn"),
            ("intermediate.dense", "mlp.fc1"),
            ("output.dense", "mlp.fc2"),
            ("layernorm_before", "norm1"),
            ("layernorm_after", "norm2"),
            ("batch_norm", "bn0"),
        ):
            key = key.replace(theirs, ours)
        named[key] = tensor
    return named


pytestmark = pytest.mark.slow  # imports transformers


@pytest.fixture(scope="module")
def original():
    """A small random HTSAT with every tensor far from its start, and its projection."""
    torch.manual_seed(0)
    config = transformers.ClapAudioConfig(
        patch_embeds_hidden_size=WIDTH,
        hidden_size=WIDTH * 2 ** (len(DEPTHS) - 1),
        depths=DEPTHS,
        num_attention_heads=HEADS,
        num_mel_bins=MELS,
        hidden_dropout_prob=0.0,
    )
    model = transformers.ClapAudioModel(config).eval()
    for name, tensor in model.state_dict().items():
        if name.endswith("batch_norm.running_mean"):
            tensor.fill_(22.0)  # decibels, about what the test signals have
        elif name.endswith("batch_norm.running_var"):
            tensor.fill_(100.0)
        elif tensor.is_floating_point():
            tensor.add_(0.4 * torch.randn(tensor.shape))
    width = config.hidden_size
    projection = {
        "linear1.weight": torch.randn(SIZE, width),
        "linear2.weight": torch.randn(SIZE, SIZE),
        "layer_norm.weight": torch.rand(SIZE) + 0.5,
        "layer_norm.bias": torch.randn(SIZE),
    }
    return model, projection, torch.rand(BINS, MELS) ** 8


@pytest.fixture(scope="module")
def checkpoint(original):
    """State dict as MS-CLAP writes it, with what the audio branch does not need."""
    model, projection, mel_filters = original
    backbone = htsat_names(model) | {
        "logmel_extractor.melW": mel_filters,
        "spectrogram_extractor.stft.conv_real.weight": torch.zeros(BINS, 1, 1024),
        "layers.1.blocks.1.attn_mask": torch.zeros(3, 3),
        "tscam_conv.weight": torch.zeros(5, 5),
        "head.weight": torch.zeros(5, 5),
    }
    return {
        **{f"audio_encoder.base.htsat.{key}": value.clone() for key, value in backbone.items()},
        **{f"audio_encoder.projection.{key}": value for key, value in projection.items()},
        "caption_encoder.base.wte.weight": torch.zeros(7, 7),
        "logit_scale": torch.tensor(1.0),
    }


@pytest.fixture(scope="module")
def weights(tmp_path_factory, checkpoint):
    path = tmp_path_factory.mktemp("clap") / "CLAP_weights_2023.pth"
    torch.save({"model": checkpoint, "epoch": 3}, path)
    return path


@pytest.fixture(scope="module")
def encoder(weights):
    return ClapEncoder(weights)


def warble(seconds, sample_rate=44_100, speed=3.0):
    """A tone gliding up and down over some noise."""
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    tone = np.sin(2 * np.pi * 1_500 * time + 900 / speed * np.sin(2 * np.pi * speed * time)) * (1 + np.sin(time)) / 4
    samples = tone + np.random.default_rng(0).normal(scale=0.01, size=len(time))
    return Waveform(samples.astype(np.float32), sample_rate)


def test_the_embedding_is_the_projected_mean_of_the_log_mel_image(original, encoder):
    model, projection, mel_filters = original
    samples = warble(7).samples.astype(np.float64)
    padded = np.pad(samples, 512, mode="reflect")
    window = np.sin(np.pi * np.arange(1024) / 1024) ** 2
    frames = [padded[start : start + 1024] * window for start in range(0, len(samples) + 1, 320)]
    power = np.abs(np.fft.rfft(frames)) ** 2 @ mel_filters.numpy()
    decibels = torch.from_numpy(10 * np.log10(power)).float()[None, None]
    with torch.no_grad():
        pooled = model(decibels).pooler_output[0].double()
    first = projection["linear1.weight"].double() @ pooled
    gelu = torch.tensor([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in first.tolist()], dtype=torch.float64)
    total = first + projection["linear2.weight"].double() @ gelu
    total = (total - total.mean()) / (total.var(correction=0) + 1e-5).sqrt()
    expected = total * projection["layer_norm.weight"] + projection["layer_norm.bias"]

    embedding = encoder.embed(warble(7))
    assert embedding.shape == (SIZE,) and embedding.dtype == np.float32 and encoder.size == SIZE
    np.testing.assert_allclose(embedding, expected.numpy(), atol=2e-4)


def test_a_batch_has_the_embeddings_of_its_recordings(encoder):
    recordings = [warble(2.0), warble(8.5, sample_rate=24_000), warble(0.4, speed=5.0)]
    alone = [encoder.embed(recording) for recording in recordings]
    np.testing.assert_allclose(encoder.embed_batch(recordings), alone, atol=1e-4)


def test_short_references_are_repeated_and_long_ones_cropped_to_the_middle(encoder):
    assert clap.fit_excerpt(np.arange(5, dtype=np.float32))[:12].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    long = warble(9)
    middle = Waveform(long.samples[44_100 : 8 * 44_100], 44_100)
    np.testing.assert_array_equal(encoder.embed(long), encoder.embed(middle))
    assert not np.allclose(encoder.embed(long), encoder.embed(warble(9, speed=0.5)), atol=0.02)


def test_any_recording_but_an_empty_one_has_a_finite_embedding(encoder):
    for waveform in (warble(0.01, 8_000), Waveform(np.zeros(24_000, np.float32), 24_000)):
        assert np.isfinite(encoder.embed(waveform)).all()
    with pytest.raises(AudioError, match="no samples"):
        encoder.embed(Waveform(np.zeros(0, np.float32), 44_100))


def test_sizes_come_from_the_published_tensor_shapes():
    """HTSAT-base as published: 96 wide, 2/2/6/2 blocks, 4/8/16/32 heads, windows of 8."""
    tensors = {"patch_embed.proj.weight": torch.empty(96, 1, 4, 4), "bn0.weight": torch.empty(64)}
    for layer, (depth, heads) in enumerate(zip((2, 2, 6, 2), (4, 8, 16, 32), strict=True)):
        for block in range(depth):
            name = f"layers.{layer}.blocks.{block}.attn.relative_position_bias_table"
            tensors[name] = torch.empty(225, heads)
    sizes = clap.infer_sizes(tensors)
    assert sizes["depths"] == [2, 2, 6, 2] and sizes["num_attention_heads"] == [4, 8, 16, 32]
    assert sizes["hidden_size"] == 768 and sizes["window_size"] == 8 and sizes["patch_size"] == 4
    assert sizes["num_mel_bins"] == 64


def test_wrapped_and_safetensors_checkpoints_load_alike(tmp_path, checkpoint, encoder):
    wrapped = {f"clap.module.{key}": value for key, value in checkpoint.items()}
    safetensors.torch.save_file(wrapped, tmp_path / "CLAP_weights_2023.safetensors")
    other = ClapEncoder(tmp_path)
    np.testing.assert_allclose(other.embed(warble(2)), encoder.embed(warble(2)), atol=1e-6)  # sums may be ordered anew
    assert other.name != encoder.name and other.name.startswith("ms-clap-2023-")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda state: state.pop("audio_encoder.base.htsat.norm.weight"), "Missing key.*norm.weight"),
        (lambda state: state.pop("audio_encoder.projection.linear1.weight"), "audio projection holds"),
        (lambda state: state.pop("audio_encoder.base.htsat.logmel_extractor.melW"), "no HTSAT audio branch"),
        (lambda state: state.clear(), "no HTSAT audio branch"),
    ],
)
def test_weights_of_another_layout_are_refused(tmp_path, checkpoint, damage, sentence):
    state = dict(checkpoint)
    damage(state)
    torch.save({"model": state}, tmp_path / "CLAP_weights_2023.pth")
    with pytest.raises(CheckpointError, match=sentence):
        ClapEncoder(tmp_path)
