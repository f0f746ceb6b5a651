"""Versions of the packages that compute metrics: scores of two versions are not comparable.

Upstream: installed distributions.  Downstream: every metric's name, and so reports and provenance.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version(package: str) -> str:
    """The installed version of a distribution, or "unknown"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
