"""The mini speaker encoders as the light install runs them: NumPy log-mel, then one ONNX graph.

Upstream: a folder written by `training.speaker.export_encoder`.  Downstream: `synthesis.clone`, `data.tokenize`.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts import audio
from marstts.audio import Waveform
from marstts.config import Config, read_config
from marstts.errors import AudioError
from marstts.onnx_session import open_session
from marstts.spectral import log_mel

CONFIG_FILE, GRAPH_FILE, WEIGHTS_FILE = "config.json", "encoder.onnx", "encoder.safetensors"

MIN_SECONDS = 1.0
"""Shorter recordings are repeated up to this length: the network learnt on no less."""

CHUNK_SECONDS = 10.0
"""Longer recordings are heard in equal pieces of at most this length, whose embeddings are averaged."""


class MiniEncoderConfig(Config):
    """Sizes of a mini speaker encoder, and its name."""

    name: str = "mini"
    """Names the encoder; `MiniSpeakerEncoder.name` adds a digest of the weights."""

    size: int = Field(gt=0)
    """E, length of the embedding."""

    width: int = Field(192, gt=1)
    """Channels of the convolutions."""

    blocks: int = Field(5, gt=0)
    """Residual blocks; block i has dilation i, so more of them hear further."""

    sample_rate: int = 24000
    fft_size: int = 1024
    hop: int = 256
    """Samples per spectral frame."""
    num_mels: int = 80


class MiniSpeakerEncoder:
    """A trained mini encoder (identity or style) in its folder; satisfies `speaker.base.SpeakerEncoder`."""

    def __init__(self, folder: Path) -> None:
        self.config = read_config(MiniEncoderConfig, folder / CONFIG_FILE)
        self._session = open_session(folder / GRAPH_FILE)
        self._digest = sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()[:8]

    @property
    def name(self) -> str:
        return f"{self.config.name}-{self._digest}"

    @property
    def size(self) -> int:
        return self.config.size

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """(E,) float32 of unit length, the same at any level; AudioError if there is not one sample."""
        samples = audio.resample(waveform, self.config.sample_rate).samples
        if not len(samples):
            raise AudioError("the recording is empty; a speaker is heard in a second of speech or more")
        chunks = cut(repeat(samples, self.config), self.config)
        total = np.sum([self.embed_chunk(chunk) for chunk in chunks], axis=0)
        return (total / max(float(np.linalg.norm(total)), 1e-8)).astype(np.float32)

    def embed_chunk(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """samples (N,) -> (E,)."""
        mels = log_mel(
            samples,
            self.config.sample_rate,
            fft_size=self.config.fft_size,
            hop=self.config.hop,
            num_mels=self.config.num_mels,
        )
        return self._session.run(None, {"log_mel": mels[None]})[0][0]


def repeat(samples: NDArray[np.float32], config: MiniEncoderConfig) -> NDArray[np.float32]:
    """samples (N,), repeated whole if shorter than MIN_SECONDS."""
    wanted = int(MIN_SECONDS * config.sample_rate)
    return np.tile(samples, -(-wanted // len(samples))) if len(samples) < wanted else samples


def cut(samples: NDArray[np.float32], config: MiniEncoderConfig) -> list[NDArray[np.float32]]:
    """samples (N,) in the fewest equal pieces of at most CHUNK_SECONDS."""
    pieces = -(-len(samples) // int(CHUNK_SECONDS * config.sample_rate))
    return np.array_split(samples, pieces)
