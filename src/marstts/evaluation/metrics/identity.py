"""Whose voice is it? Cosine similarity of a take to its own reference and to other speakers' references.

Upstream: takes and references, as waveforms; any `speaker.base.SpeakerEncoder`.  Downstream: `judges`.

Any encoders judge: WavLM-SV as in the paper (`speaker.wavlm`; MARS6, arXiv:2501.05787, Sec. V), the one of the model's
own bundle, and Resemblyzer (Apache-2.0), which needs no download and which no model here is trained with. Resemblyzer
tells studio speakers apart at 1–2 % equal error rate; between a whisper and the same speaker's voice
its similarity falls to 0.7, so give whispered takes whispered references.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.errors import require
from marstts.evaluation.versions import package_version

LEVEL_RMS = 0.08
"""Takes and references are brought to -22 dBFS: how loud someone is recorded does not say who it is."""

Embedding = NDArray[np.float32]


@dataclass(frozen=True)
class SpeakerPairs:
    """Of `pairs` (own reference, another speaker's reference), the take is nearer to its own in `nearer`."""

    nearer: int
    pairs: int
    similarity: float
    """Cosine of the take and its own reference."""


class Resemblyzer:
    """The independent judge: a GE2E d-vector of length 256. Satisfies `speaker.base.SpeakerEncoder`."""

    size = 256
    sample_rate = 16000

    def __init__(self) -> None:
        self.name = f"resemblyzer {package_version('resemblyzer')}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its dependencies use names that later releases of theirs will drop
            self._encoder = require("resemblyzer", "eval").VoiceEncoder("cpu", verbose=False)

    def embed(self, waveform: Waveform) -> Embedding:
        """(256,) float32; resamples by itself. Pauses are left in: the package's own trimming cuts whispers too."""
        samples = resample(waveform, self.sample_rate).samples
        return np.asarray(self._encoder.embed_utterance(samples), dtype=np.float32)


def level(waveform: Waveform) -> Waveform:
    """The waveform at LEVEL_RMS, or as near as its peak allows."""
    rms, peak = np.sqrt(np.mean(np.square(waveform.samples))), np.abs(waveform.samples).max()
    gain = min(LEVEL_RMS / max(rms, 1e-9), 0.98 / max(peak, 1e-9))
    return Waveform((waveform.samples * gain).astype(np.float32), waveform.sample_rate)


def cosine(first: Embedding, second: Embedding) -> float:
    """Cosine similarity; 0 where an embedding is all zeros."""
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.dot(first, second)) / norms if norms > 0 else 0.0


def compare_speakers(take: Embedding, own: Embedding, others: Sequence[Embedding]) -> SpeakerPairs:
    """Count the pairs in which the take is strictly nearer to its own reference."""
    similarity = cosine(take, own)
    nearer = sum(similarity > cosine(take, other) for other in others)
    return SpeakerPairs(nearer, len(others), similarity)


def telling_apart(real: NDArray[np.float64], generated: NDArray[np.float64]) -> NDArray[np.float64]:
    """The paper's speaker EER in per cent, at most 50, higher is better (MARS6, arXiv:2501.05787, Sec. V).

    `real` (..., N) are similarities of references and other real recordings of the same speaker (label 1), `generated`
    (..., M) those of the references and the takes (label 0); -> (...). At 50 nobody can tell takes from recordings by
    the voice; takes that are nearer to their references than real recordings are count as 50, too. The same threshold
    as in `speaker.verification.equal_error_rate`, for many resamples at once.
    """
    scores = np.concatenate([real, generated], axis=-1)
    order = np.argsort(scores, axis=-1, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=-1)
    is_real = order < real.shape[-1]
    refused = (np.cumsum(is_real, axis=-1) - is_real) / real.shape[-1]  # share of real ones below each threshold
    accepted = 1 - (np.cumsum(~is_real, axis=-1) - ~is_real) / generated.shape[-1]
    seen = np.zeros(ordered.shape, dtype=bool)
    seen[..., 1:] = ordered[..., 1:] == ordered[..., :-1]  # of equal scores, the first one is the threshold
    distance = np.where(seen, np.inf, np.abs(refused - accepted))
    closest = np.argmin(distance, axis=-1)[..., None]
    rates = np.take_along_axis(refused + accepted, closest, axis=-1)[..., 0] / 2
    return np.minimum(50.0, 100.0 * rates)
