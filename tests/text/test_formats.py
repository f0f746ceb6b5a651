"""Documents whose source is no text to speak are refused, in every command that reads a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.errors import DataError, TextError
from marstts.text.books.book import read_book
from marstts.text.books.formats import refuse_other_formats

PAGE = "<!DOCTYPE html>\n<html><head><script>var x=1;</script></head><body><p>Hello.</p></body></html>"
SOURCES = [PAGE, '<?xml version="1.0"?>\n<html><body>Hi</body></html>', r"{\rtf1\ansi Hello.\par}", "%PDF-1.4\nHello."]


@pytest.mark.parametrize("source", SOURCES)
def test_the_source_of_a_document_is_refused(tmp_path: Path, source: str) -> None:
    path = tmp_path / "document"
    path.write_text(source)
    for command in (["text", "--file", str(path)], ["speak", "--file", str(path), "--output", str(tmp_path / "a.wav")]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2 and "save it as plain text" in result.stderr, (command, result.stderr)
    with pytest.raises(DataError, match="save it as plain text"):
        read_book(path)


@pytest.mark.parametrize("text", ["<b>Hi</b> <html> is a tag.", "A <!doctype html> inside.", "PDF-1", "<htmlish>", ""])
def test_a_text_with_tags_is_a_text(text: str) -> None:
    refuse_other_formats(text, "a.txt", TextError)
