"""JSON Lines are read with all complaints at once, and appended to so that a kill costs one line at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import Field

from marstts.errors import DataError, VoiceError
from marstts.io.config import Config
from marstts.io.jsonl import (
    Torn,
    append_rows,
    dump_row,
    open_appender,
    read_rows,
    scan_rows,
    write_rows,
)


class Item(Config):
    id: str
    seconds: float = Field(gt=0.0)
    style: str | None = None


ITEMS = [Item(id="a", seconds=1.5), Item(id="ü\u2028", seconds=2.0, style="loud\nquiet")]


def lines(path, *texts):
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def test_rows_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "new" / "items.jsonl"
    write_rows(path, ITEMS)
    assert read_rows(Item, path) == ITEMS
    append_rows(path, ITEMS[:1])
    assert read_rows(Item, path) == [*ITEMS, ITEMS[0]]
    assert len(path.read_bytes().split(b"\n")) == 4


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\r\n')
    assert read_rows(dict[str, int], path) == [{"a": 1}, {"a": 2}]


def test_rows_may_be_dataclasses_or_mappings(tmp_path):
    @dataclass(frozen=True)
    class Plain:
        id: str
        hertz: tuple[float, ...]

    path = tmp_path / "rows.jsonl"
    write_rows(path, [Plain("a", (1.0, 2.5))])
    assert read_rows(Plain, path) == [Plain("a", (1.0, 2.5))]
    write_rows(path, [{"b": [1, None], "a": "x"}])
    assert path.read_text() == '{"b": [1, null], "a": "x"}\n'
    assert read_rows(dict[str, Any], path) == [{"b": [1, None], "a": "x"}]


def test_every_complaint_is_reported_with_its_line(tmp_path):
    path = lines(
        tmp_path / "items.jsonl",
        '{"id": "a", "seconds": 1}',
        '{"id": "b", "seconds": -1, "color": 2}',
        "",
        "[1]",
        '{"id": "c"',
        '{"seconds": 2}',
    )
    with pytest.raises(DataError) as caught:
        read_rows(Item, path)
    error_text = str(caught.value)
    assert error_text.startswith(
        f"{path}:2: seconds: input should be greater than 0; color: extra inputs are not permitted"
    )
    assert "line 4: input should be" in error_text
    assert (
        "line 5: expected one JSON object per line, but EOF" in error_text or "line 5: expected one JSON" in error_text
    )
    assert "line 6: id: is missing" in error_text and "\n" not in error_text


def test_complaints_are_bounded(tmp_path):
    path = lines(tmp_path / "items.jsonl", *["{}"] * 500)
    with pytest.raises(VoiceError, match=r"line 10: .*; and 490 more$") as caught:
        read_rows(Item, path, kind=VoiceError)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": "a", "seconds": ' + b"1" * 5000 + b"}",
        b'{"id": "\\ud800", "seconds": 1}',
        b"[" * 100_000,
        b"\x00",
    ],
)
def test_lines_beyond_the_bounds_are_refused_and_those_after_them_are_read(tmp_path, line):
    path = tmp_path / "items.jsonl"
    path.write_bytes(line + b"\n" + dump_row(ITEMS[0]))
    with pytest.raises(DataError) as caught:
        read_rows(Item, path)
    assert str(caught.value).startswith(f"{path}:1: ") and len(str(caught.value)) < 500
    bad, good = scan_rows(Item, path)
    assert bad.row is None and good.row == ITEMS[0] and good.number == 2 and good.first_byte == len(line) + 1


def test_strings_that_look_like_numbers_beyond_the_bounds_are_read(tmp_path):
    name = "NaN Infinity e999 " + "1" * 60 + "[[[{{{ " * 20
    path = lines(tmp_path / "items.jsonl", f'{{"id": "{name}", "seconds": 1}}')
    assert read_rows(Item, path)[0].id == name


def test_scanned_lines_have_their_offsets(tmp_path):
    path = lines(tmp_path / "items.jsonl", '{"id": "ü", "seconds": 1}', "", '{"id": "b", "seconds": 1}', "no")
    content = path.read_bytes()
    found = list(scan_rows(Item, path))
    assert [line.number for line in found] == [1, 3, 4]
    assert [content[line.first_byte : line.last_byte] for line in found] == [
        content.splitlines(keepends=True)[n] for n in (0, 2, 3)
    ]


def test_rows_are_unique_where_asked(tmp_path):
    path = lines(tmp_path / "i.jsonl", *(f'{{"id": "{name}", "seconds": {s}}}' for name, s in ("a1", "b1", "a1", "a2")))
    with pytest.raises(DataError, match=r"i.jsonl:3: id 'a' was used before on line 1.*; line 4: id 'a'"):
        read_rows(Item, path, unique=["id"])
    with pytest.raises(DataError, match=r":3: id 'a' and seconds 1.0 was used before on line 1"):
        read_rows(Item, path, unique=["id", "seconds"])
    with pytest.raises(DataError, match=r"i.jsonl:2: id 'a' was used before"):
        write_rows(path, [ITEMS[0], ITEMS[0]], unique=["id"])
    assert len(read_rows(Item, path)) == 4  # the file is as it was


def test_rows_are_finished_by_their_reader(tmp_path):
    path = tmp_path / "items.jsonl"
    write_rows(path, ITEMS)

    def finish(item: Item) -> Item:
        if item.style is not None:
            raise DataError("styles are not allowed here")
        return item.model_copy(update={"style": "plain"})

    with pytest.raises(DataError, match=r"items.jsonl:2: styles are not allowed here$"):
        read_rows(Item, path, finish=finish)
    write_rows(path, ITEMS[:1])
    assert read_rows(Item, path, finish=finish)[0].style == "plain"


def test_a_last_line_without_its_end_is_read_or_dropped(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_bytes(dump_row(ITEMS[0]) + dump_row(ITEMS[1])[:-1])
    assert read_rows(Item, path) == ITEMS
    assert read_rows(Item, path, torn=Torn.DROP) == ITEMS[:1]


def test_a_torn_line_is_dropped_and_then_cut_wherever_it_was_torn(tmp_path):
    path = tmp_path / "items.jsonl"
    whole, last = dump_row(ITEMS[0]), dump_row(ITEMS[1])
    for length in range(len(last)):  # inside letters, too
        path.write_bytes(whole + last[:length])
        assert read_rows(Item, path, torn=Torn.DROP) == ITEMS[:1]
        append_rows(path, [ITEMS[1]])
        assert path.read_bytes() == whole + last


def test_a_long_torn_line_is_cut(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_bytes(dump_row(ITEMS[0]) + b"x" * 200_000)
    append_rows(path, [])
    assert path.read_bytes() == dump_row(ITEMS[0])
    path.write_bytes(b"x" * 200_000)
    append_rows(path, [])
    assert path.read_bytes() == b""


def test_appended_rows_are_there_at_once(tmp_path):
    path = tmp_path / "items.jsonl"
    with open_appender(path) as append:
        append(ITEMS[0])
        assert read_rows(Item, path) == ITEMS[:1]
        append(ITEMS[1])
    assert read_rows(Item, path) == ITEMS


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "items.jsonl"
    write_rows(path, ITEMS)
    with pytest.raises(DataError, match="cannot be written as JSON"):
        write_rows(path, [{"a": 1}, {"a": float("nan")}])
    with pytest.raises(DataError, match="cannot be written as JSON"):
        append_rows(path, [{"a": "\ud800"}])
    assert read_rows(Item, path) == ITEMS


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(VoiceError, match="no such file"):
        read_rows(Item, tmp_path / "none.jsonl", kind=VoiceError)
    with pytest.raises(DataError, match="this is a folder"):
        read_rows(Item, tmp_path)
    with pytest.raises(DataError, match="cannot be written: is a directory"):
        append_rows(tmp_path, ITEMS)
