"""What commands print for people: on standard error, so that standard output can be piped."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from marstts.synthesis.clone import ReferenceWarning


def messages() -> Console:
    """The console people read: standard error as it is now. Text is shown as it is, whatever it contains."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def warn(sentence: str) -> None:
    """Print one warning."""
    messages().print(f"warning: {sentence}")


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print what a reference's reader should know as sentences, without file names and line numbers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReferenceWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, ReferenceWarning):
            warn(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
