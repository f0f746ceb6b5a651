"""Files are read within bounds, and unreadable ones are refused in one sentence."""

from __future__ import annotations

import codecs
import json
import os
import sys
import time
import tracemalloc

import pytest

from marstts.errors import ConfigError, DataError, FileError
from marstts.io.reading import not_utf8, parse_json, parse_object, read_json, read_regular_file, read_text

posix = pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_regular_file(tmp_path / "a", 5) == b"12345"
    assert read_regular_file(str(tmp_path / "a"), 99) == b"12345"


def test_a_file_beyond_the_bound_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(bytes(3 * 2**20))
    with pytest.raises(DataError, match="expected at most 2 MiB, but the file has 3 MiB"):
        read_regular_file(tmp_path / "a", 2 * 2**20, DataError)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files of unknown size are Linux's")
def test_a_file_that_hides_its_size_is_bounded():
    assert os.stat("/proc/self/status").st_size == 0
    with pytest.raises(FileError, match="expected at most 10 bytes, but the file has more"):
        read_regular_file("/proc/self/status", 10)


@posix
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to_zero").symlink_to("/dev/zero")
    cases = {
        tmp_path: "this is a folder",
        tmp_path / "pipe": "device or a pipe",
        "/dev/zero": "device or a pipe",
        tmp_path / "to_zero": "device or a pipe",
        tmp_path / "loop": "symbolic links",
        tmp_path / "nothing": "no such file",
        tmp_path / "zero\0byte": "no file can have this name",
        tmp_path / "no\nline": "no.nline: no such file",
        tmp_path / ("n" * 300): "name too long",
    }
    started = time.monotonic()
    for path, complaint in cases.items():
        with pytest.raises(ConfigError, match=complaint) as caught:
            read_regular_file(path, 100, ConfigError)
        assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 2.0


@posix
def test_links_to_regular_files_are_followed(tmp_path):
    (tmp_path / "a").write_text("text")
    (tmp_path / "link").symlink_to("a")
    os.link(tmp_path / "a", tmp_path / "hard")
    assert read_text(tmp_path / "link", 10) == read_text(tmp_path / "hard", 10) == "text"


def test_text_is_utf8(tmp_path):
    (tmp_path / "a").write_bytes(b"caf\xe9")
    with pytest.raises(
        FileError, match="a: expected UTF-8 text, but byte 3 is no part of a letter; convert it to UTF-8"
    ):
        read_text(tmp_path / "a", 10)


@pytest.mark.parametrize("letters", [0, 5, 8191, 8192, 100_000])
def test_the_place_of_a_byte_is_counted_from_the_start_of_a_file_that_is_read_in_pieces(letters, tmp_path):
    (tmp_path / "a").write_bytes(codecs.BOM_UTF8 + "é".encode() * letters + b"caf\xe9 bleu")
    with (tmp_path / "a").open(encoding="utf-8-sig") as opened:
        assert f"but byte {3 + 2 * letters + 3} is no part of a letter" in complaint_of(opened)


def test_a_pipe_does_not_know_the_place_of_a_byte():
    reading, writing = os.pipe()
    os.write(writing, b"caf\xe9")
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as opened:
        assert "but a byte is no part of a letter" in complaint_of(opened)


def complaint_of(opened):
    with pytest.raises(UnicodeDecodeError) as caught:
        while opened.read(7):
            pass
    return str(not_utf8(caught.value, "a", FileError, opened))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "keys").write_text("secret", encoding="utf-8-sig")
    assert read_text(tmp_path / "keys", 10) == "secret"


def test_json_is_read(tmp_path):
    value = {"a": [1, -2.5e3, "ü 😀", None, True, {"deep": [[]]}]}
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert read_json(tmp_path / "a.json", 1000) == value
    assert parse_json('"\\ud83d\\ude00"', "x") == "😀"  # both halves


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected JSON, but EOF while parsing a value at line 1"),
        ("1" * 5000, "number out of range"),
        ("[-2E+400]", "not JSON compliant"),
        ("[-Infinity]", "expected JSON"),
        ('"\ud800"', "surrogates"),
    ],
)
def test_json_beyond_the_bounds_is_refused(text, complaint):
    with pytest.raises(DataError, match=complaint) as caught:
        parse_json(text, "x.json", DataError)
    assert str(caught.value).startswith("x.json: ") and len(str(caught.value)) < 200


def test_brackets_in_strings_are_no_levels():
    text = json.dumps(["[[{{\\" * 50, '"[[[['])
    assert parse_json(text, "x") == json.loads(text)


def test_an_object_is_asked_for():
    assert parse_object('{"a": 1}', "x") == {"a": 1}
    with pytest.raises(FileError, match="expected a JSON object, but this is a list"):
        parse_object("[]", "x")


def test_the_memory_of_reading_is_that_of_the_file(tmp_path):
    (tmp_path / "a").write_bytes(bytes(2**20))
    tracemalloc.start()
    try:
        assert len(read_regular_file(tmp_path / "a", 256 * 2**20)) == 2**20
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()
