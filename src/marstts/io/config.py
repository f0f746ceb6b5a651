"""Configuration files: TOML on disk, frozen pydantic models in the code.

Unknown keys fail, and every complaint about a file is reported at once. Defaults live in the models alone. A file may
start with `base = "OTHER.toml"`, a path relative to its own folder; it then contains only what differs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from marstts.errors import ConfigError, MarsError
from marstts.io.files import write_file
from marstts.io.reading import parse_object, printable_name, printable_text, read_text

ConfigType = TypeVar("ConfigType", bound="Config")

BASE = "base"
"""Key for the file whose values are the defaults of this one."""

MAX_BASES = 8
"""Files that may build upon each other."""

MAX_FILE_BYTES = 2**22
"""Largest configuration file."""


MAX_COMPLAINTS = 4_000
"""Characters of the complaints about one file."""


class Config(BaseModel):
    """Base of all configurations: immutable, strict about names, finite numbers, documented field by field."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def parse_config(
    model: type[ConfigType], values: dict[str, Any], source: str, error_type: type[MarsError] = ConfigError
) -> ConfigType:
    """`values` as a `model`; raises `error_type` listing every complaint, prefixed by `source`."""
    try:
        made = model.model_validate(values)
    except ValidationError as error:
        complaints = "; ".join(
            f"{'.'.join(map(str, found['loc'])) or model.__name__}: {found['msg']}" for found in error.errors()
        )
        raise error_type(f"{source}: {printable_text(complaints, MAX_COMPLAINTS)}") from error
    except (ValueError, RecursionError) as error:  # what a validator of the model meets in unusual values
        raise error_type(f"{source}: expected a {model.__name__}, but {printable_text(str(error))}") from error
    if (place := truth_as_number(values, made)) is not None:
        raise error_type(f"{source}: {printable_text(place)}: expected a number, but this is true or false")
    return made


def truth_as_number(value: Any, made: Any) -> str | None:
    """Path to the first true or false from which a model made a number; None where there is none."""
    pairs: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(value, bool):
        return None if isinstance(made, bool) or not isinstance(made, (int, float)) else ""
    if isinstance(value, dict):
        read = made.get if isinstance(made, dict) else partial(getattr, made)
        pairs = ((key, inner, read(key, None)) for key, inner in value.items())
    elif isinstance(value, list) and isinstance(made, (list, tuple)):
        pairs = zip(range(len(value)), value, made, strict=False)
    for key, inner, made_of_it in pairs:
        if (place := truth_as_number(inner, made_of_it)) is not None:
            return f"{key}.{place}" if place else str(key)
    return None


def read_config(model: type[ConfigType], path: Path, error_type: type[MarsError] = ConfigError) -> ConfigType:
    """Read a TOML file (or JSON, the format of resolved copies next to weights) as a `model`; raises `error_type`."""
    return parse_config(model, read_values(path, error_type), printable_name(path), error_type)


def read_values(
    path: Path, error_type: type[MarsError] = ConfigError, readers: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """The values of a file, merged over those of its `base`; raises `error_type` where it is neither TOML nor JSON.

    `readers`: files that led to this one; none may be its own base.
    """
    name = printable_name(path)
    resolved = resolve(path, error_type)
    if resolved in readers:
        raise error_type(f"{name}: a configuration cannot be its own base")
    if len(readers) > MAX_BASES:
        raise error_type(f"{name}: expected at most {MAX_BASES} files that build upon each other, but there are more")
    values = read_file(path, error_type)
    base = values.pop(BASE, None) if path.suffix != ".json" else None
    if base is None:
        return values
    if not isinstance(base, str):
        raise error_type(f"{name}: base should be the path of another file, got {base!r}")
    return merged(read_values(path.parent / base, error_type, (*readers, resolved)), values)


def resolve(path: Path, error_type: type[MarsError]) -> Path:
    """The path without links; raises `error_type` where they form a loop or the path is impossible."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise error_type(f"{printable_name(path)}: no such configuration file") from error


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`values` updated by `changes`, table by table."""
    both = {key: merged(values[key], changes[key]) for key in changes if is_table(values.get(key), changes[key])}
    return {**values, **changes, **both}


def is_table(*values: Any) -> bool:
    """Whether all of the values are tables."""
    return all(isinstance(value, dict) for value in values)


def read_file(path: Path, error_type: type[MarsError] = ConfigError) -> dict[str, Any]:
    """The contents of one TOML or JSON file; raises `error_type`."""
    name = printable_name(path)
    text = read_text(path, MAX_FILE_BYTES, error_type)
    if path.suffix == ".json":
        return parse_object(text, name, error_type)
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise error_type(f"{name}: expected a TOML file, but it is nested too deeply") from error
    except ValueError as error:  # TOMLDecodeError, and the error of Python's int() for 5,000 digits
        raise error_type(f"{name}: expected a TOML file, but {printable_name(str(error))}") from error


def write_config(config: Config, path: Path, error_type: type[MarsError] = ConfigError) -> None:
    """Write the resolved configuration as JSON, next to the weights."""
    write_file(path, config.model_dump_json(indent=2) + "\n", error_type)
