"""`marstts speak --file book --output folder/`: a tagged file per chapter, resumed after an interruption, and m4b."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner, Result

from marstts import audio
from marstts.cli import kept_sentences
from marstts.cli.book import name_of
from marstts.cli.main import app
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.words.word_times import Word
from scripted import good, scripted_synthesizer
from small_epub import write_small_epub

pytestmark = pytest.mark.slow

RUN = CliRunner()
BOOK = """Title: The Walk
Author: B. Writer

Chapter I. The Road

The road was long.

Chapter II. The Hill

The hill was steep. I climbed it.
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
    assert (tags["title"], tags["album"]) == ("Chapter II. The Hill", "The Walk") and "artist" not in tags


TITLES = [
    "\u201c\u00c9t\u00e9\u201d",
    "Don\u2019t \u2013 go",
    "\u65e5\u672c",
    "Plain",
    "\u0425\u043b\u0435\u0431 \U0001f35e",
]


@pytest.mark.parametrize("title", TITLES)
def test_tags_and_file_names_keep_every_letter(title: str, tmp_path: Path, reference_file: Path) -> None:
    av = pytest.importorskip("av")
    page = f"<html><body><h1>{title}</h1><p>It lay still in the fog.</p></body></html>"
    write_small_epub(tmp_path / "sea.epub", authors=("Zo\u00eb \u2014 Writer",), page=page)
    result = speak("--file", "sea.epub", "--output", "sea/", "--reference", reference_file, "--chapters", 1)
    assert result.exit_code == 0, result.stderr
    [path] = Path("sea").glob("*.mp3")
    with av.open(str(path)) as container:  # FFmpeg reads the encoding that a tag declares
        tags = container.metadata
    assert (tags["title"], tags["artist"]) == (title, "Zo\u00eb \u2014 Writer")
    with soundfile.SoundFile(path) as file:
        assert (file.title, file.album, file.tracknumber) == (title, "The Sea", "1")
        assert file.frames / file.samplerate > 1
    letters = "".join(filter(str.isalnum, title)).lower()
    assert path.stem.removeprefix("01-").replace("-", "") == letters


def test_long_titles_of_any_script_are_names_that_file_systems_take() -> None:
    assert name_of("A\u0301 la carte") == "-\u00e1-la-carte"
    assert name_of("\u0915\u094d\u0937\u092e\u093e") == "-\u0915\u094d\u0937\u092e\u093e"
    assert len(name_of("\U00010400" * 200).encode()) < 200 and name_of("\u65e5" * 200) == "-" + "\u65e5" * 50
    assert name_of("?!") == ""


def test_an_m4b_has_description_and_date(tmp_path: Path, reference_file: Path) -> None:
    av = pytest.importorskip("av")
    about = "<dc:description>&lt;p&gt;A caf\u00e9 by the &lt;i&gt;sea&lt;/i&gt;.&lt;/p&gt;</dc:description>"
    path = write_small_epub(tmp_path / "sea.epub", about=about + "<dc:date>1912-04-15T00:00:00+00:00</dc:date>")
    result = speak("--file", path, "--output", "sea.m4b", "--reference", reference_file)
    assert result.exit_code == 0, result.stderr
    with av.open("sea.m4b") as container:
        assert container.metadata["description"] == "A caf\u00e9 by the sea."
        assert container.metadata["date"] == "1912-04-15"
    with soundfile.SoundFile(Path("sea.chapters") / "01-the-harbor.flac") as file:
        assert file.date == "1912-04-15"


def test_chapters_that_are_there_are_kept(book: Path, reference_file: Path) -> None:
    arguments = ("--file", book, "--output", "walk/", "--reference", reference_file)
    speak(*arguments)
    first = (Path("walk") / FILES[0]).stat().st_mtime_ns
    (Path("walk") / FILES[1]).unlink()  # as after an interruption
    result = speak(*arguments, "--json")
    assert json.loads(result.stdout) == {"spoken": 1, "kept": 1, "failed": []}
    assert (Path("walk") / FILES[0]).stat().st_mtime_ns == first
    assert json.loads(speak(*arguments, "--seed", 3, "--json").stdout)["spoken"] == 2


def test_an_m4b_holds_chapter_marks_and_lossless_chapters_are_kept(book: Path, reference_file: Path) -> None:
    av = pytest.importorskip("av")
    result = speak("--file", book, "--output", "walk.m4b", "--reference", reference_file)
    assert result.exit_code == 0, result.stderr
    with av.open("walk.m4b") as container:
        assert (container.metadata["title"], container.metadata["artist"]) == ("The Walk", "B. Writer")
        marks = container.chapters()
        seconds = container.duration / av.time_base
    assert [mark["metadata"]["title"] for mark in marks] == ["Chapter I. The Road", "Chapter II. The Hill"]
    chapters = [soundfile.info(Path("walk.chapters") / name.replace("mp3", "flac")) for name in FILES]
    assert seconds == pytest.approx(sum(chapter.duration for chapter in chapters), abs=0.2)
    assert sorted(path.name for path in Path("walk.chapters").glob("[0-9]*")) == [
        name.replace("mp3", "flac") for name in FILES
    ]


def picture(av: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="image2pipe") as container:
        stream = container.add_stream(kind, rate=1)
        stream.width, stream.height, stream.pix_fmt = 32, 48, "yuvj420p" if kind == "mjpeg" else "rgb24"
        frame = av.VideoFrame.from_ndarray(np.full((48, 32, 3), 90, np.uint8), format="rgb24")
        container.mux([*stream.encode(frame.reformat(format=stream.pix_fmt)), *stream.encode(None)])
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["mjpeg", "png", "text"])
def test_an_m4b_has_the_cover_and_all_authors(kind: str, tmp_path: Path, reference_file: Path) -> None:
    av = pytest.importorskip("av")
    cover = b"no picture" if kind == "text" else picture(av, kind)
    write_small_epub(tmp_path / "sea.epub", cover, ("A. Writer", "B. Writer"))
    result = speak("--file", "sea.epub", "--output", "sea.m4b", "--reference", reference_file)
    assert result.exit_code == 0, result.stderr
    with av.open("sea.m4b") as container:
        assert container.metadata["artist"] == "A. Writer, B. Writer"
        pictures = [bytes(next(container.demux(stream))) for stream in container.streams.video]
    assert pictures == ([] if kind == "text" else [cover])
    assert ("cover" in result.stderr) == (kind == "text")


@pytest.mark.parametrize(("ranges", "files"), [("2", FILES[1:]), ("2-", FILES[1:]), ("-1", FILES[:1]), ("1,2", FILES)])
def test_chapters_are_chosen_by_number(book: Path, reference_file: Path, ranges: str, files: list[str]) -> None:
    result = speak("--file", book, "--output", "walk/", "--reference", reference_file, "--chapters", ranges)
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in Path("walk").glob("[0-9]*")) == files


def test_chapters_that_are_not_asked_for_stay(book: Path, reference_file: Path) -> None:
    arguments = ("--file", book, "--output", "walk/", "--reference", reference_file, "--json")
    for ranges, expected in (("1", (1, 0)), ("2", (1, 0)), ("1-2", (0, 2))):
        result = json.loads(speak(*arguments, "--chapters", ranges).stdout)
        assert (result["spoken"], result["kept"]) == expected


@pytest.mark.parametrize("ranges", ["0", "3", "2-1", "1-3", "x", "", "-", "1;2"])
def test_chapters_that_are_not_there_are_refused(book: Path, ranges: str) -> None:
    result = speak("--file", book, "--output", "walk/", "--chapters", ranges)
    assert result.exit_code == 2 and "--chapters" in result.stderr and not list(Path("walk").glob("*.mp3"))


def interrupt_after(monkeypatch: pytest.MonkeyPatch, sentences: int) -> None:
    """Let the next run end as by Ctrl-C, when so many sentences are listed."""
    real = kept_sentences.row_of
    left = iter(range(sentences))

    def row_of(*arguments: Any) -> dict[str, Any]:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(kept_sentences, "row_of", row_of)


@pytest.mark.parametrize("done", [0, 2, 4])
def test_an_interrupted_book_goes_on_after_its_last_sentence(
    book: Path, reference_file: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    arguments = ("--file", book, "--reference", reference_file)
    speak(*arguments, "--output", "whole/")
    with monkeypatch.context() as patch:
        interrupt_after(patch, done)
        assert "the same command goes on" in speak(*arguments, "--output", "walk/").stderr
    tts = scripted_synthesizer(good)
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: tts)
    assert speak(*arguments, "--output", "walk/").exit_code == 0
    assert len(tts.session.engine.prompts) == 7 - done
    for name in FILES:
        whole, resumed = (audio.read(Path(folder) / name).samples for folder in ("whole", "walk"))
        np.testing.assert_array_equal(whole, resumed)
    texts = [
        [
            take["text"]
            for line in (Path(folder) / "report.jsonl").read_text().splitlines()
            for take in json.loads(line)["takes"]
        ]
        for folder in ("whole", "walk")
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 7
    assert not list(Path("walk").glob("*.partial*"))


@pytest.mark.parametrize(
    ("first", "second"),
    [([], ["--pauses", "sentence=1"]), ([], ["--seed", "4"]), (["--continuation", "per-chunk"],) * 2],
)
def test_sentences_of_other_choices_and_those_that_the_next_needs_are_spoken_again(
    book: Path, reference_file: Path, monkeypatch: pytest.MonkeyPatch, first: list[str], second: list[str]
) -> None:
    arguments = ("--file", book, "--output", "walk/", "--reference", reference_file)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        speak(*arguments, *first)
    tts = scripted_synthesizer(good)
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: tts)
    assert speak(*arguments, *second).exit_code == 0
    assert len(tts.session.engine.prompts) == 7


def test_a_long_text_goes_on_after_its_last_sentence(reference_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marstts.cli.speak.MAX_WHOLE_CHARACTERS", 20)
    arguments = (
        "The cat sat. She sells it. It rained. Who was it?",
        "--output",
        "a.mp3",
        "--reference",
        reference_file,
    )
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        result = speak(*arguments)
    assert "3 sentences are kept in a.partial.wav" in result.stderr and not Path("a.mp3").exists()
    assert 3 * 1.4 < audio.read("a.partial.wav").seconds < 4 * 2.5
    tts = scripted_synthesizer(good)
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: tts)
    result = speak(*arguments, "--json")
    assert len(tts.session.engine.prompts) == 1 and len(json.loads(result.stdout)["takes"]) == 4
    assert sorted(path.name for path in Path().iterdir() if path.name.lstrip(".").startswith("a.")) == ["a.mp3"]


def test_notes_of_an_epub_are_read_where_they_are_asked_for(tmp_path: Path, reference_file: Path) -> None:
    note = "<aside epub:type='footnote'><p>A note.</p></aside>"
    page = f"<html xmlns:epub='e'><body><p>One.</p>{note}<p>Two.</p></body></html>"
    write_small_epub(tmp_path / "sea.epub", page=page)
    for notes, texts in (
        ("in-place", ["One.", "A note.", "Two."]),
        ("at-end", ["One.", "Two.", "A note."]),
        ("left-out", ["One.", "Two."]),
    ):
        result = speak(
            "--file", "sea.epub", "--output", "sea.wav", "--notes", notes, "--json", "--reference", reference_file
        )
        spoken = [take["text"] for take in json.loads(result.stdout)["takes"]]
        assert [text for text in spoken if text in ("One.", "A note.", "Two.")] == texts


def test_captions_of_a_book_run_over_its_chapters(
    book: Path, reference_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = kept_sentences.row_of

    def row_of(chunk: Any, *arguments: Any) -> dict[str, Any]:
        words = (Word(written=chunk.text.split()[0], spoken="", start=0.1, end=0.2, confidence=1.0),)
        return real(replace(chunk, words=tuple(word.shifted(row_of.seconds) for word in words)), *arguments)

    row_of.seconds = 0.0  # type: ignore[attr-defined]
    monkeypatch.setattr(kept_sentences, "row_of", row_of)
    monkeypatch.setattr(ModelSession, "check_word_times", lambda *arguments: None)
    for _ in range(2):  # chapters that are kept have their words, too
        result = speak(
            "--file", book, "--output", "w/", "--words", "w.json", "--chapters", "1-2", "--reference", reference_file
        )
        assert result.exit_code == 0, result.stderr
        words = json.loads(Path("w.json").read_text())
        entries = [json.loads(line) for line in Path("w/report.jsonl").read_text().splitlines()]
        assert [word["written"] for word in words] == [
            take["text"].split()[0] for entry in entries for take in entry["takes"]
        ]
        assert {word["start"] for word in words} == {0.1, round(entries[0]["audio_seconds"] + 0.1, 3)}


def test_a_chapter_without_words_is_named_and_the_others_are_spoken(book: Path, reference_file: Path) -> None:
    book.write_text(BOOK + "\nChapter III. 你好\n\n" + "你好" * 30 + "\n", encoding="utf-8")
    result = speak("--file", book, "--output", "walk/", "--reference", reference_file)
    assert sorted(path.name for path in Path("walk").glob("*.mp3"))[:2] == FILES
    assert "chapter 3" in result.stderr


def test_an_epub_is_read_into_one_file_too(tmp_path: Path, reference_file: Path) -> None:
    write_small_epub(tmp_path / "sea.epub")
    result = speak("--file", "sea.epub", "--output", "sea.wav", "--reference", reference_file, "--json")
    assert "The Harbor." in [take["text"] for take in json.loads(result.stdout)["takes"]]
