"""Speaker similarity: encoders of speakers, and the spoof EER.

Upstream: takes and references, as waveforms; any `speaker.base.SpeakerEncoder`.  Downstream: `panel`, `preference`.

Any encoder can be used: WavLM-SV as in the paper (`speaker.wavlm`; MARS6, arXiv:2501.05787, Sec. V), the identity
encoder of a model's bundle, and Resemblyzer (Apache-2.0), which needs no download. The published MARS6 is conditioned
on WavLM-SV and a bundle's model on the encoder in it, so both favor their model; Resemblyzer is independent of all
models here. Its equal error rate on synthetic speakers is 1–2 %. Between a whisper and the same speaker's voice its
similarity falls to 0.7, so give whispered takes whispered references.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.errors import require
from marstts_lab.metrics.hub import package_version

LEVEL_RMS = 0.08
"""Takes and references are normalized to -22 dBFS: recording level does not identify a speaker."""

Embedding = NDArray[np.float32]


class Resemblyzer:
    """The independent encoder: a GE2E d-vector of length 256. Satisfies `speaker.base.SpeakerEncoder`."""

    size = 256
    sample_rate = 16000

    def __init__(self) -> None:
        self.name = f"resemblyzer {package_version('resemblyzer')}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its dependencies use names that their later releases drop
            self._encoder = require("resemblyzer", "eval").VoiceEncoder("cpu", verbose=False)

    def embed(self, waveform: Waveform) -> Embedding:
        """(256,) float32; resamples by itself. Pauses are kept: the trimming of the package removes whispers too."""
        samples = resample(waveform, self.sample_rate).samples
        return np.asarray(self._encoder.embed_utterance(samples), dtype=np.float32)


def level(waveform: Waveform) -> Waveform:
    """The waveform at LEVEL_RMS, or as near as its peak allows."""
    rms, peak = np.sqrt(np.mean(np.square(waveform.samples))), np.abs(waveform.samples).max()
    gain = min(LEVEL_RMS / max(rms, 1e-9), 0.98 / max(peak, 1e-9))
    return Waveform((waveform.samples * gain).astype(np.float32), waveform.sample_rate)


def spoof_eer(real: NDArray[np.float64], generated: NDArray[np.float64]) -> NDArray[np.float64]:
    """The paper's speaker EER in percent (MARS6, arXiv:2501.05787, Sec. V): 0 to 50, higher is better.

    It is the equal error rate of detecting takes as spoofs: how often a take passes as its speaker. `real` (..., N) are
    similarities of references and other recordings of the same speaker (label 1), `generated` (..., M) those of
    references and takes (label 0); -> (...). At 50 takes and recordings are indistinguishable by the encoder. Takes
    that are nearer to their references than recordings count as 50, too. The threshold is that of
    `speaker.base.equal_error_rate`, for many resamples at once.
    """
    scores = np.concatenate([real, generated], axis=-1)
    order = np.argsort(scores, axis=-1, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=-1)
    is_real = order < real.shape[-1]
    refused = (np.cumsum(is_real, axis=-1) - is_real) / real.shape[-1]  # fraction of real ones below each threshold
    accepted = 1 - (np.cumsum(~is_real, axis=-1) - ~is_real) / generated.shape[-1]
    seen = np.zeros(ordered.shape, dtype=bool)
    seen[..., 1:] = ordered[..., 1:] == ordered[..., :-1]  # of equal scores, the first one is the threshold
    distance = np.where(seen, np.inf, np.abs(refused - accepted))
    closest = np.argmin(distance, axis=-1)[..., None]
    rates = np.take_along_axis(refused + accepted, closest, axis=-1)[..., 0] / 2
    return np.minimum(50.0, 100.0 * rates)
