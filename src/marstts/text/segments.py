"""Segments: what a synthesizer takes, sentence by sentence, with the pause, the rate and the voice of each.

Upstream: `reading`, `ssml`.  Downstream: the synthesizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MIN_RATE = 0.5
MAX_RATE = 2.0
MAX_PAUSE_SECONDS = 60.0

BREAK_SECONDS = {"none": 0.0, "x-weak": 0.1, "weak": 0.2, "medium": 0.4, "strong": 0.7, "x-strong": 1.2}
"""Seconds of `<break strength>`."""


VOICE_MARK = r"\[[Vv][Oo][Ii][Cc][Ee]:\s?(?P<voice>[^\[\]\n]{0,80})\]"
"""Pattern of the mark that names the voice of what follows; without a name, or `default`, the first one."""


class Boundary(str, Enum):
    """What ends with a segment, from which the length of the usual pause follows."""

    SENTENCE = "sentence"
    PARAGRAPH = "paragraph"
    """A blank line follows."""
    SCENE = "scene"
    """A segment of its own without text: a line such as `* * *`."""


@dataclass(frozen=True, kw_only=True)
class Pauses:
    """Seconds of silence in addition to the usual pause after a sentence."""

    heading: float = 0.5
    paragraph: float = 0.4
    scene: float = 1.2
    """Of a line between scenes; the paragraph before it has its own."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A sentence, or a pause alone, and how it is spoken."""

    text: str = ""
    """Spoken words; empty for a pause alone."""

    pause_seconds: float = 0.0
    """Silence after the text, in addition to the usual one."""

    rate: float = 1.0
    """Speaking rate; 2 is twice as fast."""

    voice: str | None = None
    """Name of the voice that speaks; None is the default voice."""

    boundary: Boundary = Boundary.SENTENCE

    emphasized: tuple[str, ...] = ()
    """Words of `text` that carry emphasis, as they are spoken."""
