"""Continuation: the prefix that a sentence continues from.

Upstream: `voice.Voice`, `speech.Take`.  Downstream: `batch`, `stream`.
MARS6 (arXiv:2501.05787), Sec. IV.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from marstts.synthesis.speech import Take
from marstts.voice import Prefix, Voice


class Continuation(str, Enum):
    """The prefix of each sentence."""

    NONE = "none"
    """No prefix: a deep voice is used as a shallow one."""

    FIXED_REFERENCE = "fixed-reference"
    """The voice's prefix for every sentence; a shallow voice has none. Errors cannot accumulate."""

    PER_CHUNK = "per-chunk"
    """The voice's prefix for the first sentence, then the take before: prosody continues, the voice may drift."""


def first_voice(voice: Voice, continuation: Continuation) -> Voice:
    """The voice of the first sentence."""
    return voice.without_prefix() if continuation is Continuation.NONE else voice


def next_voice(voice: Voice, take: Take, continuation: Continuation) -> Voice:
    """The voice of the sentence after `take`. A flawed take is never continued from."""
    if continuation is not Continuation.PER_CHUNK or take.warning is not None:
        return voice
    return replace(voice, prefix=Prefix(transcript=take.text, codes=take.codes))
