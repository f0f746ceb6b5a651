"""Silent connections: those that wait for their next message, the oldest of which is closed where there are too many.

Upstream: `base`, `websocket` and `wyoming_server`, each with its own.  Silence has a time limit in each of them, too;
the number is limited so that nobody is refused until those limits pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class SilentConnections:
    """The silent connections of one server, in the order in which they fell silent. Used from its event loop alone."""

    def __init__(self, max_connections: int) -> None:
        self._max = max_connections
        self._closers: dict[Hashable, Callable[[], object]] = {}

    def __len__(self) -> int:
        return len(self._closers)

    def add(self, connection: Hashable, close: Callable[[], object]) -> None:
        """Note that a connection is silent; one that is noted already keeps its place."""
        self._closers.setdefault(connection, close)
        while len(self._closers) > self._max:
            self._closers.pop(next(iter(self._closers)))()

    def remove(self, connection: Hashable) -> None:
        """Note that a connection has sent its message, or is closed."""
        self._closers.pop(connection, None)
