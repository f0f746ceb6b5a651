"""Prepared text: the sentences of a text in order, each with voice, rate and pauses, read as they are needed.

Upstream: `text.reading`, which reads SSML as well.  Downstream: `texts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from marstts.errors import TextError
from marstts.synthesis.words.written_forms import SpokenSegment, with_forms
from marstts.text.language import warnings_of
from marstts.text.reading import (
    USUAL_MANNER,
    USUAL_PAUSES,
    Manner,
    Passage,
    read_stream,
    read_text,
    voices_named_in,
    without_usual,
)
from marstts.text.ssml import is_ssml

MAX_WHOLE_CHARACTERS = 4000
"""Longer texts are read passage by passage, so that speech begins before all of the text is read."""

ENGLISH_ONLY = "the model speaks English"

LANGUAGE_CHARACTERS = 2000
"""The start of a text, by which another language is noticed."""


class PreparedText:
    """An iterator of segments that have words. A short text is read at once, a long one as the segments are needed."""

    def __init__(self, text: str, manner: Manner = USUAL_MANNER) -> None:
        """Read the first segment; raises TextError where there is none, or where SSML is malformed."""
        self._text, self._start = text, text[:LANGUAGE_CHARACTERS]
        self._left_out: dict[str, None] = {}
        self._warnings: tuple[str, ...] | None = None
        """Those of a document, which is read at once."""
        is_document = is_ssml(text)
        self._pauses = USUAL_PAUSES if is_document else manner.pauses
        self.is_whole = is_document or len(text) <= MAX_WHOLE_CHARACTERS
        """Whether all of the text is read already, so that `warning` covers it."""
        passages: Iterable[Passage]
        if is_document:
            reading = read_text(text, manner=manner)
            passages, self._warnings = reading.passages, reading.warnings
        else:
            passages = read_stream([text], manner=manner)
        self._segments = self._read(passages)
        known = list(self._segments) if self.is_whole else []
        named = (segment.voice for segment in known) if self.is_whole else voices_named_in(text)
        self.voices = tuple(dict.fromkeys(name for name in named if name is not None))
        """Names of the voices that the text asks for."""
        self.has_rates = any(segment.rate != 1.0 for segment in known)
        """Whether the text asks for other rates, as far as it is read."""
        self.has_durations = any(segment.duration is not None for segment in known)
        """Whether the text states how long passages of it last."""
        self._num_left = sum(bool(segment.text) for segment in known)
        self._num_given = self._num_characters = 0
        if self.is_whole:
            self._segments = iter(known)
        self._following, self._pause = self._next_spoken()
        if self._following is None:
            raise nothing_to_speak(text)
        self._following = replace(self._following, lead_seconds=self._pause)

    def __iter__(self) -> Iterator[SpokenSegment]:
        return self

    def __next__(self) -> SpokenSegment:
        segment = self._following
        if segment is None:
            raise StopIteration
        self._following, pause = self._next_spoken()
        self._num_given, self._num_characters = self._num_given + 1, self._num_characters + len(segment.text)
        own = segment.pause_seconds if self._following else without_usual(segment, self._pauses) + self._pauses.end
        return replace(segment, pause_seconds=own + pause)

    @property
    def is_read(self) -> bool:
        """Whether all segments were given."""
        return self._following is None

    @property
    def num_segments(self) -> int:
        """Segments of the text; estimated by its characters until all of it is read."""
        if self.is_whole:
            return self._num_left
        if self.is_read:
            return self._num_given
        return max(self._num_given + 1, round(self._num_given * len(self._text) / max(1, self._num_characters)))

    @property
    def warning(self) -> str | None:
        """A sentence for the user about the text read so far, if there is a problem."""
        found = warnings_of(self._left_out, self._start) if self._warnings is None else self._warnings
        return "; ".join(found) or None

    def _next_spoken(self) -> tuple[SpokenSegment | None, float]:
        """The next segment with words, if there is one, and the pauses before it that stand alone."""
        pause = 0.0
        for segment in self._segments:
            if segment.text:
                return segment, pause
            pause += segment.pause_seconds
        return None, pause

    def _read(self, passages: Iterable[Passage]) -> Iterator[SpokenSegment]:
        for passage in passages:
            self._left_out |= dict.fromkeys(passage.left_out)
            yield from with_forms(passage)


_MARKS = re.compile(r"\[[A-Za-z_]{1,20}(?::[^\[\]]{0,40})?\]|<[^<>]{0,200}>")


def nothing_to_speak(text: str) -> TextError:
    """The error for a text without anything that can be spoken."""
    is_foreign = has_words(_MARKS.sub("", text))  # a text of pauses and breaks alone is not
    advice = f"{ENGLISH_ONLY}; give an English text" if is_foreign else "give a text with words or numbers"
    return TextError(f"{quote_start(text)}: there is nothing to speak in it; {advice}")


def quote_start(text: str) -> str:
    """The start of `text`, quoted, for a message."""
    return repr(text if len(text) <= 40 else text[:39] + "…") if text.strip() else "the text is empty"


def has_words(text: str) -> bool:
    """Return True where the text has a letter or digit."""
    return any(character.isalnum() for character in text)
