"""Corrupt documents: SSML, lexicons, texts and EPUBs give a value or one sentence (see `test_fuzz_files`)."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import pytest

from marstts.text.books.book import read_book
from marstts.text.lexicon import read_lexicon
from marstts.text.reading import read_text
from small_epub import PARTS, write_small_epub
from test_fuzz_files import attack, mutated

SSML = [
    b"<?xml version='1.0'?><!-- a --><speak><p><s>One <emphasis level='strong'>word</emphasis>.</s></p>"
    b"<break time='1s'/>"
    b"<say-as interpret-as='cardinal'>12</say-as><sub alias='b'>a</sub><prosody rate='+10%'>x</prosody></speak>",
    b"<speak><voice name='ada'>Hi.</voice><phoneme alphabet='ipa' ph='a'>b</phoneme>"
    b"<say-as interpret-as='date' format='dmy'>1/2/2020</say-as></speak>",
]
LEXICON = [b"Nguyen\twin\nSQL\tS IY1 K W AH0 L\n# comment\nbuoy\t/bui/\nNew York\tnoo york\n"]
TEXT = ["Title: A\n\nChapter 1\n\nIt cost £3.50 — [a]{b}, 5 km & <b>.\n\n# Two\n\n1. x\n2. “y” 😀\n".encode()]


def test_ssml() -> None:
    attack(SSML, lambda content: read_text(content.decode("utf-8", "replace")[:3000]), "ssml")


def test_lexicons(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.tsv"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        read_text("The buoy of Nguyen in New York speaks SQL's.", read_lexicon(path))

    attack(LEXICON, read, "lexicon")


@pytest.mark.slow
def test_texts(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        for chapter in read_book(path):
            read_text(chapter.text[:1000])

    attack(TEXT, read, "book of text")


@pytest.mark.slow
def test_epubs(tmp_path: Path) -> None:
    """The bytes of the zip file, and the parts within it."""
    path = write_small_epub(tmp_path / "book.epub")
    stored = path.read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in PARTS.items():
            archive.writestr(name, content)
    deflated = path.read_bytes()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        read_book(path)

    attack([stored, deflated], read, "epub")

    def read_parts(content: bytes) -> None:
        rng = random.Random(content)
        wounded = rng.choice(list(PARTS))
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w") as archive:
            for name, part in PARTS.items():
                archive.writestr(name, mutated(part.encode(), rng) if name == wounded else part)
        read(sink.getvalue())

    attack([stored], read_parts, "parts of an epub")
