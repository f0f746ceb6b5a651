"""The extras of the package by the optional packages that they install.

Upstream: `main`, where an import failed.  Downstream: the metadata of the installed distribution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires

REQUIREMENT = re.compile(r"([\w.-]+).*;.*\bextra\s*==\s*['\"]([\w.-]+)['\"]")


def packages_by_extra() -> Mapping[str, frozenset[str]]:
    """Names of packages, normalized as for import, by extra; empty where marstts was not installed."""
    try:
        lines = requires("marstts") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, set[str]] = {}
    for line in lines:
        if match := REQUIREMENT.match(line):
            found.setdefault(match[2], set()).add(match[1].replace("-", "_").lower())
    return {extra: frozenset(packages) for extra, packages in found.items()}


def extra_with(package: str) -> str | None:
    """The smallest extra that installs a package; None where none does."""
    packages = packages_by_extra()
    holding = [extra for extra, names in packages.items() if package.lower() in names]
    return min(holding, key=lambda extra: (len(packages[extra]), extra), default=None)
