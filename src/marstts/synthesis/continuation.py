"""What a sentence continues from: the voice's own prefix, or the take before it.

Upstream: `voice.Voice`, `speech.Take`.  Downstream: `synthesizer`, `stream`, `many`.
MARS6 (arXiv:2501.05787), Sec. IV.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from marstts.synthesis.speech import Take
from marstts.voice import Prefix, Voice


class Continuation(str, Enum):
    """What a sentence continues from."""

    FIXED_REFERENCE = "fixed_reference"
    """Every sentence continues from the voice's own prefix; a shallow voice has none. Errors cannot pile up."""

    PER_CHUNK = "per_chunk"
    """The first as above, every next sentence from the take before it: prosody flows on, the voice may drift."""


def carry(voice: Voice, take: Take, continuation: Continuation) -> Voice:
    """What the sentence after `take` is spoken with. A flawed take is never continued from."""
    if continuation is Continuation.FIXED_REFERENCE or take.warning is not None:
        return voice
    return replace(voice, prefix=Prefix(transcript=take.text, codes=take.codes))
