"""The protocol of speech models: the interface of a model for synthesis, preference training, evaluation and servers.

Upstream: a model's package, opened by `models.open_model`.  Downstream: `synthesis.model_session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marstts.codec.base import Codes
from marstts.generation.engine import Engine
from marstts.generation.request import Prompt, SamplingConfig
from marstts.voice import Voice


class SpeechModel(Protocol):
    """A language model of codec tokens with its text side and its engine; holds no state between calls."""

    @property
    def architecture(self) -> str:
        """Name of the architecture, e.g. "mars6"."""
        ...

    @property
    def engine(self) -> Engine[Any]:
        """The engine that computes the model."""
        ...

    @property
    def sampling(self) -> SamplingConfig:
        """The sampling parameters that suit this model."""
        ...

    @property
    def embedding_sizes(self) -> Mapping[str, int]:
        """Length of the speaker embedding of each role that a voice must have, e.g. {"identity": 512}."""
        ...

    @property
    def is_incremental(self) -> bool:
        """True where the codes of a patch are final as soon as it is sampled, so that audio can be streamed."""
        ...

    @property
    def reads_typed_text(self) -> bool:
        """True where the model reads texts as people type them, with numbers, capitals and marks."""
        ...

    @property
    def reads_contours(self) -> bool:
        """True where the model reads marks of intonation (`text.intonation`), so that its questions can rise."""
        ...

    def prompt(self, text: str, voice: Voice) -> Prompt:
        """Build what `engine.start` takes for `text` spoken by `voice`.

        Raises TextError if there is no text, VoiceError if the voice was made for a model of another shape.
        """
        ...

    @property
    def patch_rate(self) -> float | None:
        """Patches of tokens in a second of speech, roughly, for limits on lengths; None = the codec's patches."""
        ...

    def text_spans(self, prompt: Any) -> NDArray[np.int64] | None:
        """(S, 2): first character and last + 1 in the sentence of every token of its prompt, -1 for other tokens.

        Tokens are the columns of `engine.AttentionEngine.text_attention`. None: this model has no aligned heads.
        """
        ...

    def codes(self, tokens: NDArray[np.int64], rng: np.random.Generator, prompt: Any) -> Codes:
        """Turn tokens (T, P) generated for `prompt` into codes per level; `rng` is for models that sample here, too."""
        ...
