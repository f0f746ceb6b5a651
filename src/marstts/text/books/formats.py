"""Formats of documents that are no text to speak: their markup, styles and scripts would be read aloud.

Upstream: the beginning of a file.  Downstream: `books`, and the commands that read a file.
"""

from __future__ import annotations

import re

from marstts.errors import MarsError

_OTHER_FORMATS = (
    ("an HTML page", re.compile(r"\s*(?:<\?xml[^<>]{0,200}>\s*)?(?:<!doctype\s+html|<html)\b", re.IGNORECASE)),
    ("an RTF document", re.compile(r"\{\\rtf")),
    ("a PDF document", re.compile(r"%PDF-")),
)


def refuse_other_formats(text: str, name: str, kind: type[MarsError]) -> None:
    """Raise `kind` where the text of a file is the source of a document; tags within a text are none."""
    for form, pattern in _OTHER_FORMATS:
        if pattern.match(text):
            raise kind(f"{name}: expected text, Markdown, SSML or an EPUB, but this is {form}; save it as plain text")
