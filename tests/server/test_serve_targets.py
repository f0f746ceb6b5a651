"""`tools/serve_targets.py`: every target of the server is met, missed or not measured."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def targets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve_targets", ROOT / "tools" / "serve_targets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # dataclasses look their module up
        patch.setitem(sys.modules, "serve_targets", module)
        spec.loader.exec_module(module)
    return module


def run(callers: int, **changed: Any) -> dict[str, Any]:
    calls = [{"status": 200, "retry_after": None}] * callers
    fields = {"callers": callers, "first_audio_p50_seconds": 0.05, "first_audio_p95_seconds": 0.1,
              "listeners_with_dry_buffer": 0, "realtime_factor": 27.0, "calls": calls}  # fmt: skip
    return fields | changed


def met(targets: ModuleType, **report: Any) -> list[bool | None]:
    return [one["met"] for one in targets.check_targets(report)]


GOOD: dict[str, Any] = {
    "engine_by_itself": [{"realtime_factor": 20.0}, {"realtime_factor": 30.0}],
    "server": [run(1), run(24), run(64)],
    "seconds_until_free": {"listening": [0.01, 0.1], "waiting": [0.02]},
    "resident_mebibytes": [200.0, 380.0, 410.0, 390.0, 420.0],
}


def test_a_report_that_meets_all_targets(targets: ModuleType) -> None:
    assert met(targets, **GOOD) == [True] * 9


def test_what_a_report_does_not_have_is_not_measured(targets: ModuleType) -> None:
    assert met(targets) == [None] * 9


def test_the_worst_of_several_runs_counts(targets: ModuleType) -> None:
    late = run(24, first_audio_p50_seconds=0.3, listeners_with_dry_buffer=1)
    found = met(targets, **GOOD | {"server": [run(1), late, run(24), run(64)]})
    assert found == [True, False, True, False, True, True, True, True, True]


def test_of_throughput_the_median_counts(targets: ModuleType) -> None:
    slow = run(24, realtime_factor=26.9)
    for server, expected in (([slow, run(24), run(24)], True), ([slow, slow, run(24)], False)):
        assert met(targets, **GOOD | {"server": [run(1), *server, run(64)]})[4] is expected


@pytest.mark.parametrize("call", [(503, 5), (429, None), (429, 0), (429, 61)])
def test_refusals_that_a_client_cannot_use_are_counted(targets: ModuleType, call: tuple[int, int | None]) -> None:
    calls = [{"status": call[0], "retry_after": call[1]}, {"status": 429, "retry_after": 15}]
    one = targets.check_targets(GOOD | {"server": [run(64, calls=calls)]})[5]
    assert one["measured"] == 1 and one["met"] is False


def test_slow_leavers_and_growing_memory_miss(targets: ModuleType) -> None:
    slow = {
        "seconds_until_free": {"listening": [0.01], "waiting": [0.11]},
        "resident_mebibytes": [900.0, 90.0, 100.0, 80.0, 106.0],
    }
    assert met(targets, **GOOD | slow)[-2:] == [False, False]
