"""The error that becomes a response of HTTP. Raising it needs no server package.

Upstream: `marstts_listening_test.service`, the endpoints.  Downstream: `base`, which answers with it.
"""

from __future__ import annotations

from marstts.errors import MarsError


class HTTPError(MarsError):
    """A request that cannot be served; `status` is HTTP's number for the reason."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
