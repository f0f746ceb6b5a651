"""Provenance of a folder of derived files: `provenance.json`, written when work begins, compared when it resumes.

Upstream: stages that may be interrupted (mining, scoring, tuning).  Downstream: the same stages on resumption, reports.
Files made by different models, texts or metrics must not mix in one folder; resuming with something else raises an
error that names the difference. A record is a `Config` of the stage; its fields are strings, numbers or configurations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marstts.errors import ConfigError, MarsError
from marstts.io.config import Config, ConfigType, parse_config
from marstts.io.files import write_file
from marstts.io.reading import parse_object, printable_name, read_text

PROVENANCE_FILE = "provenance.json"

MAX_BYTES = 4 * 2**20

MAX_DIFFERENCES = 4
"""Single values that a message names; the others are counted."""

MAX_VALUE = 60
"""Characters of a value in a message."""


def write_provenance(folder: Path, record: Config | Mapping[str, Any]) -> None:
    """Write the record of a folder, which is made if it is missing, atomically."""
    write_file(folder / PROVENANCE_FILE, _text_of(record), ConfigError)


def read_provenance(
    model: type[ConfigType], folder: Path, maker: str, kind: type[MarsError] = ConfigError
) -> ConfigType:
    """The record of a folder; `kind` if it has none that fits: the folder was not written by `maker` (a command)."""
    values = _read_values(folder, kind)
    if values is None:
        raise kind(f"{printable_name(folder)}: expected a folder that `{maker}` wrote, but it has no {PROVENANCE_FILE}")
    return parse_config(model, values, printable_name(folder / PROVENANCE_FILE), kind)


def begin_or_resume(
    folder: Path, record: ConfigType, compare: Mapping[str, str], kind: type[MarsError] = ConfigError
) -> ConfigType:
    """Write the record of a new folder, or compare it with that of an older one; the record that holds is returned.

    `compare` maps each field that must agree to its name in messages. Raises `kind`, naming what differs.
    """
    values = _read_values(folder, kind)
    if values is None:
        write_provenance(folder, record)
        return record
    found = parse_config(type(record), values, printable_name(folder / PROVENANCE_FILE), kind)
    before, now = found.model_dump(mode="json"), record.model_dump(mode="json")
    changed = {name: label for name, label in compare.items() if before[name] != now[name]}
    _refuse(folder, changed, before, now, kind)
    return found


def extend_provenance(folder: Path, record: Mapping[str, Any], kind: type[MarsError] = ConfigError) -> dict[str, Any]:
    """Add keys to the record of a folder, which may grow (a metric more); the whole record is returned.

    Raises `kind` where a key is there with another value.
    """
    before = _read_values(folder, kind) or {}
    _refuse(folder, {key: key for key in record if before.get(key, record[key]) != record[key]}, before, record, kind)
    if (whole := {**before, **record}) != before:
        write_provenance(folder, whole)
    return whole


def _text_of(record: Config | Mapping[str, Any]) -> str:
    values = record.model_dump(mode="json") if isinstance(record, Config) else dict(record)
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _read_values(folder: Path, kind: type[MarsError]) -> dict[str, Any] | None:
    path = folder / PROVENANCE_FILE
    if not path.exists() and not path.is_symlink():
        return None
    return parse_object(read_text(path, MAX_BYTES, kind), printable_name(path), kind)


def _refuse(
    folder: Path,
    changed: Mapping[str, str],
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    kind: type[MarsError],
) -> None:
    if not changed:
        return
    differences = [difference for name in changed for difference in _differences(name, before[name], now[name])]
    more = len(differences) - MAX_DIFFERENCES
    rest = f", and {more} more" if more > 0 else ""
    raise kind(
        f"{printable_name(folder)}: was started with another {' and another '.join(changed.values())} "
        f"({', '.join(differences[:MAX_DIFFERENCES])}{rest}), and results of both must not mix; choose a new folder"
    )


def _differences(name: str, before: Any, now: Any) -> Iterator[str]:
    """Every single value that differs: its name, what it was, what it is now."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in [*before, *(key for key in now if key not in before)]:
            yield from _differences(f"{name}.{key}", before.get(key), now.get(key))
    elif before != now:
        yield f"{printable_name(name)}: {_shown(before)} before, {_shown(now)} now"


def _shown(value: Any) -> str:
    text = printable_name(str(value))
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"
