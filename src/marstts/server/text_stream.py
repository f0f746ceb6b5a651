"""Text that arrives piece by piece, spoken sentence by sentence as soon as each is certain.

Upstream: `websocket`, `wyoming_server`.  Downstream: `service`, one request for each sentence.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from marstts.server.api_errors import ApiError
from marstts.server.metrics import Outcome
from marstts.server.schemas import SpeechBody
from marstts.server.service import SpeechService
from marstts.text.sentences import split_sentences

UNCUT = 10**9
"""Characters of a sentence: long ones are cut when they are spoken."""


class SentenceBuffer:
    """Collects text, and gives back the sentences whose end cannot change any more."""

    def __init__(self, max_characters: int) -> None:
        self._text, self._num_characters, self._max = "", 0, max_characters

    def push(self, text: str) -> list[str]:
        """Append text, which may end within a word -> sentences that are certain; ApiError where it is too much."""
        self._num_characters += len(text)
        if self._num_characters > self._max:
            raise ApiError(400, f"input: expected at most {self._max} characters in all.", param="input")
        self._text += text
        known = self._text if self._text[-1:].isspace() else self._text.rpartition(" ")[0]  # words that are complete
        *certain, _ = split_sentences(known, UNCUT) or [""]
        num_words = sum(len(sentence.split()) for sentence in certain)
        if num_words:
            consumed = re.match(rf"\s*(?:\S+\s+){{{num_words}}}", self._text)
            assert consumed is not None
            self._text = self._text[consumed.end() :]
        return certain

    def finish(self) -> list[str]:
        """Return the rest, as one text, if there is any."""
        rest, self._text = self._text.strip(), ""
        return [rest] if rest else []


async def speak_bytes(service: SpeechService, body: SpeechBody, owner: str) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a file as they are made; close it to end the request."""
    run, outcome = service.speak(body, owner), Outcome.LEFT
    try:
        first, pieces = await run.begin()
        yield first.content
        async for piece in pieces:
            if piece.content:
                yield piece.content
        outcome = Outcome.OK
    except Exception:
        outcome = Outcome.ERROR
        raise
    finally:
        run.close(outcome)
