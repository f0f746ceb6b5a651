"""Configuration files: TOML on disk, frozen pydantic models in the code.

Unknown keys fail, and every complaint about a file is reported at once. Defaults live in the models alone.
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
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such configuration file") from error
    except (UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: expected a TOML file, but {error}") from error
    return parse_config(kind, values, str(path))


def write_config(config: Config, path: Path) -> None:
    """Write the resolved configuration as JSON, for the folder that holds the weights."""
    path.write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
