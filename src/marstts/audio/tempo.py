"""Tempo: the same voice, faster or slower, at the same pitch.

Upstream: `synthesis.runner` and `synthesis.fitting`, which change the tempo of speech.  Downstream: files, players.
FFmpeg's `atempo` filter (waveform similarity overlap-add, LGPL) by way of PyAV, which the extra `formats` installs.
"""

from __future__ import annotations

import numpy as np

from marstts.audio.waveform import Waveform
from marstts.errors import AudioError, ConfigError, require

MIN_SPEED, MAX_SPEED = 0.25, 4.0
"""The range of OpenAI's API, of every door. Below 0.8 and above 1.25, overlap-add becomes audible."""

MIN_FACTOR = 0.5
"""The slowest of one filter of FFmpeg; slower tempos take two."""

BLOCK_SAMPLES = 4096


def check_speed(speed: float) -> None:
    """Raise ConfigError for a speed that cannot be had."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise ConfigError(f"the speed must lie between {MIN_SPEED:g} and {MAX_SPEED:g}, but is {speed:g}")


def clamped(speed: float) -> float:
    """The speed in the range nearest to a product of speeds, such as those of a text and of a passage in it."""
    return min(max(speed, MIN_SPEED), MAX_SPEED)


def change_tempo(waveform: Waveform, speed: float) -> Waveform:
    """`waveform` spoken `speed` times as fast, 0.25 to 4; 1 returns it as it is. Needs the extra `formats`."""
    if speed == 1.0 or not len(waveform.samples):
        return waveform
    samples = TempoFilter(speed, waveform.sample_rate).push(waveform.samples, is_last=True)
    if not len(samples):
        raise AudioError("FFmpeg's tempo filter returned no audio")
    return Waveform(samples, waveform.sample_rate)


class TempoFilter:
    """Changes the tempo of audio that comes in pieces, 0.25 to 4; what it holds back comes out with the last."""

    def __init__(self, speed: float, sample_rate: int) -> None:
        """Open FFmpeg's filter; raises MissingExtraError without PyAV."""
        self._av = require("av", "formats")
        self._sample_rate = sample_rate
        self._num_pushed = 0
        self._graph = self._av.filter.Graph()
        last = self._graph.add_abuffer(format="flt", sample_rate=sample_rate, layout="mono", time_base=None)
        for factor in (speed,) if speed >= MIN_FACTOR else (MIN_FACTOR, speed / MIN_FACTOR):
            tempo = self._graph.add("atempo", f"{factor:.6f}")
            last.link_to(tempo)
            last = tempo
        last.link_to(self._graph.add("abuffersink"))
        self._graph.configure()

    def push(self, samples: np.ndarray, *, is_last: bool = False) -> np.ndarray:
        """Hand in the next samples -> those that are finished (N,)."""
        pieces: list[np.ndarray] = []
        for first in range(0, len(samples), BLOCK_SAMPLES):
            block = np.ascontiguousarray(samples[None, first : first + BLOCK_SAMPLES], dtype=np.float32)
            frame = self._av.AudioFrame.from_ndarray(block, format="flt", layout="mono")
            frame.sample_rate, frame.pts = self._sample_rate, self._num_pushed + first
            self._graph.push(frame)
            pieces += self._ready()
        self._num_pushed += len(samples)
        if is_last and self._num_pushed:
            self._graph.push(None)
            pieces += self._ready()
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)

    def _ready(self) -> list[np.ndarray]:
        """The samples that the filter has finished."""
        pieces: list[np.ndarray] = []
        while True:
            try:
                frame = self._graph.pull()
            except (self._av.error.BlockingIOError, self._av.error.EOFError):
                return pieces
            pieces.append(frame.to_ndarray().reshape(-1).astype(np.float32))
