"""Options of commands that write bundles of either architecture."""

from __future__ import annotations

from typing import Any

from marstts.errors import ConfigError


def refuse_with_nar(**options: Any) -> None:
    """ConfigError that names the options that were given, none of which a MARS5 has."""
    if unused := given(**options):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise ConfigError(f"{names}: not for a MARS5, which --nar makes this; leave it out")


def given(**values: Any) -> dict[str, Any]:
    """The options that have a value."""
    return {name: value for name, value in values.items() if value is not None}
