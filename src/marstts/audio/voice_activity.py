"""Voice activity: where a recording holds speech, by the detector of Silero.

Upstream: `audio.Waveform`.  Downstream: `synthesis.clone`, which looks for speech in references.
The graph is `silero_vad_16k_op15.onnx` of https://github.com/snakers4/silero-vad, version 6.2.3 (MIT license).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.onnx.session import Session, open_session

SAMPLE_RATE, CHUNK, CONTEXT = 16_000, 512, 64
"""Input of the detector: chunks of 32 ms, and the samples before each of them."""

SPEECH_PROBABILITY = 0.5
"""A chunk with at least this probability counts as speech."""


@lru_cache(maxsize=1)
def detector_session() -> Session:
    """The detector's graph, opened once; it runs in the calling thread, and so in a forked process, too."""
    return open_session(Path(__file__).with_name("silero_vad") / "silero_vad_16k.onnx")


class SpeechDetector:
    """The detector."""

    def __init__(self) -> None:
        self._session = detector_session()

    def has_speech(self, waveform: Waveform, min_ratio: float) -> tuple[bool, float]:
        """Whether at least `min_ratio` of the chunks are speech, and the ratio where it is not.

        Stops once enough speech was found: a recording of speech needs a fraction of the time.
        """
        chunks = as_chunks(waveform)
        enough = min_ratio * len(chunks)
        found = 0
        for probability in self._each(chunks):
            found += probability >= SPEECH_PROBABILITY
            if found >= enough:
                return True, min_ratio
        ratio = found / max(len(chunks), 1)
        return ratio >= min_ratio, ratio

    def _each(self, chunks: NDArray[np.float32]) -> Iterator[float]:
        """The probabilities of chunks (T, CHUNK), one after another."""
        context, state = np.zeros(CONTEXT, np.float32), np.zeros((2, 1, 128), np.float32)
        for chunk in chunks:
            samples = np.concatenate([context, chunk])
            feeds = {"input": samples[None], "state": state, "sr": np.array(SAMPLE_RATE)}
            probability, state = self._session.run(None, feeds)
            context = samples[-CONTEXT:]
            yield float(probability[0, 0])


def as_chunks(waveform: Waveform) -> NDArray[np.float32]:
    """The recording at the detector's rate, (T, CHUNK), padded with silence to whole chunks."""
    samples = audio.resample(waveform, SAMPLE_RATE).samples
    return np.pad(samples, (0, -len(samples) % CHUNK)).clip(-1.0, 1.0).reshape(-1, CHUNK)
