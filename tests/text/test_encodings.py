"""Encodings of documents: those of the web, and none by a name of Python's own table."""

from __future__ import annotations

import encodings.aliases
import pkgutil
from pathlib import Path

import pytest

from marstts.text.books.book import read_book
from marstts.text.books.encodings import CODECS, decode_document
from marstts.text.ssml import read_ssml
from small_epub import PARTS, write_small_epub

FOREIGN = sorted({module.name for module in pkgutil.iter_modules(encodings.__path__)} | set(encodings.aliases.aliases))


def page(name: str, words: bytes) -> bytes:
    return b'<?xml version="1.0" encoding="%s"?><html><body><p>%s</p></body></html>' % (name.encode(), words)


@pytest.mark.parametrize("name", FOREIGN)
def test_no_encoding_of_pythons_gives_halves_of_characters(name: str) -> None:
    decode_document(page(name, b"Hello \\ud800 +2AA- \xed\xa0\x80 caf\xe9 \xf0")).encode("utf-8")


@pytest.mark.parametrize("name", ["unicode_escape", "raw_unicode_escape", "punycode", "idna", "undefined", "utf-7"])
def test_an_encoding_that_the_web_does_not_know_is_windows_1252(name: str) -> None:
    assert "caf\u00e9 \\ud800" in decode_document(page(name, b"caf\xe9 \\ud800"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("iso-8859-2", "\u017du\u017ei"), ("KOI8-R", "\u043c\u043e\u0440\u0435"), ("windows-1250", "\u010d"),
     ("Shift_JIS", "\u6d77"), ("gbk", "\u6d77"), ("macintosh", "\u00e9"), ("Big5", "\u6d77"), ("euc-kr", "\ubc14")],
)  # fmt: skip
def test_the_encodings_of_the_web_are_read(name: str, text: str) -> None:
    assert f"<p>{text}</p>" in decode_document(page(name, text.encode(CODECS[name.lower()])))


@pytest.mark.parametrize("name", ["unicode_escape", "punycode", "iso-8859-2", "rot13", "no-such"])
def test_xml_that_states_an_encoding_is_read_by_the_same_list(tmp_path: Path, name: str) -> None:
    path = write_small_epub(tmp_path / "b.epub", authors=("A. \\ud800 Writer",))
    import zipfile

    parts = {**PARTS, "b.opf": f'<?xml version="1.0" encoding="{name}"?>' + PARTS["b.opf"].replace("The", "\\ud800")}
    with zipfile.ZipFile(path, "w") as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    assert read_book(path).title == "\\ud800 Sea"


def test_ssml_is_a_text_whatever_encoding_it_states() -> None:
    [segment] = read_ssml('<?xml version="1.0" encoding="unicode_escape"?><speak>Caf\u00e9 \\ud800</speak>').segments
    assert segment.text == "Caf\u00e9 \\ud800"
