"""Configuration files: TOML on disk, frozen pydantic models in the code.

Unknown keys fail, and every complaint about a file is reported at once. Defaults live in the models alone. A file may
begin with `base = "OTHER.toml"`, a path from its own folder, and then says only what is different.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from marstts.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ConfigType = TypeVar("ConfigType", bound="Config")

BASE = "base"
"""Key of the file that a file begins from."""


class Config(BaseModel):
    """Base of all configurations: immutable, strict about names, documented field by field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def parse_config(kind: type[ConfigType], values: dict[str, Any], source: str) -> ConfigType:
    """`values` as a `kind`; raises ConfigError listing every complaint, prefixed by `source`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        complaints = "; ".join(f"{'.'.join(map(str, e['loc'])) or kind.__name__}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"{source}: {complaints}") from error


def read_config(kind: type[ConfigType], path: Path) -> ConfigType:
    """Read a TOML (or JSON, for resolved copies beside weights) file as a `kind`."""
    return parse_config(kind, read_values(path), str(path))


def read_values(path: Path, readers: tuple[Path, ...] = ()) -> dict[str, Any]:
    """What a file says, on top of what its `base` says; ConfigError where it is no TOML or JSON.

    `readers`: files that were opened on the way here; none may be its own base.
    """
    if path.resolve() in readers:
        raise ConfigError(f"{path}: a configuration cannot be its own base")
    values = read_file(path)
    base = values.pop(BASE, None) if path.suffix != ".json" else None
    if base is None:
        return values
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base should be the path of another file, got {base!r}")
    return merged(read_values(path.parent / base, (*readers, path.resolve())), values)


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`values` with `changes` in their place, table by table."""
    both = {key: merged(values[key], changes[key]) for key in changes if is_table(values.get(key), changes[key])}
    return {**values, **changes, **both}


def is_table(*values: Any) -> bool:
    """Whether all of them have keys of their own."""
    return all(isinstance(value, dict) for value in values)


def read_file(path: Path) -> dict[str, Any]:
    """The contents of one TOML or JSON file."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such configuration file") from error
    except (UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: expected a TOML file, but {error}") from error


def write_config(config: Config, path: Path) -> None:
    """Write the resolved configuration as JSON, for the folder that holds the weights."""
    path.write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
