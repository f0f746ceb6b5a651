"""Something to say, of any length, and somebody to say it: what is measured must not depend on a corpus.

Upstream: nothing.  Downstream: `measures`, `random_model`.  It owes nothing to the paper.
"""

from __future__ import annotations

import numpy as np

from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice

CHARACTERS_PER_SECOND = 15.0
"""Ordinary reading."""

SENTENCES = (
    "The harbour was quiet when the first boat came in, and nobody had expected it before noon.",
    "She put down her cup and listened.",
    "There were voices on the water, then a bell, then the long scrape of wood against stone.",
    "Most of the fishermen had gone up the hill to look at the new lighthouse, whose lamp would be lit that evening.",
    "He counted twelve crates, all of them marked with the same blue letter.",
    "Nobody could say what was in them or who had sent for them.",
    "By the time the mayor arrived, half of the village stood along the quay and argued about the price of herring.",
    "A dog barked twice and fell asleep again.",
    "If the weather holds, we shall sail at dawn; if it does not, we shall wait and mend the nets.",
    "Years later people would still ask each other where they had been on that particular morning.",
)


def passage(seconds: float) -> str:
    """Sentences that take about so long to read; the last one may be cut after a word."""
    size = max(4, round(seconds * CHARACTERS_PER_SECOND))
    text = ""
    for index in range(size):
        if len(text) >= size:
            break
        text = f"{text} {SENTENCES[index % len(SENTENCES)]}".strip()
    return text if len(text) <= size else text[: size - 1].rsplit(" ", 1)[0].rstrip(" ,;.") + "."


def exact_length() -> BackoffConfig:
    """One attempt per sentence, which lasts as long as its characters say and neither more nor less."""
    return BackoffConfig(
        attempts=1,
        fastest_characters_per_second=CHARACTERS_PER_SECOND,
        slowest_characters_per_second=CHARACTERS_PER_SECOND,
        shortest_seconds=0.0,
        spare_seconds=0.0,
        limit_factor=1.0,
    )


def somebody(synthesizer: Synthesizer) -> Voice:
    """A shallow voice of random embeddings that fits the model."""
    rng, config = np.random.default_rng(0), synthesizer.stepper.config
    identity, style = (
        (vector / np.linalg.norm(vector)).astype(np.float32)
        for vector in (rng.standard_normal(config.identity_size), rng.standard_normal(config.style_size))
    )
    return Voice(
        name="somebody", identity=identity, style=style, prefix=None, codec=synthesizer.codec.spec.name,
        identity_encoder=synthesizer.identity_encoder.name, style_encoder=synthesizer.style_encoder.name,
        source_sha256="0" * 64, consent="nobody's voice: random numbers",
    )  # fmt: skip
