"""WavLM-SV, the identity encoder of the published MARS6: an adapter over `transformers`.

Upstream: a reference `Waveform`.  Downstream: `voice.Voice`, role "identity".
MARS6 (arXiv:2501.05787), Sec. III-A: a speaker-verification embedding; the published checkpoint was trained with the
x-vectors (512) of `microsoft/wavlm-base-plus-sv`, of unit length.
Deviations: resampling to 16 kHz is by soxr rather than torchaudio.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.errors import AudioError, CheckpointError, require
from marstts.weights.pretrained import EXTRA, find_file, find_weights, fingerprint, read_tensors, short_name

if TYPE_CHECKING:
    from torch import Tensor

PUBLISHED = "microsoft/wavlm-base-plus-sv"
"""The weights the published MARS6 was trained with."""

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")

MIN_SECONDS = 0.5
"""Shorter references are padded with silence: the x-vector's convolutions over time need some frames."""


class WavLmEncoder:
    """A `speaker.base.SpeakerEncoder`: WavLM's x-vector. `source` is its weights: a file, folder or name on the hub.

    `sha256` refuses any other weights; `device` is PyTorch's name for one.
    Raises MissingExtraError without the packages, CheckpointError where the weights are missing or do not fit.
    """

    published = PUBLISHED
    kind = "WavLM"
    """Beginning of the names of the classes of `transformers`."""

    def __init__(self, source: Path | str | None = None, *, sha256: str | None = None, device: str = "cpu") -> None:
        self._torch = require("torch", EXTRA)
        transformers = require("transformers", EXTRA)
        weights = _fetch(source or self.published)
        self.name = short_name(f"{self.kind.lower()}-sv", fingerprint(weights, sha256))
        self._extractor, self._model = _load(self._torch, transformers, weights, self.kind)
        self._device = self._torch.device(device)
        self._model.to(self._device)
        self.size: int = self._model.config.xvector_output_dim

    def embed(self, waveform: Waveform) -> NDArray[np.float32]:
        """The embedding, (E,) float32 of unit length."""
        return self.embed_batch([waveform])[0]

    def embed_batch(self, waveforms: Sequence[Waveform]) -> NDArray[np.float32]:
        """The embeddings of several, (B, E)."""
        torch = self._torch
        rows = [torch.from_numpy(self._samples(waveform)) for waveform in waveforms]
        lengths = torch.tensor([len(row) for row in rows])
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (B, N)
        mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long().to(self._device)
        base = getattr(self._model, self._model.base_model_prefix)
        with torch.inference_mode(), one_by_one(base.feature_extractor, lengths.tolist()) as frames:
            masked = {"attention_mask": mask} if len(rows) > 1 else {}
            output = base(padded.to(self._device), output_hidden_states=True, **masked)
            unit = torch.nn.functional.normalize(self._xvectors(output, frames), dim=-1)
        return unit.float().cpu().numpy()

    def _xvectors(self, output: Any, frames: Sequence[int]) -> Any:
        """The x-vectors (B, E) of the transformer's output, of which each row has this many frames.

        The class of `transformers` pools padding, too, where layers are dilated.
        """
        torch, model = self._torch, self._model
        if model.config.use_weighted_layer_sum:
            weights = torch.nn.functional.softmax(model.layer_weights, dim=-1)
            hidden = (torch.stack(output.hidden_states, dim=1) * weights.view(-1, 1, 1)).sum(dim=1)
        else:
            hidden = output.last_hidden_state
        hidden = model.projector(hidden)  # (B, T, C)
        pooled = []
        for row, length in zip(hidden, frames, strict=True):
            row = row[None, :length]
            for layer in model.tdnn:
                row = layer(row)
            pooled.append(torch.cat([row.mean(dim=1), row.std(dim=1)], dim=-1))
        return model.feature_extractor(torch.cat(pooled))

    def _samples(self, waveform: Waveform) -> NDArray[np.float32]:
        """The samples (N,) that the model takes."""
        sample_rate = self._extractor.sampling_rate
        samples = resample(waveform, sample_rate).samples
        if len(samples) == 0:
            raise AudioError(f"{self.kind} was given no samples")
        samples = np.pad(samples, (0, max(0, round(MIN_SECONDS * sample_rate) - len(samples))))
        return self._extractor(samples, sampling_rate=sample_rate, return_tensors="np").input_values[0]


class XVectorEncoder(WavLmEncoder):
    """An x-vector over wav2vec 2.0, for speaker verification (SUPERB): no model here is conditioned on it."""

    published = "anton-l/wav2vec2-base-superb-sv"
    kind = "Wav2Vec2"


@contextmanager
def one_by_one(extractor: Any, lengths: Sequence[int]) -> Iterator[list[int]]:
    """A context in which `extractor` takes the rows of a padded batch alone and without their padding.

    Its value is a list, to which the number of frames of each row is added.
    Its norm is over the whole time of a row, so padding would change all frames.
    """
    whole = extractor.forward
    pad = require("torch", EXTRA).nn.utils.rnn.pad_sequence
    counts: list[int] = []

    def forward(padded: Tensor) -> Tensor:
        frames = [whole(row[None, :length])[0].T for row, length in zip(padded, lengths, strict=True)]  # (T, C)
        counts.extend(map(len, frames))
        return pad(frames, batch_first=True).mT

    extractor.forward = forward
    try:
        yield counts
    finally:
        del extractor.forward


def _fetch(source: Path | str) -> Path:
    """The weights, after a check that their configuration files are next to them."""
    find_file(source, ["config.json"])
    find_file(source, ["preprocessor_config.json"])
    return find_weights(source, WEIGHT_FILES)


def _load(torch: Any, transformers: Any, weights: Path, kind: str) -> tuple[Any, Any]:
    """Feature extractor and model in evaluation mode, every tensor of the model from the file."""
    try:
        extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(weights.parent, local_files_only=True)
        config = getattr(transformers, f"{kind}Config").from_pretrained(weights.parent, local_files_only=True)
        with torch.random.fork_rng(devices=[]):  # the random initialization is overwritten
            model = getattr(transformers, f"{kind}ForXVector")(config)
        missing = model.load_state_dict(read_tensors(weights), strict=False).missing_keys
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{weights}: cannot be loaded as {kind}-SV: {reason}") from error
    if missing:
        raise CheckpointError(f"{weights}: weights of another model; {kind}-SV also needs {', '.join(missing[:3])}")
    return extractor, model.eval()
