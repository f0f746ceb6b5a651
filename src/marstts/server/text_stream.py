"""Text that arrives piece by piece, spoken sentence by sentence as soon as each is certain.

Upstream: `websocket`, `wyoming_server`.  Downstream: `service`, one request for each sentence; `text.tags` and
`text.blocks`, which read tags and Markdown, and cut where a sentence is certain to end. Each sentence but the first
begins with the pause that `speak` sets before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from marstts.server.api_errors import ApiError
from marstts.synthesis.speech import pause_after
from marstts.text.blocks import Block, BlockCutter
from marstts.text.markdown import LineKind
from marstts.text.reading import MARK, USUAL_PAUSES
from marstts.text.segments import VOICE_MARK, Boundary
from marstts.text.sentences import close
from marstts.text.tags import TagReader

_MARK = re.compile(r"\[[^\[\]]*\]")
_VOICE = re.compile(VOICE_MARK)
_DOCUMENT = re.compile(r"[\ufeff\s]*(?:<speak[\s>]|<\?xml)")
_MAY_BE_DOCUMENT = re.compile(r"[\ufeff\s]*(?:<(?:s(?:p(?:e(?:a(?:k)?)?)?)?|\?(?:x(?:m)?)?)?)?")


class SentenceBuffer:
    """Collects text, and gives back the sentences whose end cannot change any more."""

    def __init__(self, max_characters: int) -> None:
        self._tags, self._cutter = TagReader(), BlockCutter()
        self._num_characters, self._max = 0, max_characters
        self._start: str | None = ""
        """All text so far, while it may be a document of SSML, which is read whole; None once it is not."""
        self._held = ""
        """Pauses and marks without words, which go with the next sentence."""
        self._voice = ""
        """The mark of the voice that speaks what follows."""
        self._has_words = False
        self._pause_seconds = 0.0
        """Usual silence before the next sentence."""

    def push(self, text: str) -> list[str]:
        """Append text, which may end within a word -> sentences that are certain; ApiError where it is too much."""
        self._num_characters += len(text)
        if self._num_characters > self._max:
            raise ApiError(400, f"input: expected at most {self._max} characters in all.", param="input")
        if self._start is not None:
            self._start += text
            if _MAY_BE_DOCUMENT.fullmatch(self._start) or _DOCUMENT.match(self._start):
                return []
            text, self._start = self._start, None
        return self._spoken(self._cutter.feed(self._tags.feed(text)))

    def finish(self) -> list[str]:
        """Return the rest, if there is any."""
        if self._start is not None:
            text, self._start = self._start.strip(), None
            return [text] if text else []
        certain = self._spoken([*self._cutter.feed(self._tags.flush()), *self._cutter.flush()])
        held, self._held = self._held, ""
        return certain if certain or self._has_words or not held else [held]  # which is refused in a sentence

    def _spoken(self, blocks: Iterable[Block]) -> list[str]:
        """Texts of blocks, as Markdown that is read again as the same blocks."""
        texts = []
        for block in blocks:
            spoken = as_markdown(block)
            text = f"{self._held} {spoken}".strip()
            after = USUAL_PAUSES.added(Boundary.PARAGRAPH) if block.ends_paragraph else 0.0
            if not any(character.isalnum() for character in _MARK.sub("", text)):
                self._held = text if self._has_words or block.kind is not LineKind.SCENE else ""
                self._pause_seconds += after
                continue
            pause = f"[pause:{self._pause_seconds:g}s]" if self._pause_seconds else ""
            marks = " ".join(filter(None, (self._voice, pause, self._held)))
            gap = "\n" if block.kind in (LineKind.HEADING, LineKind.CODE) else " "
            texts.append(f"{marks}{gap}{spoken}".strip())
            self._held, self._has_words = "", True
            self._pause_seconds = pause_after(close(block.text) if block.is_closed else block.text) + after
            for mark in _VOICE.finditer(text):
                self._voice = mark[0]
        return texts


def as_markdown(block: Block) -> str:
    """The text of a block, with the marks by which it is a scene break, a heading or code."""
    if block.kind is LineKind.SCENE:
        return f"[pause:{USUAL_PAUSES.added(Boundary.SCENE):g}s]"
    if block.kind is LineKind.CODE:
        return f"```\n{block.text}\n```"
    return f"# {block.text}" if block.kind is LineKind.HEADING else block.text


def shown(sentence: str) -> str:
    """A sentence without the marks of pauses and voices."""
    return " ".join(MARK.sub(" ", sentence).split())
