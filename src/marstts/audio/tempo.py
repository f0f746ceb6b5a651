"""Tempo: the same voice, faster or slower, at the same pitch.

Upstream: `synthesis.speech`.  Downstream: files, players.
FFmpeg's `atempo` filter (waveform similarity overlap-add, LGPL) by way of PyAV, which the extra `formats` installs.
"""

from __future__ import annotations

import numpy as np

from marstts.audio.waveform import Waveform
from marstts.errors import AudioError, ConfigError, require

MIN_SPEED, MAX_SPEED = 0.8, 1.25
"""Range for a whole text; beyond it, overlap-add becomes audible. SSML allows 0.5 to 2."""

BLOCK_SAMPLES = 4096


def check_speed(speed: float) -> None:
    """Raise ConfigError for a speed that cannot be had."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise ConfigError(f"the speed must lie between {MIN_SPEED} and {MAX_SPEED}, but is {speed:g}")


def change_tempo(waveform: Waveform, speed: float) -> Waveform:
    """`waveform` spoken `speed` times as fast, 0.5 to 2; 1 returns it as it is. Needs the extra `formats`."""
    if speed == 1.0 or not len(waveform.samples):
        return waveform
    av = require("av", "formats")
    graph = av.filter.Graph()
    source = graph.add_abuffer(format="flt", sample_rate=waveform.sample_rate, layout="mono", time_base=None)
    tempo, sink = graph.add("atempo", f"{speed:.6f}"), graph.add("abuffersink")
    source.link_to(tempo)
    tempo.link_to(sink)
    graph.configure()
    pieces: list[np.ndarray] = []
    for first in range(0, len(waveform.samples), BLOCK_SAMPLES):
        block = np.ascontiguousarray(waveform.samples[None, first : first + BLOCK_SAMPLES], dtype=np.float32)
        frame = av.AudioFrame.from_ndarray(block, format="flt", layout="mono")
        frame.sample_rate, frame.pts = waveform.sample_rate, first
        graph.push(frame)
        pieces += _ready(av, graph)
    graph.push(None)
    pieces += _ready(av, graph)
    if not pieces:
        raise AudioError("FFmpeg's tempo filter returned no audio")
    return Waveform(np.concatenate(pieces), waveform.sample_rate)


def _ready(av: object, graph: object) -> list[np.ndarray]:
    """The samples that the filter has finished."""
    pieces: list[np.ndarray] = []
    while True:
        try:
            frame = graph.pull()  # type: ignore[attr-defined]
        except (av.error.BlockingIOError, av.error.EOFError):  # type: ignore[attr-defined]
            return pieces
        pieces.append(frame.to_ndarray().reshape(-1).astype(np.float32))
