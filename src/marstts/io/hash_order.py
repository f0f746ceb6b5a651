"""Hash order: a shuffle without a random generator, the same on every machine and in every Python.

Upstream: ids.  Downstream: test sets, rankings, and other choices that must be reproducible.
"""

from __future__ import annotations

import hashlib


def hash_order(key: str) -> str:
    """Return a sort key that shuffles strings."""
    return hashlib.sha256(key.encode()).hexdigest()
