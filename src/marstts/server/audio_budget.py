"""How much audio a request may cost: the words, pauses and speed of its text, measured before anything is spoken.

Upstream: `service`, which measures each text on its reading thread.  Downstream: `text.reading`.
A pause costs a dozen characters and no computation, so the number of characters bounds no audio.
"""

from __future__ import annotations

from marstts.server.api_errors import ApiError
from marstts.synthesis.speech import pause_after
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.reading import read_text

PLAIN_CHARACTERS = 300
"""Shorter texts without brackets are not measured: none of them takes more than some minutes at the lowest speed."""


class AudioBudget:
    """Seconds of audio that one request or session may still ask for."""

    def __init__(self, seconds: float) -> None:
        self._limit = self._left = seconds

    def spend(self, seconds: float) -> None:
        """Take seconds of audio; ApiError 400 where they are more than what is left."""
        if seconds > self._left:
            asked = self._limit - self._left + seconds
            raise ApiError(
                400,
                f"input: expected at most {self._limit:g} s of audio, pauses and speed included, but this takes about "
                f"{asked:.0f} s; use less text, shorter pauses or a higher speed.",
                param="input",
                code="audio_too_long",
            )
        self._left -= seconds


def needs_reading(text: str) -> bool:
    """Whether a text may hold pauses, or is long."""
    return len(text) > PLAIN_CHARACTERS or "[" in text or "<" in text


def measure_text(synthesizer: Synthesizer, text: str) -> float:
    """Return the seconds of audio that a text takes at speed 1, roughly: its words as they are spoken, and its pauses.

    Raises TextError where SSML is malformed.
    """
    backoff = synthesizer.session.backoff
    return sum(
        (pause_after(segment.text) + backoff.usual(segment.text) + segment.pause_seconds) / min(segment.rate, 1.0)
        for segment in read_text(text, synthesizer.usual.lexicon).segments
    )
