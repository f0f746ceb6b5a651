"""Segments: what a synthesizer takes, sentence by sentence, with the pause, the rate and the voice of each.

Upstream: `reading`, `ssml`.  Downstream: the synthesizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from marstts.errors import ConfigError

MIN_RATE = 0.5
MAX_RATE = 2.0
MAX_PAUSE_SECONDS = 60.0

SENTENCE_PAUSE_SECONDS = 0.30
"""The usual pause after a sentence."""

BREAK_SECONDS = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.4, "strong": 0.7, "x-strong": 1.2}
"""Seconds of `<break strength>`."""


VOICE_MARK = r"\[[Vv][Oo][Ii][Cc][Ee]:\s?(?P<voice>[^\[\]\n]{0,80})\]"
"""Pattern of the mark that names the voice of what follows; without a name, or `default`, the first one."""


class Boundary(str, Enum):
    """What ends with a segment, from which the length of the usual pause follows."""

    __hash__ = str.__hash__  # of every sentence; that of `Enum` takes longer

    SENTENCE = "sentence"
    HEADING = "heading"
    PARAGRAPH = "paragraph"
    """A blank line follows."""
    SCENE = "scene"
    """A segment of its own without text: a line such as `* * *`."""


@dataclass(frozen=True, kw_only=True)
class Pauses:
    """Seconds of silence after what a text consists of."""

    sentence: float = SENTENCE_PAUSE_SECONDS
    heading: float = 0.8
    paragraph: float = 0.7
    scene: float = 1.9
    """At a line between scenes."""
    end: float = 0.0
    """After the last sentence."""

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            if not 0.0 <= seconds <= MAX_PAUSE_SECONDS:
                raise ConfigError(
                    f"the pause {name} must lie between 0 and {MAX_PAUSE_SECONDS:g} s, but is {seconds:g}"
                )

    def added(self, boundary: Boundary) -> float:
        """Seconds in addition to the usual pause after a sentence."""
        return self._added[boundary]

    @cached_property
    def _added(self) -> dict[Boundary, float]:
        before = {each: self.paragraph if each is Boundary.SCENE else SENTENCE_PAUSE_SECONDS for each in Boundary}
        return {each: round(float(getattr(self, each.value)) - before[each], 6) for each in Boundary}


@dataclass(frozen=True)
class Duration:
    """How long a passage lasts, with the pauses in it."""

    number: int
    """Of the passage in its document."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A sentence, or a pause alone, and how it is spoken."""

    text: str = ""
    """Spoken words; empty for a pause alone."""

    pause_seconds: float = 0.0
    """Silence after the text, in addition to the usual one; negative where it is shorter."""

    rate: float = 1.0
    """Speaking rate; 2 is twice as fast."""

    voice: str | None = None
    """Name of the voice that speaks; None is the default voice."""

    duration: Duration | None = None
    """Length of the passage that it is a part of, where the text states one."""

    boundary: Boundary = Boundary.SENTENCE
