"""The record of a folder of derived files, and the refusal to resume with another one."""

from __future__ import annotations

from typing import Any

import pytest

from marstts.errors import CheckpointError, ConfigError, DataError
from marstts.io.config import Config
from marstts.io.provenance import (
    PROVENANCE_FILE,
    begin_or_resume,
    extend_provenance,
    read_provenance,
    write_provenance,
)


class Mined(Config):
    model: str
    digest: str
    settings: dict[str, Any]


COMPARE = {"digest": "model", "settings": "configuration"}
RECORD = Mined(model="mini", digest="abc", settings={"seed": 1, "sampling": {"top_p": 0.5}})


def test_a_record_comes_back_as_it_was_written(tmp_path):
    write_provenance(tmp_path / "new", RECORD)
    assert read_provenance(Mined, tmp_path / "new", "marstts mine") == RECORD
    assert (tmp_path / "new" / PROVENANCE_FILE).read_text().startswith('{\n  "model": "mini"')


def test_work_begins_once_and_resumes_with_equal_records(tmp_path):
    assert begin_or_resume(tmp_path, RECORD, COMPARE) == RECORD
    moved = RECORD.model_copy(update={"model": "/elsewhere/mini"})  # a field that is not compared
    assert begin_or_resume(tmp_path, moved, COMPARE) == RECORD
    assert read_provenance(Mined, tmp_path, "marstts mine") == RECORD


def test_resuming_with_another_record_names_the_difference(tmp_path):
    begin_or_resume(tmp_path, RECORD, COMPARE)
    other = Mined(model="mini", digest="abd", settings={"seed": 1, "sampling": {"top_p": 0.6}, "hours": 2})
    with pytest.raises(DataError) as caught:
        begin_or_resume(tmp_path, other, COMPARE, DataError)
    assert str(caught.value) == (
        f"{tmp_path}: was started with another model and another configuration (digest: abc before, abd now, "
        "settings.sampling.top_p: 0.5 before, 0.6 now, settings.hours: None before, 2 now), and results of both must "
        "not mix; choose a new folder"
    )
    assert read_provenance(Mined, tmp_path, "marstts mine") == RECORD


def test_long_differences_are_bounded(tmp_path):
    begin_or_resume(tmp_path, RECORD, COMPARE)
    other = RECORD.model_copy(update={"settings": {f"key{n}": "x" * 500 for n in range(50)}})
    with pytest.raises(ConfigError, match="and 48 more") as caught:
        begin_or_resume(tmp_path, other, COMPARE)
    assert len(str(caught.value)) < 1000


def test_a_record_may_grow_but_not_change(tmp_path):
    assert extend_provenance(tmp_path, {"mos": "utmos"}) == {"mos": "utmos"}
    assert extend_provenance(tmp_path, {"words": "whisper"}) == {"mos": "utmos", "words": "whisper"}
    assert extend_provenance(tmp_path, {"words": "whisper"}) == {"mos": "utmos", "words": "whisper"}
    with pytest.raises(ConfigError, match=r"another mos .mos: utmos before, dnsmos now"):
        extend_provenance(tmp_path, {"mos": "dnsmos"})


def test_a_folder_without_a_record_is_refused_by_readers(tmp_path):
    with pytest.raises(CheckpointError, match="expected a folder that `marstts mine` wrote"):
        read_provenance(Mined, tmp_path, "marstts mine", CheckpointError)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"model": 1}', b'{"x": ' + b"[" * 9999])
def test_a_corrupt_record_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / PROVENANCE_FILE).write_bytes(content)
    for attempt in (
        lambda: read_provenance(Mined, tmp_path, "marstts mine"),
        lambda: begin_or_resume(tmp_path, RECORD, COMPARE),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert (tmp_path / PROVENANCE_FILE).read_bytes() == content
