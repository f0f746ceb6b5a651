"""Callers: who sends a request, known by an API key, and whose voices they may use.

Upstream: `guard`, which finds the caller of each request.  Downstream: `voice_store`, `admission`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import HTTPConnection

SHARED = ""
"""Owner of what was made without a key or with the administrator's."""

OWNER = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Caller:
    """Who sends a request."""

    owner: str = SHARED
    """Name of the folder with this caller's voices: the start of the key's hash."""

    is_admin: bool = False
    """Whether the voices of all others are this caller's, too."""

    address: str = ""

    @property
    def name(self) -> str:
        """By which the server is fair: the key, or the address where there are no keys."""
        return self.owner or ("the administrator" if self.is_admin and not self.address else self.address)

    def may_use(self, owner: str) -> bool:
        """Whether what this owner has made can be seen, used and changed."""
        return self.is_admin or owner == self.owner


ADMINISTRATOR = Caller(is_admin=True)


class KeyRing:
    """API keys, kept as SHA-256 digests and compared in constant time."""

    def __init__(self, keys: Sequence[str], admin_key: str | None = None) -> None:
        self._known = [(digest(key), Caller(owner=digest(key).hex()[:32])) for key in keys]
        if admin_key is not None:
            self._known.append((digest(admin_key), ADMINISTRATOR))

    @property
    def is_empty(self) -> bool:
        """Whether nobody needs a key."""
        return not self._known

    def find(self, authorization: str) -> Caller | None:
        """The caller whose key the header `Authorization` holds; None where it holds none."""
        scheme, _, key = authorization.partition(" ")
        found = digest(key.strip()) if scheme.lower() == "bearer" else b""
        matches = [caller for known, caller in self._known if hmac.compare_digest(found, known)]  # all, for equal time
        return matches[0] if matches else None


def caller_of(connection: HTTPConnection) -> Caller:
    """The caller whom the guard has found."""
    found: Any = connection.state.caller
    assert isinstance(found, Caller)
    return found


def digest(key: str) -> bytes:
    """SHA-256 of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def owners(voices: Path) -> list[str]:
    """All owners who have a folder in the folder of voices; the shared one is first."""
    try:
        folders = sorted(path.name for path in voices.iterdir() if OWNER.fullmatch(path.name) and path.is_dir())
    except OSError:  # there is none yet, or it cannot be read
        folders = []
    return [SHARED, *folders]
