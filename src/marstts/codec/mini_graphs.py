"""The parts of the mini codec that are exported to ONNX, each with the inputs and outputs of its graph.

Upstream: `codec.mini_model`.  Downstream: `training.codec.export`; `codec.mini` runs the graphs.
Shapes: T patches · P codes per patch · L latents · F spectral frames · D width · M mel bands · V timbre_width ·
S timbre_speaker_size · C recognizer features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from marstts.codec.mini_model import MiniCodecModel, to_hertz


class CodesGraph(nn.Module):
    """The exported encoder, with recognizer features if any, (1, T, latents per patch, C), as its second input.

    mels (1, T, frames per patch, M) -> codes (1, T, P), levels side by side.
    """

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, mels: Tensor, features: Tensor | None = None) -> Tensor:
        patches = mels.shape[1]
        features = None if features is None else features.flatten(1, 2)
        latents = self.codec.encoder(mels.flatten(1, 2).transpose(1, 2), features)
        codes = self.codec.quantizer.encode(latents)
        return torch.cat([level.reshape(1, patches, -1) for level in codes], dim=2)


class RecognizerGraph(nn.Module):
    """The exported recognizer: Whisper's log-mels (1, 80, F) -> features (1, F / 2, C)."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        assert codec.recognizer is not None, "a codec without a recognizer has no such graph"
        self.recognizer = codec.recognizer

    def forward(self, mels: Tensor) -> Tensor:
        return self.recognizer.features(mels)


class HiddenGraph(nn.Module):
    """The exported slow half of the decoder: codes (1, T, P), timbre (1, V) if any -> hidden (1, L, D)."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, codes: Tensor, timbre: Tensor | None = None) -> Tensor:
        return self.codec.decoder.hidden_states(latents_of(self.codec, codes), timbre).transpose(1, 2)


class SourceFilterGraph(nn.Module):
    """The exported fast half of the decoder: hidden (1, L, D), timbre (1, V) if any -> filters, (1, bins, F) each."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, hidden: Tensor, timbre: Tensor | None = None) -> tuple[Tensor, ...]:
        return tuple(self.codec.decoder.source_filter(hidden.transpose(1, 2), timbre))


class PitchGraph(nn.Module):
    """The exported prediction of pitch: codes (1, T, P), timbre (1, V) if any -> hertz (1, F)."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, codes: Tensor, timbre: Tensor | None = None) -> Tensor:
        return to_hertz(self.codec.decoder.pitch(latents_of(self.codec, codes), timbre))


class TimbreGraph(nn.Module):
    """The exported timbre encoder: mels (1, timbre_mels, F), speaker embedding (1, S) if any -> timbre (1, V)."""

    def __init__(self, codec: MiniCodecModel) -> None:
        super().__init__()
        assert codec.timbre_encoder is not None, "a codec without timbre embeddings has no such graph"
        self.codec = codec

    def forward(self, mels: Tensor, speaker: Tensor | None = None) -> Tensor:
        return self.codec.timbre_from(mels, speaker)


def latents_of(codec: MiniCodecModel, codes: Tensor) -> Tensor:
    """codes (1, T, P), levels side by side -> (1, latent_width, L)."""
    counts = [codec.config.strides[0] // stride for stride in codec.config.strides]
    return codec.quantizer.decode([level.reshape(1, -1) for level in codes.split(counts, dim=2)])
