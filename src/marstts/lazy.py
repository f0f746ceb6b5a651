"""Modules that are imported when one of their names is first used, for what few runs of a command need.

    if TYPE_CHECKING:
        from marstts.cli import book
    else:
        book = lazy_module("marstts.cli.book")

Upstream: modules on the way from `marstts speak` to its first sample.  Downstream: `importlib`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def lazy_module(name: str) -> Any:
    """The module of this name, imported when one of its names is first used."""
    return LazyModule(name)
