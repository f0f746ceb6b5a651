"""How much audio a request may cost: the words, pauses and speed of its text, measured before anything is spoken.

Upstream: `service`, which measures each text on its reading thread.  Downstream: `text.reading`.
A pause costs a dozen characters and no computation, so the number of characters bounds no audio.
"""

from __future__ import annotations

from marstts.audio.tempo import clamped
from marstts.server.api_errors import ApiError
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.speech import pause_after
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.written_forms import lead_of
from marstts.text.lexicon import Lexicon
from marstts.text.reading import USUAL_PAUSES, Manner, read_text
from marstts.text.segments import Segment

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


def needs_reading(text: str, how: Speaking) -> bool:
    """Whether a text may hold pauses, or is long."""
    return len(text) > PLAIN_CHARACTERS or "[" in text or "<" in text or how.pauses != USUAL_PAUSES


def measure_text(synthesizer: Synthesizer, text: str, how: Speaking) -> float:
    """Return the seconds of audio that a text takes, roughly: its words as they are spoken, and its pauses.

    Raises TextError where SSML is malformed.
    """
    manner = Manner(lexicon=how.lexicon or Lexicon(), pauses=how.pauses)
    segments = read_text(text, manner=manner).segments
    return how.pauses.end + sum(seconds_of(synthesizer, segment, how) for segment in segments)


def seconds_of(synthesizer: Synthesizer, segment: Segment, how: Speaking) -> float:
    """Return the seconds of audio that one sentence takes, roughly, with the pauses around it."""
    pauses = lead_of(segment) + max(pause_after(segment.text) + segment.pause_seconds, 0.0)
    return pauses + synthesizer.session.backoff.usual(segment.text) / clamped(min(segment.rate, 1.0) * how.speed)
