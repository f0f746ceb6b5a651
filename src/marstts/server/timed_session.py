"""WebSockets whose clients must read what they are sent.

Upstream: `base.Server`, for applications with sessions.  Downstream: uvicorn's protocol on wsproto.
"""

from __future__ import annotations

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from marstts.server.unread_timer import UnreadTimer


class TimedSession(UnreadTimer, WSProtocol):
    """A WebSocket; sessions have their other limits in the application."""
