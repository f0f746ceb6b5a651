"""Outputs of books and of line files: when a text is spoken chapter by chapter, and where its report is.

Upstream: `speak_input`, `speak_output`, `book`, `lines`.  Downstream: nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

REPORT_FILE = "report.jsonl"

M4B_SUFFIX = ".m4b"
CHAPTERS_SUFFIX = ".chapters"
"""Suffix of the folder of an m4b's chapters."""


def is_book_output(output: str | None) -> bool:
    """Whether the output is a folder or an m4b, so that the text is spoken chapter by chapter."""
    if output is None or output == "-":
        return False
    return output.endswith((os.sep, "/")) or output.lower().endswith(M4B_SUFFIX) or os.path.isdir(output)


def report_folder(output: Path) -> Path:
    """The folder of chapters and report: the output, or the one of an m4b's chapters."""
    return output.with_suffix(CHAPTERS_SUFFIX) if output.suffix.lower() == M4B_SUFFIX else output
