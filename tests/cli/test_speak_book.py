"""`marstts speak --file book --output folder/`: a tagged file per chapter, resumed after an interruption, and m4b."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile
from typer.testing import CliRunner, Result

from marstts.cli.main import app
from scripted import good, scripted_synthesizer
from small_epub import write_small_epub

RUN = CliRunner()
BOOK = """Title: The Walk
Author: B. Writer

Chapter I. The Road

The road was long, and it went uphill for most of the day.

Chapter II. The Hill

The hill was steep; nobody had said so. I climbed it all the same.
"""
FILES = ["01-chapter-i-the-road.mp3", "02-chapter-ii-the-hill.mp3"]


@pytest.fixture(autouse=True)
def book(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "walk.txt"
    path.write_text(BOOK)
    return path


def speak(*arguments: str | Path) -> Result:
    return RUN.invoke(app, ["speak", *map(str, arguments)])


def test_every_chapter_becomes_a_tagged_file(book: Path, reference_file: Path) -> None:
    result = speak("--file", book, "--output", "walk/", "--reference", reference_file)
    assert result.exit_code == 0, result.stderr
    assert "2 chapters spoken" in result.stdout
    assert sorted(path.name for path in Path("walk").glob("*.mp3")) == FILES
    with soundfile.SoundFile(Path("walk") / FILES[1]) as file:
        assert (file.title, file.artist, file.album, file.tracknumber) == (
            "Chapter II. The Hill", "B. Writer", "The Walk", "2",
        )  # fmt: skip
        assert file.frames / file.samplerate > 2


def test_a_book_that_names_no_author_has_no_tag_of_one(book: Path, reference_file: Path) -> None:
    book.write_text(BOOK.replace("Author: B. Writer\n", ""))
    result = speak("--file", book, "--output", "walk/", "--reference", reference_file)
    assert result.exit_code == 0, result.stderr
    with soundfile.SoundFile(Path("walk") / FILES[1]) as file:
        tags = file.copy_metadata()
    assert (tags["title"], tags["artist"], tags["album"]) == ("Chapter II. The Hill", "", "The Walk")


@pytest.mark.slow
def test_chapters_that_are_there_are_kept(book: Path, reference_file: Path) -> None:
    arguments = ("--file", book, "--output", "walk/", "--reference", reference_file)
    speak(*arguments)
    first = (Path("walk") / FILES[0]).stat().st_mtime_ns
    (Path("walk") / FILES[1]).unlink()  # as after an interruption
    result = speak(*arguments, "--json")
    assert json.loads(result.stdout) == {"spoken": 1, "kept": 1, "failed": []}
    assert (Path("walk") / FILES[0]).stat().st_mtime_ns == first
    assert json.loads(speak(*arguments, "--seed", 3, "--json").stdout)["spoken"] == 2


@pytest.mark.slow
def test_an_m4b_holds_chapter_marks(book: Path, reference_file: Path) -> None:
    av = pytest.importorskip("av")
    result = speak("--file", book, "--output", "walk.m4b", "--reference", reference_file)
    assert result.exit_code == 0, result.stderr
    with av.open("walk.m4b") as container:
        assert (container.metadata["title"], container.metadata["artist"]) == ("The Walk", "B. Writer")
        marks = container.chapters()
        seconds = container.duration / av.time_base
    assert [mark["metadata"]["title"] for mark in marks] == ["Chapter I. The Road", "Chapter II. The Hill"]
    spoken = sum(soundfile.info(Path("walk.chapters") / name).duration for name in FILES)
    assert seconds == pytest.approx(spoken, abs=0.2)


@pytest.mark.slow
def test_a_chapter_without_words_is_named_and_the_others_are_spoken(book: Path, reference_file: Path) -> None:
    book.write_text(BOOK + "\nChapter III. 你好\n\n" + "你好" * 30 + "\n", encoding="utf-8")
    result = speak("--file", book, "--output", "walk/", "--reference", reference_file)
    assert sorted(path.name for path in Path("walk").glob("*.mp3"))[:2] == FILES
    assert "chapter 3" in result.stderr


def test_an_epub_is_read_into_one_file_too(tmp_path: Path, reference_file: Path) -> None:
    write_small_epub(tmp_path / "sea.epub")
    result = speak("--file", "sea.epub", "--output", "sea.wav", "--reference", reference_file, "--json")
    assert "The Harbor." in [take["text"] for take in json.loads(result.stdout)["takes"]]
