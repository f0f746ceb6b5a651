"""Descriptions that codecs and speaker encoders share in `bundle.json`.

Upstream: `codec.registry` and `speaker.registry`, which add one class per kind.  Downstream: `bundle`.
"""

from __future__ import annotations

from typing import Literal

from marstts.io.config import Config


class MiniPart(Config):
    """A codec or speaker encoder trained with this package, in a folder of the bundle."""

    kind: Literal["mini"] = "mini"


class PublishedPart(Config):
    """Weights published by other authors."""

    source: str
    """A file, a folder or a name on the hub."""

    sha256: str | None = None
    """Refuse any other weights."""


def toy_size(name: str, default: int) -> int | None:
    """Size N of "toy:N", the default for "toy", None for any other name."""
    kind, _, size = name.partition(":")
    if kind != "toy":
        return None
    if not size:
        return default
    return int(size) if size.isdecimal() and len(size) <= 5 and 0 < int(size) <= 2**16 else None
