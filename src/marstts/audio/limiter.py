"""A peak limiter: audio that comes in pieces, however loud, is never beyond ±1, and never cut off flat.

Upstream: the audio of a take.  Downstream: players, streams and files, which all get the same samples.
Around a peak beyond full scale, the audio is turned down within milliseconds and back within a tenth of a second.
Audio without such peaks stays as it is, sample for sample. How the audio is divided into pieces changes nothing.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marstts.audio.waveform import Waveform

HOP_SECONDS = 0.005
"""The gain is a line within each hop: so long before a peak, the audio is turned down."""

RELEASE_SECONDS = 0.1
"""Time constant with which the gain returns to 1."""

NEARLY_ONE = 0.999
"""A gain above this has returned to 1."""

Samples = NDArray[np.float32]


class Limiter:
    """Limits audio that comes in pieces; it holds back up to two hops, 10 ms."""

    def __init__(self, sample_rate: int) -> None:
        self._hop = max(1, round(HOP_SECONDS * sample_rate))
        self._recovery = 1.0 - math.exp(-HOP_SECONDS / RELEASE_SECONDS)
        self._held = np.zeros(0, np.float32)
        self._gain = 1.0
        """The gain at the beginning of what is held."""

    def push(self, samples: Samples) -> Samples:
        """Take the next samples (N,) -> those that are finished."""
        self._held = np.concatenate([self._held, samples])
        return self._release(len(self._held) // self._hop)

    def finish(self) -> Samples:
        """Return the rest."""
        length = len(self._held)
        num_hops = -(-length // self._hop)
        self._held = np.concatenate([self._held, np.zeros((num_hops + 1) * self._hop - length, np.float32)])
        return self._release(num_hops + 1)[:length]

    def _release(self, num_hops: int) -> Samples:
        """The hops whose following hop is known: all but the last of `num_hops`."""
        if num_hops < 2:
            return np.zeros(0, np.float32)
        hops = self._held[: num_hops * self._hop].reshape(num_hops, self._hop)
        allowed = (1.0 / np.maximum(np.abs(hops).max(axis=1).astype(np.float64), 1.0)).tolist()
        gains = [min(self._gain, allowed[0])]
        for before, after in pairwise(allowed):
            recovered = gains[-1] + (1.0 - gains[-1]) * self._recovery
            gains.append(min(before, after, 1.0 if recovered > NEARLY_ONE else recovered))
        released = hops[:-1]
        if min(gains) < 1.0:
            edges, places = np.array(gains), np.arange(self._hop) / self._hop
            curve = edges[:-1, None] + (edges[1:] - edges[:-1])[:, None] * places
            released = np.clip(released * curve, -1.0, 1.0).astype(np.float32)  # a rounding error beyond at most
        self._held, self._gain = self._held[(num_hops - 1) * self._hop :], gains[-1]
        return released.reshape(-1)


def limit_peaks(waveform: Waveform) -> Waveform:
    """The same audio, limited as a whole; audio within ±1 comes back as it is."""
    if np.abs(waveform.samples).max(initial=0.0) <= 1.0:
        return waveform
    limiter = Limiter(waveform.sample_rate)
    return Waveform(np.concatenate([limiter.push(waveform.samples), limiter.finish()]), waveform.sample_rate)
