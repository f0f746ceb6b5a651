"""Formats of documents that are no text to speak: their markup, styles and scripts would be read aloud.

Upstream: the beginning of a file.  Downstream: `books`, and the commands that read a file.
"""

from __future__ import annotations

import re

from marstts.errors import MarsError

_ZIP = b"PK\x03\x04"
_OTHER_FORMATS = (
    ("an HTML page", re.compile(r"\s*(?:<\?xml[^<>]{0,200}>\s*)?(?:<!doctype\s+html|<html)\b", re.IGNORECASE)),
    ("an RTF document", re.compile(r"\{\\rtf")),
    ("a PDF document", re.compile(r"%PDF-")),
)


_BINARY_FORMATS = (
    ("a PDF document", lambda content: content.startswith(b"%PDF-")),
    ("a Word document (.docx)", lambda content: content.startswith(_ZIP) and b"word/document" in content),
    ("an OpenDocument text (.odt)", lambda content: content.startswith(_ZIP) and b"opendocument.text" in content[:200]),
    ("a ZIP archive", lambda content: content.startswith(_ZIP)),
    ("an old Office document (.doc)", lambda content: content.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")),
    ("a Kindle book", lambda content: content[60:68] in (b"BOOKMOBI", b"TEXtREAd")),
)


def refuse_binary_formats(content: bytes, name: str, kind: type[MarsError]) -> None:
    """Raise `kind` where the bytes of a file are a document that holds no plain text, an EPUB included."""
    for form, matches in _BINARY_FORMATS:
        if matches(content):
            raise kind(f"{name}: expected text, Markdown, SSML or an EPUB, but this is {form}; save it as plain text")


def refuse_other_formats(text: str, name: str, kind: type[MarsError]) -> None:
    """Raise `kind` where the text of a file is the source of a document; tags within a text are none."""
    for form, pattern in _OTHER_FORMATS:
        if pattern.match(text):
            raise kind(f"{name}: expected text, Markdown, SSML or an EPUB, but this is {form}; save it as plain text")
