"""Inference of the mini speaker encoders without PyTorch: log-mel in NumPy, then one ONNX graph.

Upstream: a folder written by `training.speaker.export`.  Downstream: `synthesis.clone`, `data.tokenize`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts import audio
from marstts.audio import Waveform
from marstts.audio.spectral import log_mel
from marstts.errors import AudioError, CheckpointError
from marstts.io.config import Config, read_config
from marstts.io.reading import printable_name
from marstts.onnx.session import CheckedGraph
from marstts.weights.pretrained import fingerprint

CONFIG_FILE, GRAPH_FILE, WEIGHTS_FILE = "config.json", "encoder.onnx", "encoder.safetensors"

MIN_SECONDS = 1.0
"""Shorter recordings are repeated up to this length: the network was trained on no shorter ones."""

CHUNK_SECONDS = 10.0
"""Longer recordings are split into equal chunks of at most this length, whose embeddings are averaged."""


Size = Annotated[int, Field(ge=1, le=4096)]
"""A number of channels, bands or blocks."""


class MiniEncoderConfig(Config):
    """Sizes of a mini speaker encoder, and its name."""

    name: str = Field("mini", min_length=1, max_length=200)
    """Name of the encoder; `MiniSpeakerEncoder.name` adds a hash of the weights."""

    network: Literal["mini", "campplus"] = "mini"
    """CAM++ (`training.speaker.campplus`) has published weights; `width` and `blocks` are those of the other."""

    size: int = Field(ge=1, le=65_536)
    """E, length of the embedding."""

    width: int = Field(192, gt=1, le=4096)
    """Channels of the convolutions."""

    blocks: int = Field(5, gt=0, le=64)
    """Residual blocks; block i has dilation i, so more of them have a larger receptive field."""

    sample_rate: int = Field(24000, ge=1000, le=192_000)
    fft_size: int = Field(1024, ge=4, le=2**16, multiple_of=2)
    hop: int = Field(256, ge=1, le=2**15)
    """Samples per spectral frame."""
    num_mels: Size = 80

    one_speaker_similarity: float | None = Field(None, ge=-1.0, le=1.0)
    """Similarity of two parts of a recording below which two people speak, see `synthesis.clone.speaker_change`; None
    where it was not measured."""


class MiniSpeakerEncoder:
    """A trained mini encoder (identity or style) in its folder; satisfies `speaker.base.SpeakerEncoder`."""

    def __init__(self, folder: Path) -> None:
        self.config = read_config(MiniEncoderConfig, folder / CONFIG_FILE, CheckpointError)
        inputs, outputs = {"log_mel": (1, self.config.num_mels, None)}, {"embedding": (1, self.config.size)}
        self._graph = CheckedGraph(folder / GRAPH_FILE, inputs, outputs)
        self._hash = fingerprint(folder / WEIGHTS_FILE)[:8]

    @property
    def name(self) -> str:
        """Name of the encoder and its weights."""
        return f"{self.config.name}-{self._hash}"

    @property
    def size(self) -> int:
        """Length E of the embedding."""
        return self.config.size

    @property
    def one_speaker_similarity(self) -> float | None:
        """Similarity of two parts of a recording below which two people speak; None where it was not measured."""
        return self.config.one_speaker_similarity

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """The embedding, (E,) float32 of unit length, the same at any level; AudioError if there is no sample."""
        samples = audio.resample(waveform, self.config.sample_rate).samples
        if not len(samples):
            raise AudioError("the recording is empty; a speaker embedding needs a second of speech or more")
        chunks = split_chunks(repeat_short(samples, self.config), self.config)
        total = np.sum([self.embed_chunk(chunk) for chunk in chunks], axis=0)
        if not np.isfinite(total).all():
            raise CheckpointError(
                f"{printable_name(self._graph.path)}: expected a finite embedding, but the graph computed NaN or "
                "infinity; its weights are corrupt"
            )
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
        return self._graph.run({"log_mel": mels[None]}, [(1, self.config.size)])[0][0]


def repeat_short(samples: NDArray[np.float32], config: MiniEncoderConfig) -> NDArray[np.float32]:
    """samples (N,), repeated whole if shorter than MIN_SECONDS."""
    size = int(MIN_SECONDS * config.sample_rate)
    return np.tile(samples, -(-size // len(samples))) if len(samples) < size else samples


def split_chunks(samples: NDArray[np.float32], config: MiniEncoderConfig) -> list[NDArray[np.float32]]:
    """samples (N,) in the fewest equal chunks of at most CHUNK_SECONDS."""
    chunks = -(-len(samples) // int(CHUNK_SECONDS * config.sample_rate))
    return np.array_split(samples, chunks)
