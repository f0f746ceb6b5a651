"""EnCodec at 24 kHz, whose codes MARS5 generates, and `EncodecVocos`, a codec whose decoder is Vocos.

Upstream: `audio.Waveform`.  Downstream: `mars5.pipeline` (codes of a reference), synthesis.
Défossez et al. (arXiv:2210.13438); weights `facebook/encodec_24khz`, run by `transformers`.  MARS5 uses the first eight
codebooks (6 kbps) and not EnCodec's decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.codec.base import CodecSpec, Codes
from marstts.codec.vocos import VocosVocoder
from marstts.errors import AudioError, CheckpointError, require
from marstts.weights.pretrained import (
    EXTRA,
    find_file,
    find_weights,
    fingerprint,
    load_strictly,
    read_tensors,
    short_name,
)

PUBLISHED = "facebook/encodec_24khz"
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")

SAMPLE_RATE, HOP, LEVELS, CODEBOOK_SIZE = 24_000, 320, 8, 1024
BANDWIDTH = 6.0
"""kbps: 8 levels of 10 bits, 75 times a second."""


class EncodecEncoder:
    """EnCodec's encoder and quantizers with the weights of `source`: a file, a folder or a name on the hub.

    `sha256` refuses any other weights.  Raises MissingExtraError without `transformers`, CheckpointError where the
    weights are missing or do not fit.
    """

    def __init__(
        self, source: Path | str = PUBLISHED, *, sha256: str | None = None, device: torch.device | str = "cpu"
    ) -> None:
        transformers = require("transformers", EXTRA)
        path = find_weights(source, WEIGHT_FILES)
        self.name = short_name("encodec", fingerprint(path, sha256))
        config = transformers.EncodecConfig.from_json_file(str(find_file(source, ["config.json"])))
        if (config.sampling_rate, config.hop_length, config.codebook_size) != (SAMPLE_RATE, HOP, CODEBOOK_SIZE):
            raise CheckpointError(f"{path}: expected EnCodec at 24 kHz with 1024 codes and 320 samples per frame")
        with torch.random.fork_rng(devices=[]):  # the random start is overwritten
            self._model = transformers.EncodecModel(config).eval()
        load_strictly(self._model, read_tensors(path), path)
        self._model.to(device)

    @torch.inference_mode()
    def encode(self, waveform: Waveform) -> NDArray[np.int64]:
        """Codes (T, 8), T = ceil(samples / 320); the waveform is resampled if its rate differs."""
        samples = resample(waveform, SAMPLE_RATE).samples
        if len(samples) == 0:
            raise AudioError("EnCodec was given no samples to encode")
        audio = torch.from_numpy(samples)[None, None].to(self._model.device)
        codes = self._model.encode(audio, bandwidth=BANDWIDTH).audio_codes  # (1, 1, L, T)
        return codes[0, 0].T.cpu().numpy().astype(np.int64)


class EncodecVocos:
    """A `codec.base.Codec`: EnCodec encodes, Vocos decodes."""

    lookahead_patches = 29
    """Frames: nine convolutions of 7 reach 27, the overlapping Fourier frames two."""

    def __init__(self, encoder: EncodecEncoder, vocoder: VocosVocoder) -> None:
        self._encoder, self._vocoder = encoder, vocoder
        self.spec = CodecSpec(
            name=f"{encoder.name}+{vocoder.name}",
            sample_rate=SAMPLE_RATE,
            codebook_size=CODEBOOK_SIZE,
            hop_lengths=(HOP,) * LEVELS,
        )

    def encode(self, waveform: Waveform) -> Codes:
        """Eight levels of codes (T,); resampled if the rate differs."""
        return tuple(np.ascontiguousarray(level) for level in self._encoder.encode(waveform).T)

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of T frames, 320 T samples; nothing in it is random, so `first` does not matter."""
        return Waveform(self._vocoder.decode(np.stack([*codes], axis=1)), SAMPLE_RATE)
