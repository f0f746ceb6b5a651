"""Messages and logs of the commands, on standard error, so that standard output can be piped."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import typer

from marstts.errors import ConfigError, escaped
from marstts.io.reading import printable_name, printable_text
from marstts.synthesis.clone import ReferenceWarning
from marstts.voice import Voice

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

MAX_WARNING = 4000
"""Characters of a warning that are printed."""


def messages() -> Console:
    """The console for messages: standard error as it is now. Text is shown as it is, whatever it contains."""
    from rich.console import Console  # rich takes 0.07 s to import, and most runs print nothing

    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a result; characters that are not printable, which a terminal may obey, are shown as escapes."""
    typer.echo(escaped(str(text)), err=err, nl=nl)


def say_json(value: object, *, err: bool = False, indent: int | None = None) -> None:
    """Print a value as JSON, in which characters that are not printable are escapes of JSON."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if not text.isprintable():
        text = "".join(each if each == "\n" or each.isprintable() else json.dumps(each)[1:-1] for each in text)
    typer.echo(text, err=err)


def warn(sentence: str) -> None:
    """Print one warning."""
    messages().print(f"warning: {printable_text(sentence, MAX_WARNING)}")


def print_prefix(voice: Voice, patch_rate: float) -> None:
    """Print what a deep voice that was just cloned continues from; nothing for a shallow one."""
    if voice.prefix is not None:
        seconds, words = len(voice.prefix.codes[0]) / patch_rate, voice.prefix.transcript
        sentence = f"the voice continues from {seconds:.1f} s of the recording: {words!r}"
        messages().print(printable_text(sentence, MAX_WARNING))


class Progress(Protocol):
    """How far work is: a part of rich's class."""

    def add_task(
        self, description: str, *, total: float | None = None, completed: int = 0, visible: bool = True
    ) -> TaskID:
        """Begin work of `total` parts, of which some are `completed`."""
        ...

    def update(
        self,
        task: TaskID,
        /,
        *,
        total: float | None = None,
        completed: float | None = None,
        visible: bool | None = None,
    ) -> None:
        """State what is done; None leaves a value as it is."""
        ...

    def advance(self, task: TaskID, /, advance: float = 1) -> None:
        """State that another part is done."""
        ...


FIRST_LINE_SECONDS, LAST_LINE_SECONDS, LINE_RATIO = 10.0, 300.0, 0.2
"""A log gets a line of progress after 10 s, then whenever the time has grown by a fifth, at least every 5 minutes."""


class LoggedProgress:
    """Progress of one task as lines of a log, for standard error that is no terminal; short work has none."""

    def __init__(self, what: str, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label, self._clock = (what, unit), clock
        self._started = self._last = clock()
        self._total: float | None = None
        self._completed = self._before = 0.0

    def add_task(
        self, description: str, *, total: float | None = None, completed: int = 0, visible: bool = True
    ) -> TaskID:
        """Begin the task; what is `completed` took none of the time since."""
        self._total, self._completed, self._before = total, completed, completed
        return cast("TaskID", 0)

    def update(
        self, task: TaskID, *, total: float | None = None, completed: float | None = None, visible: bool | None = None
    ) -> None:
        """State what is done; a line is printed where the last one is long ago."""
        self._total = self._total if total is None else total
        self._completed = self._completed if completed is None else completed
        now = self._clock()
        wait = min(LAST_LINE_SECONDS, max(FIRST_LINE_SECONDS, LINE_RATIO * (now - self._started)))
        if now - self._last >= wait and self._total and self._completed < self._total:
            self._last = now
            self._print(now - self._started)

    def advance(self, task: TaskID, advance: float = 1) -> None:
        """State that another part is done."""
        self.update(task, completed=self._completed + advance)

    def _print(self, seconds: float) -> None:
        assert self._total is not None
        (what, unit), done = self._label, self._completed - self._before
        left = "" if done <= 0 else f", {duration((self._total - self._completed) * seconds / done)} left"
        messages().print(f"{what}: {self._completed:.0f} of {self._total:.0f} {unit}{left}")


def duration(seconds: float) -> str:
    """A time as people say it: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress_of(what: str, unit: str) -> Iterator[Progress]:
    """A display of progress on standard error: a bar in a terminal, otherwise a line from time to time."""
    if not sys.stderr.isatty():
        yield LoggedProgress(what, unit)
        return
    from rich import progress

    columns = (progress.TextColumn(what), progress.BarColumn(), progress.MofNCompleteColumn())
    with progress.Progress(*columns, progress.TimeRemainingColumn(), console=messages(), transient=True) as display:
        yield display


def check_not_read(outputs: Sequence[str | Path | None], *inputs: str | Path | None) -> None:
    """Raise ConfigError where a file to write is one of those that are read: it would be lost."""
    for output, path in product(outputs, inputs):
        if output is not None and path is not None and is_same_file(str(output), str(path)):
            raise ConfigError(
                f"{printable_name(str(output))}: this file is read, and would be overwritten; write to another one"
            )


def is_same_file(first: str, second: str) -> bool:
    """Whether two paths are of one regular file."""
    try:
        return os.path.isfile(first) and os.path.samefile(first, second)
    except (OSError, ValueError):  # no such file, or a text that is no path
        return False


def check_utf8(**options: str | None) -> None:
    """Raise ConfigError for an option whose text is no UTF-8: it could be neither spoken nor stored."""
    for name, value in options.items():
        try:
            (value or "").encode("utf-8")
        except UnicodeEncodeError as error:
            option = name.upper() if name == "text" else f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option} {printable_text(value or '', 100)}: expected UTF-8 text, but byte {error.start} is no part "
                "of a letter"
            ) from error


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print warnings about a reference as sentences, without file names and line numbers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReferenceWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, ReferenceWarning):
            warn(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


# Logging of the command line: what the package logs, as plain lines on standard error.
# The library itself stays silent unless its caller configures the logger `marstts`.

MAX_LINE = 4000
"""Characters of a record that are printed."""

LIBRARY_WARNINGS = (r"pkg_resources is deprecated", r".*torchvision", r".*copyreg")
"""Beginnings of warnings of libraries about themselves, about which a user of the commands can do nothing."""

LIBRARY_LOGGERS = ("torch.onnx._internal.exporter._registration",)
"""Loggers that warn of packages which no command needs (torchvision); their errors are shown."""


class StandardError(logging.Handler):
    """Writes each record as one harmless line to standard error as it is now (tests and notebooks replace it)."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        text = self.format(record) if record.exc_info else printable_text(record.getMessage(), MAX_LINE)
        print(f"{prefix}{text}", file=sys.stderr, flush=True)


def configure_logging(level: int = logging.INFO) -> None:
    """Show the records of `marstts` and `marstts_lab` from `level` on; again, it changes nothing but the level."""
    for name in ("marstts", "marstts_lab"):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        if not any(isinstance(handler, StandardError) for handler in logger.handlers):
            logger.addHandler(StandardError())


def silence_libraries() -> None:
    """Hide what libraries warn of themselves, unless Python's option -W or PYTHONWARNINGS asks for warnings."""
    if sys.warnoptions:
        return
    for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
        warnings.simplefilter("ignore", category)
    for message in LIBRARY_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    for name in LIBRARY_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
