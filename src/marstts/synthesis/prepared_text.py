"""Prepared text: the segments of a text in order, read as they are needed, with a warning about what was left out.

Upstream: `text.reading`.  Downstream: `model_session`, `batch`, `stream`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from marstts.errors import TextError
from marstts.synthesis.written_forms import SpokenSegment, with_forms
from marstts.text.language import warnings_of
from marstts.text.lexicon import Lexicon
from marstts.text.reading import Passage, read_stream, read_text
from marstts.text.segments import Segment
from marstts.text.ssml import is_ssml

MAX_WHOLE_CHARACTERS = 4000
"""Longer texts are read passage by passage, so that speech begins before all of the text is read."""

ENGLISH_ONLY = "the model speaks English"

LANGUAGE_CHARACTERS = 2000
"""The start of a text, by which another language is noticed."""


class PreparedText:
    """An iterator of segments that have words. A short text is read at once, a long one as the segments are needed."""

    def __init__(self, text: str, lexicon: Lexicon | None = None) -> None:
        """Read the first segment; raises TextError where there is none, or where SSML is malformed."""
        self._start = text[:LANGUAGE_CHARACTERS]
        self._left_out: dict[str, None] = {}
        self._ignored: set[str] = set()
        is_document = is_ssml(text)
        self.is_whole = is_document or len(text) <= MAX_WHOLE_CHARACTERS
        """Whether `warning` covers all of the text from the start."""
        passages = read_text(text, lexicon).passages if is_document else read_stream([text], lexicon)
        self._segments = self._read(passages)
        self._waiting = list(self._segments) if self.is_whole else [s for s in [next(self._segments, None)] if s]
        if not self._waiting:
            advice = f"{ENGLISH_ONLY}; give an English text" if has_words(text) else "give a text with words or numbers"
            raise TextError(f"{quote_start(text)}: there is nothing to speak in it; {advice}")

    def __iter__(self) -> Iterator[SpokenSegment]:
        return self

    def __next__(self) -> SpokenSegment:
        return self._waiting.pop(0) if self._waiting else next(self._segments)

    @property
    def warning(self) -> str | None:
        """A sentence for the user about the text read so far, if there is a problem."""
        found = warnings_of(self._left_out, self._start)
        if self._ignored:
            found.append(f"not supported and ignored: {', '.join(sorted(self._ignored))}")
        return "; ".join(found) or None

    def _read(self, passages: Iterable[Passage]) -> Iterator[SpokenSegment]:
        for passage in passages:
            self._left_out |= dict.fromkeys(passage.left_out)
            for segment in with_forms(passage):
                self._ignored |= unsupported(segment)
                if segment.text:
                    yield segment


def unsupported(segment: Segment) -> set[str]:
    """Properties of a segment that synthesis does not honor."""
    found = {
        "speaking rate": segment.rate != 1.0,
        "voice": segment.voice is not None,
        "emphasis": bool(segment.emphasized),
    }
    return {name for name, is_set in found.items() if is_set}


def quote_start(text: str) -> str:
    """The start of `text`, quoted, for a message."""
    return repr(text if len(text) <= 40 else text[:39] + "…") if text.strip() else "the text is empty"


def has_words(text: str) -> bool:
    """Return True where the text has a letter or digit."""
    return any(character.isalnum() for character in text)
