"""Progress of long commands: a line now and then, with the fraction done and the time left."""

from __future__ import annotations

import logging

import pytest

from marstts_lab.data.workers import Progress, show_duration


def test_progress_is_logged_now_and_then_with_the_time_left(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 1.0, 30.0, 31.0, 60.0])
    progress = Progress(logging.getLogger("marstts.test"), "shards", 4, clock=lambda: next(times))
    with caplog.at_level(logging.INFO, "marstts.test"):
        for _ in range(4):
            progress.advance("2 rejected")
    assert [record.message for record in caplog.records] == [
        "2 of 4 shards (50%), about 30 s left; 2 rejected",
        "4 of 4 shards (100%); 2 rejected",
    ]


def test_an_unknown_total_is_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 20.0])
    progress = Progress(logging.getLogger("marstts.test"), "recordings", None, clock=lambda: next(times))
    with caplog.at_level(logging.INFO, "marstts.test"):
        progress.advance()
    assert caplog.records[0].message == "1 recordings"


def test_durations_are_shown_in_their_largest_unit() -> None:
    assert [show_duration(seconds) for seconds in (3, 119, 600, 9000)] == ["3 s", "2 min", "10 min", "2 h"]
