"""Does one person speak in a reference, or one after another?

Upstream: `clone`, with a trimmed reference.  Downstream: an encoder whose similarities were calibrated for this.
The reference is cut into windows. Wherever it can be split in two, the mean embeddings of both sides are compared; the
least similar split decides. Speakers who take turns of a few seconds are mixed on both sides and mostly stay unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.speaker.base import SpeakerEncoder, cosine

WINDOW_SECONDS = 1.5
"""Shorter windows distinguish words rather than people."""

MIN_WINDOWS = 2
"""Least windows of a side; shorter references are not checked."""


@runtime_checkable
class CalibratedEncoder(Protocol):
    """A speaker encoder that knows how similar the parts of one person's recording are."""

    @property
    def one_speaker_similarity(self) -> float | None:
        """Similarity of two sides below which two people speak; None where it was not measured."""
        ...

    def embed(self, waveform: Waveform) -> NDArray[np.float32]: ...


def has_two_speakers(waveform: Waveform, encoders: Iterable[SpeakerEncoder]) -> bool:
    """Whether a calibrated encoder finds a second person after the first; False where there is none."""
    for encoder in encoders:
        if isinstance(encoder, CalibratedEncoder) and (limit := encoder.one_speaker_similarity) is not None:
            return least_similarity(window_embeddings(waveform, encoder)) < limit
    return False


def window_embeddings(waveform: Waveform, encoder: CalibratedEncoder) -> NDArray[np.float32]:
    """Embeddings of consecutive windows (W, E); (0, 0) where they are too few to be split."""
    size = int(WINDOW_SECONDS * waveform.sample_rate)
    count = len(waveform.samples) // size
    if count < 2 * MIN_WINDOWS:
        return np.zeros((0, 0), np.float32)
    windows = waveform.samples[: count * size].reshape(count, size)
    return np.stack([encoder.embed(Waveform(window, waveform.sample_rate)) for window in windows])


def least_similarity(embeddings: NDArray[np.float32]) -> float:
    """Cosine similarity (W, E) -> scalar of the mean embeddings on both sides of the least similar split; 1 if none."""
    splits = range(MIN_WINDOWS, len(embeddings) - MIN_WINDOWS + 1)
    return min((cosine(embeddings[:at].mean(axis=0), embeddings[at:].mean(axis=0)) for at in splits), default=1.0)
