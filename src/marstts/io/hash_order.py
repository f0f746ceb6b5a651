"""Choices by hash, without a random generator: the same on every machine and in every Python.

Upstream: ids.  Downstream: test sets, splits, rankings, and other choices that must be reproducible.
"""

from __future__ import annotations

import hashlib


def hash_order(key: str) -> str:
    """Return a sort key that shuffles strings."""
    return hashlib.sha256(key.encode()).hexdigest()


def hash_number(key: str) -> int:
    """Return a number of 32 bits that looks random."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "little")
