"""Versions of the packages that judge, for reports: figures of two versions are not the same measurement."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version(package: str) -> str:
    """The installed version of a distribution, or "unknown"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
