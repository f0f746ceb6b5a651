"""JSON Lines files: one JSON object per line, read into models with all complaints at once, written whole or appended.

Upstream: manifests, test sets, scores, takes, pairs, annotations and logs.  Downstream: their readers.
A row's model is anything pydantic validates: a `Config`, a dataclass, `dict[str, Any]`. Blank lines are passed over.
A process killed while it appends leaves a torn last line: readers of such files drop it (`Torn.DROP`), and the next
`append_rows` cuts it off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from marstts.errors import DataError, MarsError
from marstts.io.files import atomic_write
from marstts.io.reading import (
    LARGE_EXPONENT,
    decode_utf8,
    open_regular,
    os_errors,
    parse_object,
    printable_name,
    printable_text,
    show_bytes,
)

Row = TypeVar("Row")

MAX_LINE_BYTES = 4 * 2**20
"""Longest line that is read."""

MAX_FILE_BYTES = 64 * 2**30
"""Largest file that is read, line by line."""

MAX_COMPLAINTS = 10
"""Complaints that a message holds; the others are counted."""


class Torn(Enum):
    """Treatment of a last line that has no line end."""

    READ = "read"
    """Read it like any other: some editors leave it so."""

    DROP = "drop"
    """Leave it out: a killed process did not finish it."""


@dataclass(frozen=True)
class Scanned(Generic[Row]):
    """One line as `scan_rows` finds it."""

    number: int
    """Number of the line, from 1."""

    first_byte: int
    last_byte: int
    """Offset of the line, and of the next one."""

    row: Row | None
    """The parsed content; None where it is invalid."""

    problem: str
    """Reason why the row is invalid; empty for a valid row."""


def read_rows(
    model: type[Row],
    path: Path,
    *,
    kind: type[MarsError] = DataError,
    torn: Torn = Torn.READ,
    unique: Sequence[str] = (),
    finish: Callable[[Row], Row] | None = None,
) -> list[Row]:
    """All rows in file order; `kind` with the first MAX_COMPLAINTS complaints and their lines if any row is of no use.

    No two rows may agree in all fields of `unique`. `finish` completes a row (for example resolves paths) or raises a
    MarsError, which becomes a complaint about its line.
    """
    rows: list[Row] = []
    complaints: list[tuple[int, str]] = []
    count = 0
    for line in scan_rows(model, path, kind=kind, torn=torn, unique=unique, finish=finish):
        if line.row is not None:
            rows.append(line.row)
            continue
        count += 1
        if count <= MAX_COMPLAINTS:
            complaints.append((line.number, line.problem))
    if complaints:
        lines = [f"{printable_name(path)}:{complaints[0][0]}: {complaints[0][1]}"]
        lines += [f"line {number}: {problem}" for number, problem in complaints[1:]]
        lines += [f"and {count - len(complaints)} more"] if count > len(complaints) else []
        raise kind("; ".join(lines))
    return rows


def scan_rows(
    model: type[Row],
    path: Path,
    *,
    kind: type[MarsError] = DataError,
    torn: Torn = Torn.READ,
    unique: Sequence[str] = (),
    finish: Callable[[Row], Row] | None = None,
) -> Iterator[Scanned[Row]]:
    """Every line that is not blank with what is wrong with it, for files that do not fit in memory.

    Of rows that agree in `unique`, the first is of use. `kind` is raised only where the file cannot be read.
    """
    seen: dict[tuple[Any, ...], int] = {}
    with open_regular(path, MAX_FILE_BYTES, kind) as file, os_errors(path, "be read", kind):
        for number, first, last, content in _lines(file):
            if torn is Torn.DROP and not content.endswith(b"\n"):
                return
            if len(content) <= MAX_LINE_BYTES and not content.strip():
                continue
            try:
                row = parse_row(model, content)
                if unique:
                    _refuse_repeated(row, unique, number, seen)
                row = row if finish is None else finish(row)
            except MarsError as error:
                yield Scanned(number, first, last, None, str(error))
            else:
                yield Scanned(number, first, last, row, "")


def parse_row(model: type[Row], content: bytes) -> Row:
    """One line as a `model`; DataError, without the line's place, listing every complaint."""
    if len(content) > MAX_LINE_BYTES:
        raise DataError(f"expected at most {show_bytes(MAX_LINE_BYTES)} in a line, but this one is longer")
    text = decode_utf8(content, "the line", DataError)
    if LARGE_EXPONENT.search(text) or "NaN" in text or "Infinity" in text:  # which pydantic takes for numbers
        parse_object(text, "the line", DataError)
    try:
        return _adapter(model).validate_json(text)
    except ValidationError as error:
        raise DataError("; ".join(_complaint(found) for found in error.errors(include_url=False))) from error


def append_rows(path: Path, rows: Iterable[Any], *, kind: type[MarsError] = DataError) -> None:
    """Write rows at the end of a file, which is made if it is missing; a torn last line is cut off first."""
    with open_appender(path, kind=kind) as append:
        for row in rows:
            append(row)


@contextmanager
def open_appender(path: Path, *, kind: type[MarsError] = DataError) -> Iterator[Callable[[Any], None]]:
    """A function that writes a row at the end of a file, at once and in one piece; otherwise as `append_rows`."""
    with os_errors(path, kind=kind):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b", buffering=0)
    with file:
        with os_errors(path, kind=kind):
            _cut_torn_line(file)

        def append(row: Any) -> None:
            line = dump_row(row, kind)
            with os_errors(path, kind=kind):
                if (written := file.write(line)) != len(line):
                    file.write(line[written:])  # this raises the reason

        yield append


def write_rows(
    path: Path, rows: Iterable[Any], *, unique: Sequence[str] = (), kind: type[MarsError] = DataError
) -> None:
    """Write a whole file, atomically; `kind` where two rows agree in all fields of `unique`."""
    seen: dict[tuple[Any, ...], int] = {}
    with atomic_write(path, kind) as file:
        for number, row in enumerate(rows, 1):
            try:
                if unique:
                    _refuse_repeated(row, unique, number, seen)
            except DataError as error:
                raise kind(f"{printable_name(path)}:{number}: {error}") from error
            file.write(dump_row(row, kind))


def dump_row(row: Any, kind: type[MarsError] = DataError) -> bytes:
    """A row as one line of UTF-8 with its line end; a mapping's keys keep their order.

    Numbers that are not finite and text that is no UTF-8 raise `kind`: no reader would take them.
    """
    try:
        values = row if isinstance(row, Mapping) else _adapter(type(row)).dump_python(row, mode="json")
        return (json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
    except ValueError as error:  # pydantic's and Unicode's are among them
        raise kind(f"this row cannot be written as JSON: {error}") from error


def _lines(file: BinaryIO) -> Iterator[tuple[int, int, int, bytes]]:
    """Number, first byte, last byte and content of each line; of one beyond the bound, its beginning."""
    number = first = 0
    while content := file.readline(MAX_LINE_BYTES + 1):
        number, last, rest = number + 1, first + len(content), content
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(2**20)
            last += len(rest)
        complete = content.endswith(b"\n") or not rest.endswith(b"\n")
        yield number, first, last, content if complete else content + b"\n"
        first = last


def _cut_torn_line(file: Any) -> None:
    """Cut an appendable file after its last line end."""
    end = size = file.seek(0, 2)
    while end > 0:
        start = max(0, end - 2**16)
        file.seek(start)
        place = file.read(end - start).rfind(b"\n")
        if place >= 0:
            end = start + place + 1
            break
        end = start
    if end != size:
        file.truncate(end)


def _refuse_repeated(row: Any, unique: Sequence[str], number: int, seen: dict[tuple[Any, ...], int]) -> None:
    values = tuple(row[name] if isinstance(row, Mapping) else getattr(row, name) for name in unique)
    first = seen.setdefault(values, number)
    if first != number:
        keys = " and ".join(f"{name} {value!r}" for name, value in zip(unique, values, strict=True))
        raise DataError(f"{keys} was used before on line {first}; each may be used once")


def _complaint(found: Any) -> str:
    if found["type"] == "json_invalid":
        problem = str(found["ctx"]["error"])
        return f"expected one JSON object per line, but {problem[:1].lower()}{problem[1:]}"
    place = ".".join(map(str, found["loc"]))
    problem = "is missing" if found["type"] == "missing" else found["msg"][:1].lower() + found["msg"][1:]
    return printable_text(f"{place}: {problem}" if place else problem, 200)


_adapter: Any = lru_cache(maxsize=256)(TypeAdapter)
