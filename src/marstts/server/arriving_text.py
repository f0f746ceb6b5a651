"""Text that a client sends piece by piece, as the iterable that a synthesizer speaks while it is still being written.

Upstream: `websocket`, `wyoming_server`, which push what arrives.  Downstream: `speech_job`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from queue import SimpleQueue

from marstts.server.api_errors import ApiError


class ArrivingText:
    """Pieces in the order in which they came: pushed in the event loop, iterated over on another thread."""

    def __init__(self, max_characters: int) -> None:
        """Called in the event loop."""
        self._max, self._num_characters = max_characters, 0
        self._pieces: SimpleQueue[str | Exception | None] = SimpleQueue()
        self._begun: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @property
    def has_begun(self) -> bool:
        """Whether more than white space has come, or the text has ended."""
        return self._begun.done()

    async def begins(self) -> bool:
        """Wait for more than white space; False where the text ends without it."""
        return await asyncio.shield(self._begun)

    def push(self, text: str) -> None:
        """Append text, which may end within a word; ApiError where it is too much."""
        self._num_characters += len(text)
        if self._num_characters > self._max:
            raise ApiError(400, f"input: expected at most {self._max} characters in all.", param="input")
        self._pieces.put(text)
        if text.strip():
            self._note(True)

    def finish(self) -> None:
        """Note that the text is complete."""
        self._pieces.put(None)
        self._note(False)

    def end(self, error: Exception) -> None:
        """End the text with an error for whoever waits for it."""
        self._pieces.put(error)

    def _note(self, has_begun: bool) -> None:
        if not self._begun.done():
            self._begun.set_result(has_begun)

    def __iter__(self) -> Iterator[str]:
        while (piece := self._pieces.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece
