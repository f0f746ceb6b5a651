"""Messages of the commands: on standard error, so that standard output can be piped."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from marstts.errors import ConfigError
from marstts.file_errors import printable_text
from marstts.synthesis.clone import ReferenceWarning

MAX_WARNING = 4000
"""Characters of a warning that are printed."""


def messages() -> Console:
    """The console for messages: standard error as it is now. Text is shown as it is, whatever it contains."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def warn(sentence: str) -> None:
    """Print one warning."""
    messages().print(f"warning: {printable_text(sentence, MAX_WARNING)}")


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
