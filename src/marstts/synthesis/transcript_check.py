"""Check of a transcript: whether a recording probably has these words.

Upstream: the server, before it makes a deep clone of a recording from the page.  Downstream: `prefix_cut`, and a model,
which is made to say the recording. A deep clone with other words than those of its recording loses words in every take.
The attention alone does not tell, for a model that is made to say a recording follows any text of about its length. So
the recording must also be more probable with these words than with the same words in other orders.
Shapes: T patches of the recording · P tokens of a patch · B texts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.codec.base import Codec
from marstts.generation.speech_model import SpeechModel
from marstts.synthesis.clone.prefix_cut import align_reference, possible_words, prefix_tokens
from marstts.voice import Voice

MIN_FOUND, MIN_CONFIDENCE, MIN_GAIN = 0.95, 0.58, 0.6
"""Least ratio of the words that the attention finds, least mean attention to them, and least gain of log probability
over other orders, in nats per patch. Of 42 people's recordings, 34 passed with their own words, and of 102 trials with
other words none; the limits were chosen on these. Words of which half are right passed 7 of 18 times. A fit that is
missed costs little, for shallow clones are clearer."""

NUM_ORDERS = 3
"""Other orders of the words that are compared."""


def transcript_fits(recording: Waveform, transcript: str, voice: Voice, model: SpeechModel, codec: Codec) -> bool:
    """Return whether a prepared recording probably has these words, which are normalized.

    `voice` has the embeddings of the recording. False for a model whose attention does not follow the text.
    """
    words = possible_words(transcript, recording.seconds)
    if not any(map(str.isalnum, words)):
        return False
    aligned = align_reference(recording, words, voice, model, codec)
    if aligned is None or len(aligned.spans) < MIN_FOUND * len(words.split()):
        return False
    if np.mean([span.confidence for span in aligned.spans]) < MIN_CONFIDENCE:
        return False
    shallow = voice.without_prefix()
    texts = [words, *other_orders(words)]
    scores = log_probabilities(model, shallow, texts, prefix_tokens(model, shallow, codec.encode(recording)))
    return bool(scores[0] - scores[1:].mean() >= MIN_GAIN)


def other_orders(words: str) -> list[str]:
    """The same words in other orders, the same ones for the same words."""
    return [" ".join(random.Random(seed).sample(words.split(), len(words.split()))) for seed in range(NUM_ORDERS)]


def log_probabilities(
    model: SpeechModel, voice: Voice, texts: Sequence[str], tokens: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Mean log probability (B,) of the first token of each patch of tokens (T, P), in nats, given each text."""
    engine = model.engine
    state = engine.start([model.prompt(text, voice) for text in texts])
    total = np.zeros(len(texts))
    for patch in tokens:
        logits, state = engine.next_logits(state, np.zeros((len(texts), 0), np.int64))
        highest = logits.max(axis=1, keepdims=True)
        total += (logits - highest - np.log(np.exp(logits - highest).sum(axis=1, keepdims=True)))[:, patch[0]]
        state = engine.append(state, np.repeat(patch[None], len(texts), axis=0))
    return total / max(1, len(tokens))
