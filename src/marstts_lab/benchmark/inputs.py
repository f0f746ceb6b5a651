"""Sample text of any length, and a random voice: measurements must not depend on a corpus.

Upstream: none.  Downstream: `measures`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice

CHARACTERS_PER_SECOND = 15.0
"""Rate of ordinary reading."""

SENTENCES = (
    "The harbour was quiet when the first boat came in, and no one had expected it before noon.",
    "She put down her cup and listened.",
    "There were voices on the water, then a bell, then the long scrape of wood against stone.",
    "Most of the fishermen had gone up the hill to look at the new lighthouse, whose lamp would be lit that evening.",
    "He counted twelve crates, all of them marked with the same blue letter.",
    "No one could say what was in them or who had sent for them.",
    "By the time the mayor arrived, half of the village stood along the quay and argued about the price of herring.",
    "A dog barked twice and fell asleep again.",
    "If the weather holds, we shall sail at dawn; if it does not, we shall wait and mend the nets.",
    "Years later people would still ask each other where they had been on that particular morning.",
)


def sample_text(seconds: float) -> str:
    """Sentences that take about `seconds` to read; the last one may be cut after a word."""
    size = max(4, round(seconds * CHARACTERS_PER_SECOND))
    text = ""
    for index in range(size):
        if len(text) >= size:
            break
        text = f"{text} {SENTENCES[index % len(SENTENCES)]}".strip()
    return text if len(text) <= size else text[: size - 1].rsplit(" ", 1)[0].rstrip(" ,;.") + "."


def fixed_length_backoff() -> BackoffConfig:
    """One attempt per sentence, whose duration is its number of characters over CHARACTERS_PER_SECOND."""
    return BackoffConfig(
        attempts=1,
        max_chars_per_second=CHARACTERS_PER_SECOND,
        min_chars_per_second=CHARACTERS_PER_SECOND,
        onset_seconds=0.0,
        slack_seconds=0.0,
        max_length_factor=1.0,
    )


def random_voice(synthesizer: Synthesizer) -> Voice:
    """A shallow voice of random unit embeddings that fits the model."""
    rng = np.random.default_rng(0)
    return Voice(
        name="random",
        embeddings={role: unit_vector(rng, encoder.size) for role, encoder in synthesizer.session.encoders.items()},
        prefix=None,
        codec=synthesizer.session.codec.spec.name,
        encoders=synthesizer.session.encoder_names,
        source_sha256="0" * 64,
        consent="random numbers, not a person's voice",
    )


def unit_vector(rng: np.random.Generator, size: int) -> NDArray[np.float32]:
    """A random direction, (size,)."""
    vector = rng.standard_normal(size)
    return (vector / np.linalg.norm(vector)).astype(np.float32)
