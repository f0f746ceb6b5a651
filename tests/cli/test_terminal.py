"""Messages of the commands."""

from __future__ import annotations

import pytest

from marstts.cli.terminal import LoggedProgress


def test_a_log_gets_lines_of_progress_that_grow_rarer(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = LoggedProgress("speaking", "sentences", clock=lambda: now)
    task = progress.add_task("speaking", total=2000, completed=200)
    progress.advance(task)
    assert capsys.readouterr().err == ""
    now = 15.0
    progress.update(task, completed=215)
    assert capsys.readouterr().err == "speaking: 215 of 2000 sentences, 30 min left\n"
    for done in range(216, 2001):
        now += 1
        progress.update(task, completed=done)
    lines = capsys.readouterr().err.splitlines()
    assert 15 < len(lines) < 40 and lines[-1].endswith(" min left") and "2000 of 2000" not in lines[-1]


def test_short_work_and_work_of_unknown_size_leave_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 5.0, 100.0])
    progress = LoggedProgress("speaking", "lines", clock=lambda: next(times))
    task = progress.add_task("speaking")
    progress.update(task, completed=1, total=2)
    progress.update(task, completed=2)
    assert capsys.readouterr().err == ""
