"""MS-CLAP's audio branch, the style encoder of the published MARS6, without the `msclap` package.

Upstream: a reference `Waveform`.  Downstream: `voice.Voice`, role "style".
MARS6 (arXiv:2501.05787), Sec. III-A: a CLAP embedding (1024) holds the style of the reference. The published checkpoint
used MS-CLAP 2023 (arXiv:2309.05767): HTSAT-base (arXiv:2202.00874), a Swin transformer over a
log-mel image, then a two-layer projection.

`transformers` has the same Swin transformer (`ClapAudioModel`) under other tensor names, which `rename` maps. Sizes
and mel filters are read from the weights.

Not verified: the published weights were not available when this was written. Names, shapes and arithmetic follow the
published description and are tested with random weights of the same layout. That the published file loads, and gives
the numbers of `msclap`, is still to be confirmed. Loading is strict: a wrong layout is an error, not a wrong voice.
Deviations: of references longer than 7 s the middle 7 s are used, where `msclap` crops at random; resampling to
44.1 kHz is by soxr rather than torchaudio.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.errors import AudioError, CheckpointError, require
from marstts.weights.pretrained import EXTRA, find_weights, fingerprint, load_strictly, read_tensors, short_name

if TYPE_CHECKING:
    from torch import Tensor

PUBLISHED = "microsoft/msclap"
"""The weights the published MARS6 was trained with."""

WEIGHT_FILES = ("CLAP_weights_2023.safetensors", "CLAP_weights_2023.pth")

SAMPLE_RATE = 44_100
SECONDS = 7
"""Length of the model's input; shorter references are repeated to fill it."""

HOP = 320
"""Samples per spectral frame."""

IMAGE_SIZE = 256
"""Side of the Swin transformer's square image; a log-mel spectrogram is cut in time and stacked to fill it."""

POWER_FLOOR = 1e-10

PREFIX = re.compile(r"^.*?audio_encoder\.")
BACKBONE, PROJECTION = "base.htsat.", "projection."

MEL_FILTERS = "logmel_extractor.melW"

NOT_NEEDED = re.compile(
    r"^(spectrogram_extractor|logmel_extractor|tscam_conv|head)\."  # fixed filters; AudioSet classifier
    r"|(relative_position_index|attn_mask)$"  # functions of the sizes
)

RENAMED = (
    ("bn0.", "batch_norm."),
    (".norm1.", ".layernorm_before."),
    (".norm2.", ".layernorm_after."),
    (".attn.proj.", ".attention.output.dense."),
    (".attn.", ".attention.self."),
    (".mlp.fc1.", ".intermediate.dense."),
    (".mlp.fc2.", ".output.dense."),
)
"""Names of HTSAT, and of `ClapAudioModel`."""


class ClapEncoder:
    """A `speaker.base.SpeakerEncoder`: MS-CLAP 2023. `source` is its weights: a file, a folder or a name on the hub.

    `sha256` refuses any other weights; `device` is PyTorch's name for one.
    Raises MissingExtraError without the packages, CheckpointError where the weights are missing or do not fit.
    """

    def __init__(self, source: Path | str = PUBLISHED, *, sha256: str | None = None, device: str = "cpu") -> None:
        self._torch = require("torch", EXTRA)
        weights = find_weights(source, WEIGHT_FILES)
        self.name = short_name("ms-clap-2023", fingerprint(weights, sha256))
        backbone, projection = split_checkpoint(read_tensors(weights), weights)
        self._device = self._torch.device(device)
        self._mel_filters = backbone[MEL_FILTERS].float().to(self._device)  # (bins, mels)
        self._backbone = _build_backbone(backbone, weights).to(self._device)
        check_projection(projection, weights)
        self._projection = {key: tensor.float().to(self._device) for key, tensor in projection.items()}
        self.size: int = len(projection["layer_norm.weight"])

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """The embedding, (E,) float32, not normalized, as the published MARS6 needs it."""
        return self.embed_batch([waveform])[0]

    def embed_batch(self, waveforms: Sequence[Waveform]) -> NDArray[np.float32]:
        """The embeddings of several, (B, E)."""
        samples = [resample(waveform, SAMPLE_RATE).samples for waveform in waveforms]
        if not all(map(len, samples)):
            raise AudioError("CLAP was given no samples")
        excerpts = self._torch.from_numpy(np.stack([fit_excerpt(one) for one in samples])).to(self._device)
        with self._torch.inference_mode():
            image = log_mel_image(excerpts, self._mel_filters)  # (B, 1, T, mels)
            pooled = self._backbone(image).pooler_output  # (B, width)
            return project(pooled, self._projection).float().cpu().numpy()


def fit_excerpt(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """samples (N,) -> (SECONDS * SAMPLE_RATE,): repeated from the start if too short, the middle if too long."""
    size = SECONDS * SAMPLE_RATE
    if len(samples) < size:
        return np.resize(samples, size)
    start = (len(samples) - size) // 2
    return np.ascontiguousarray(samples[start : start + size])


def log_mel_image(samples: Tensor, mel_filters: Tensor) -> Tensor:
    """samples (B, N), mel_filters (bins, mels) -> (B, 1, N // HOP + 1, mels) decibels of mel power."""
    torch = require("torch", EXTRA)
    fft_size = 2 * (len(mel_filters) - 1)
    window = torch.hann_window(fft_size, device=samples.device)
    spectrum = torch.stft(samples, fft_size, HOP, window=window, center=True, pad_mode="reflect", return_complex=True)
    power = spectrum.abs().square().mT @ mel_filters  # (B, T, mels)
    return 10.0 * torch.log10(power.clamp(min=POWER_FLOOR)).unsqueeze(1)


def split_checkpoint(content: dict[str, Any], source: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Backbone and projection of the audio branch, under their names within it; the text branch is dropped."""
    state = content.get("model", content)
    if not isinstance(state, dict):
        raise CheckpointError(f"{source}: expected MS-CLAP weights, but its 'model' is no state dict")
    audio = {PREFIX.sub("", key): value for key, value in state.items() if PREFIX.match(key)}
    backbone = {key.removeprefix(BACKBONE): value for key, value in audio.items() if key.startswith(BACKBONE)}
    projection = {key.removeprefix(PROJECTION): value for key, value in audio.items() if key.startswith(PROJECTION)}
    needed = {MEL_FILTERS, "patch_embed.proj.weight", "bn0.weight"}
    if not needed <= set(backbone):
        raise CheckpointError(f"{source}: expected MS-CLAP 2023 weights, but it has no HTSAT audio branch")
    return backbone, projection


def rename(backbone: dict[str, Tensor]) -> dict[str, Tensor]:
    """HTSAT's tensors under the names of `ClapAudioModel`, the joint query-key-value projection split."""
    renamed = {}
    for key, tensor in backbone.items():
        if NOT_NEEDED.search(key):
            continue
        for old, new in RENAMED:
            key = key.replace(old, new)
        if ".qkv." in key:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3, dim=0), strict=True):
                renamed[f"audio_encoder.{key.replace('qkv', part)}"] = piece
        else:
            renamed[f"audio_encoder.{key}"] = tensor
    return renamed


def _build_backbone(tensors: dict[str, Tensor], source: Path) -> Any:
    transformers = require("transformers", EXTRA)
    config = transformers.ClapAudioConfig(**infer_sizes(tensors))
    with require("torch", EXTRA).random.fork_rng(devices=[]):  # the random initialization is overwritten
        model = transformers.ClapAudioModel(config).eval()
    computed = {key: value for key, value in model.state_dict().items() if key.endswith("relative_position_index")}
    load_strictly(model, {**computed, **rename(tensors)}, source)
    return model


def infer_sizes(backbone: dict[str, Tensor]) -> dict[str, Any]:
    """Arguments of `ClapAudioConfig` that hold these tensors."""
    patches = backbone["patch_embed.proj.weight"]  # (width, 1, patch, patch)
    heads: dict[tuple[int, int], int] = {}
    table_rows = 0
    for key, tensor in backbone.items():
        if found := re.fullmatch(r"layers\.(\d+)\.blocks\.(\d+)\.attn\.relative_position_bias_table", key):
            heads[int(found[1]), int(found[2])] = tensor.shape[1]
            table_rows = tensor.shape[0]  # (2 * window - 1)²
    num_layers = 1 + max((layer for layer, _ in heads), default=-1)
    return {
        "num_mel_bins": len(backbone["bn0.weight"]),
        "spec_size": IMAGE_SIZE,
        "patch_size": patches.shape[-1],
        "patch_stride": [patches.shape[-1]] * 2,
        "patch_embeds_hidden_size": patches.shape[0],
        "hidden_size": patches.shape[0] * 2 ** (num_layers - 1),
        "depths": [sum(layer == index for layer, _ in heads) for index in range(num_layers)],
        "num_attention_heads": [heads.get((layer, 0), 1) for layer in range(num_layers)],
        "window_size": (math.isqrt(table_rows) + 1) // 2,
        "hidden_dropout_prob": 0.0,
    }


def check_projection(tensors: dict[str, Tensor], source: Path) -> None:
    """Raise CheckpointError unless these are the four tensors of `project`, with shapes that fit together."""
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    size, width = (*shapes.get("linear1.weight", ()), 0, 0)[:2]
    norm = {"layer_norm.weight": (size,), "layer_norm.bias": (size,)}
    expected = {"linear1.weight": (size, width), "linear2.weight": (size, size), **norm}
    if shapes != expected:
        raise CheckpointError(f"{source}: expected MS-CLAP 2023 weights, but its audio projection holds {shapes}")


def project(pooled: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    """(B, width) -> (B, E): two linear layers, the second a residual on the first, and a norm."""
    functional = require("torch", EXTRA).nn.functional
    first = functional.linear(pooled, tensors["linear1.weight"])
    total = first + functional.linear(functional.gelu(first), tensors["linear2.weight"])
    gain, bias = tensors["layer_norm.weight"], tensors["layer_norm.bias"]
    return functional.layer_norm(total, gain.shape, gain, bias)
