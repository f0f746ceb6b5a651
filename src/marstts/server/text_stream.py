"""Text that arrives piece by piece, spoken sentence by sentence as soon as each is certain.

Upstream: `wyoming_server`.  Downstream: `service`, one request for each sentence; `text.tags` and
`text.blocks`, which read tags and Markdown. A line of prose is cut at each certain sentence; any other line is read
whole first, so that a list, a heading or code is what it is in a whole text. Each sentence but the first begins with
the pause that `speak` sets before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from marstts.server.api_errors import ApiError
from marstts.synthesis.speech import pause_after
from marstts.text.blocks import Block, BlockCutter
from marstts.text.markdown import Kind, read_line
from marstts.text.reading import USUAL_PAUSES
from marstts.text.segments import VOICE_MARK, Boundary
from marstts.text.sentences import close, split_sentences
from marstts.text.tags import TagReader

UNCUT = 10**9
"""Characters of a sentence: long ones are cut when they are spoken."""

_MAY_BE_MARKED = re.compile(r"\s*(?!\[(?:voice|pause)\b)(?:[^\w\s\"'(“\u2018<$£€]|\w{1,5}[.)])", re.IGNORECASE)
"""The start of a line that may be a list item, a heading or code."""

_SENTENCE_END = re.compile(r"[.!?…][^\w\s]*\s+\S")
MAX_SENTENCE = 600
"""Characters in which a sentence must end; the rest of a line without an end is cut by the block reader."""

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
        self._line = ""
        """Part of the last line that no sentence holds yet."""
        self._is_prose = self._is_endless = self._in_code = False
        """Whether the last line has been cut already, has no sentence ends, or is code."""
        self._held = ""
        """Pauses and marks without words, which go with the next sentence."""
        self._voice = ""
        """The mark of the voice that speaks what follows."""
        self._has_words = False
        self._pause_seconds = 0.0
        """Usual silence before the next sentence."""
        self._in_paragraph = False
        """Whether the next blank line ends a paragraph."""

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
        return self._read(self._tags.feed(text))

    def finish(self) -> list[str]:
        """Return the rest, if there is any."""
        if self._start is not None:
            text, self._start = self._start.strip(), None
            return [text] if text else []
        certain = self._read(self._tags.flush())
        line, self._line = self._line, ""
        certain += self._spoken([*self._cutter.feed(line), *self._cutter.flush()])
        held, self._held = self._held, ""
        return certain if certain or self._has_words or not held else [held]  # which is refused in a sentence

    def _read(self, text: str) -> list[str]:
        """Append text without tags -> sentences that are certain."""
        self._line += text
        certain: list[str] = []
        while "\n" in self._line:
            line, _, following = self._line.partition("\n")
            is_whole = not self._is_prose and not self._is_endless
            self._line = line
            certain += self._sentences_of_line(line)
            certain += self._spoken(self._cutter.feed(self._line + "\n"))
            if is_whole and not line.strip() and self._in_paragraph:
                self._pause_seconds += USUAL_PAUSES.added(Boundary.PARAGRAPH)
                self._in_paragraph = False
            self._in_code ^= is_whole and read_line(line).kind is Kind.FENCE
            self._line, self._is_prose, self._is_endless = following, False, False
        return certain + self._sentences_of_line(self._line.rpartition(" ")[0])

    def _sentences_of_line(self, known: str) -> list[str]:
        """Take complete sentences from the line, of which `known` has all words that are complete."""
        if self._in_code or (not self._is_prose and _MAY_BE_MARKED.match(known)):
            return []
        sentences: list[str] = []
        while not self._is_endless and (size := self._take_sentences(known, sentences)):
            known = known[size:]
        if self._is_endless:
            line, self._line = self._line, ""
            sentences += self._spoken(self._cutter.feed(line))
        return sentences

    def _take_sentences(self, known: str, sentences: list[str]) -> int:
        """Move the first sentences of the line to the list -> the number of characters taken."""
        window = known if len(known) <= MAX_SENTENCE else known[:MAX_SENTENCE].rpartition(" ")[0]
        *certain, _ = (split_sentences(window, UNCUT) if _SENTENCE_END.search(window) else []) or [""]
        if not certain:
            self._is_endless = len(known) > MAX_SENTENCE
            return 0
        words = re.match(rf"\s*(?:\S+\s+){{{sum(len(sentence.split()) for sentence in certain)}}}", self._line)
        assert words is not None, "a word follows"
        self._line, self._is_prose = self._line[words.end() :], True
        for sentence in certain:
            sentences += self._spoken(self._cutter.feed(sentence + "\n\n"))
        return words.end()

    def _spoken(self, blocks: Iterable[Block]) -> list[str]:
        """Texts of blocks, as Markdown that is read again as the same blocks."""
        texts = []
        for block in blocks:
            self._in_paragraph = block.kind is Kind.PLAIN
            spoken = as_markdown(block)
            text = f"{self._held} {spoken}".strip()
            if not any(character.isalnum() for character in _MARK.sub("", text)):
                self._held = text if self._has_words or block.kind is not Kind.SCENE else ""
                continue
            pause = f"[pause:{self._pause_seconds:g}s]" if self._pause_seconds else ""
            marks = " ".join(filter(None, (self._voice, pause, self._held)))
            gap = "\n" if block.kind in (Kind.HEADING, Kind.CODE) else " "
            texts.append(f"{marks}{gap}{spoken}".strip())
            self._held, self._has_words = "", True
            self._pause_seconds = pause_after(close(block.text) if block.is_closed else block.text)
            for mark in _VOICE.finditer(text):
                self._voice = mark[0]
        return texts


def as_markdown(block: Block) -> str:
    """The text of a block, with the marks by which it is a scene break, a heading or code."""
    if block.kind is Kind.SCENE:
        return f"[pause:{USUAL_PAUSES.added(Boundary.SCENE):g}s]"
    if block.kind is Kind.CODE:
        return f"```\n{block.text}\n```"
    return f"# {block.text}" if block.kind is Kind.HEADING else block.text
