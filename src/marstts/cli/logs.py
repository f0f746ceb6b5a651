"""Logging of the command line: what the package logs, as plain lines on standard error.

Upstream: `main`, once per command.  Downstream: every `logging.getLogger(__name__)` of the package.
The library itself stays silent unless its caller configures the logger `marstts`.
"""

from __future__ import annotations

import logging
import sys
import warnings

from marstts.io.reading import printable_text

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
    """Show the records of the logger `marstts` from `level` on; calling it again changes nothing but the level."""
    logger = logging.getLogger("marstts")
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
