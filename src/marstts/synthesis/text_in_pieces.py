"""A text that is still being written: its sentences in order, each as soon as it is certain.

Upstream: an iterable of pieces, such as the words of a chat model or the messages of a client.  Downstream: `texts`.
The pieces are read on a thread of their own, so that speech goes on while the next one is awaited. The sentences, their
numbers and their pauses are those of the whole text; only what follows the last sentence is known later.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from marstts.errors import TextError
from marstts.synthesis.prepared_text import LANGUAGE_CHARACTERS, nothing_to_speak
from marstts.synthesis.words.written_forms import SpokenSegment, with_forms
from marstts.text.language import warnings_of
from marstts.text.reading import USUAL_PAUSES, Manner, Passage, read_stream, read_text, without_usual
from marstts.text.ssml import is_ssml

_MAY_BE_DOCUMENT = re.compile(r"[\ufeff\s]*(?:<(?:s(?:p(?:e(?:a(?:k)?)?)?)?|\?(?:x(?:m(?:l)?)?)?)?)?")
"""The start of a text that may turn out to be a document of SSML, which is read whole."""


SURROGATE = re.compile("[\ud800-\udfff]")
"""Halves of pairs of UTF-16, which are no characters."""


class TextInPieces:
    """An iterator of segments that have words; `wait` blocks until there is one."""

    is_whole = False
    has_rates = False
    voices: tuple[str, ...] = ()
    """Names of voices are known when they are read."""

    def __init__(self, pieces: Iterable[str], manner: Manner) -> None:
        """Begin to read."""
        self._manner, self._pauses = manner, manner.pauses
        self._segments: deque[SpokenSegment] = deque()
        self._left_out: dict[str, None] = {}
        self._warnings: tuple[str, ...] | None = None
        """Those of a document, which is read at once."""
        self._start = ""
        self._error: Exception | None = None
        self._is_complete = False
        self._changed = threading.Condition()
        self._gap = 0.0
        """Pauses that stand alone, since the last sentence."""
        self._last: SpokenSegment | None = None
        self._num_given = 0
        threading.Thread(target=self._read, args=(pieces,), name="marstts-text", daemon=True).start()

    def wait(self) -> bool:
        """Block until a sentence is certain; False after the last one.

        Raises what reading raised, and TextError where the text has no words.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._find() or self._is_complete)
        return not self.is_read

    @property
    def is_ready(self) -> bool:
        """Whether a sentence is certain."""
        with self._changed:
            return self._find()

    @property
    def is_read(self) -> bool:
        """Whether all sentences were given; raises what reading raised, and TextError where the text has no words."""
        with self._changed:
            if self._find() or not self._is_complete:
                return False
        if self._error is not None:
            raise self._error
        if not self._num_given:
            raise nothing_to_speak(self._start)
        return True

    def __iter__(self) -> Iterator[SpokenSegment]:
        return self

    def __next__(self) -> SpokenSegment:
        """The next sentence, which must be ready; pauses that stand before it lead it."""
        with self._changed:
            if not self._find():
                raise StopIteration
            self._last = self._segments.popleft()
        gap, self._gap = self._gap, 0.0
        self._num_given += 1
        return replace(self._last, lead_seconds=gap)

    @property
    def end_seconds(self) -> float:
        """Silence after the last sentence."""
        assert self._last is not None, "there was one"
        return max(0.0, without_usual(self._last, self._pauses) + self._pauses.end + self._gap)

    @property
    def num_segments(self) -> int:
        """Sentences that are known by now."""
        with self._changed:
            return self._num_given + sum(bool(segment.text) for segment in self._segments)

    @property
    def warning(self) -> str | None:
        """A sentence for the user about the text read so far, if there is a problem."""
        with self._changed:
            found = warnings_of(self._left_out, self._start) if self._warnings is None else self._warnings
        return "; ".join(found) or None

    def _find(self) -> bool:
        """Pass over pauses that stand alone; whether a sentence is left. The lock is held."""
        while self._segments and not self._segments[0].text:
            self._gap += self._segments.popleft().pause_seconds
        return bool(self._segments)

    def _read(self, pieces: Iterable[str]) -> None:
        """Read all, on the thread."""
        try:
            for passage in self._passages(self._checked(pieces)):
                segments = with_forms(passage)
                with self._changed:
                    self._left_out |= dict.fromkeys(passage.left_out)
                    self._segments += segments
                    self._changed.notify_all()
        except Exception as error:  # of the text, or of what writes it
            self._error = error
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    def _checked(self, pieces: Iterable[str]) -> Iterator[str]:
        for piece in pieces:
            if not isinstance(piece, str):
                raise TextError(f"expected a text in pieces, but one of them is a {type(piece).__name__}")
            if SURROGATE.search(piece):
                raise TextError("expected characters, but a piece of the text has half of a surrogate pair")
            if len(self._start) < LANGUAGE_CHARACTERS:
                self._start += piece
            yield piece

    def _passages(self, pieces: Iterator[str]) -> Iterator[Passage]:
        """The passages of a text, or of a document, which is recognized by its start."""
        start = ""
        for piece in pieces:
            start += piece
            if not _MAY_BE_DOCUMENT.fullmatch(start):
                break
        if not is_ssml(start):
            yield from read_stream(joined(start, pieces), manner=self._manner)
            return
        reading = read_text("".join(joined(start, pieces)), manner=self._manner)
        self._pauses, self._warnings = USUAL_PAUSES, reading.warnings
        yield from reading.passages


def joined(start: str, pieces: Iterator[str]) -> Iterator[str]:
    """A piece, then the others."""
    yield start
    yield from pieces
