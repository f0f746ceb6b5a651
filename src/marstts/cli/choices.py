"""Choices: how `marstts speak` speaks its texts, and whether an earlier run spoke them in the same way.

Upstream: `speak`.  Downstream: `Synthesizer.speak_in_order`; `kept_sentences`, `lines` and `book` compare runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from marstts.synthesis.model_session import OnTake
from marstts.synthesis.speech import Chunk, Continuation
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.reading import USUAL_PAUSES
from marstts.text.segments import Pauses
from marstts.voice import Voice


@dataclass(frozen=True, eq=False, kw_only=True)
class Choices:
    """Voices and settings, named as in `Synthesizer.speak_in_order`."""

    voice: Voice
    seed: int = 0
    top_p: float | None = None
    continuation: Continuation = Continuation.FIXED_REFERENCE
    speed: float = 1.0
    voices: Mapping[str, Voice] = field(default_factory=dict)
    dialogue: str | None = None
    pauses: Pauses = USUAL_PAUSES

    @property
    def can_go_on(self) -> bool:
        """Whether a sentence can be spoken without the take before it."""
        return self.continuation is not Continuation.PER_CHUNK

    def chunks(
        self, synthesizer: Synthesizer, text: str, *, start: int = 0, on_take: OnTake | None = None
    ) -> Generator[Chunk, None, None]:
        """The sentences of a text, after the first `start` of them."""
        return synthesizer.speak_in_order(text, **vars(self), start=start, on_take=on_take)

    def fingerprint(self, synthesizer: Synthesizer, *parts: str) -> str:
        """Hash of these choices, the model and the lexicon, and of `parts`."""
        voices = [f"{name} {digest_of(voice)}" for name, voice in sorted(self.voices.items())]
        settings = f"{self.seed} {self.top_p} {self.continuation.value} {self.speed} {self.dialogue} {self.pauses}"
        model = f"{synthesizer.label} {synthesizer.lexicon}{' as in the paper' if synthesizer.paper else ''}"
        stated = json.dumps((*parts, digest_of(self.voice), *voices, settings, model))
        return hashlib.sha256(stated.encode()).hexdigest()


def digest_of(voice: Voice) -> str:
    return hashlib.sha256(voice.to_bytes()).hexdigest()
