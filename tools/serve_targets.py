"""Targets of the speech server, and whether a report of `serve_bars` meets them.

The worst of several runs counts; of throughput, which is no single caller's experience, the median does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

MAX_GROWTH = 0.05
"""Part of the memory by which a server may grow from the first half of many requests to the second."""

LONGEST_RETRY = 60
"""Largest sane `Retry-After`, in seconds."""


@dataclass(frozen=True)
class Target:
    """One number of a report, and the bound that it must keep."""

    name: str
    bound: float
    measure: Callable[[dict[str, Any]], float | None]
    """Returns the number; None where the report does not have it."""

    is_least: bool = False
    """The bound is the smallest number that meets the target, rather than the largest."""

    def check(self, report: dict[str, Any]) -> dict[str, Any]:
        """Name, bound, number, and whether it was met; None where it was not measured."""
        measured = self.measure(report)
        met = None if measured is None else (measured >= self.bound if self.is_least else measured <= self.bound)
        return {"name": self.name, "bound": self.bound, "measured": measured, "met": met}


def worst(callers: int, field: str) -> Callable[[dict[str, Any]], float | None]:
    """The largest value of a field in the runs with this many callers."""
    return lambda report: max((float(run[field]) for run in runs(report, callers)), default=None)


def runs(report: dict[str, Any], callers: int) -> list[dict[str, Any]]:
    """The runs of a report with this many callers."""
    return [run for run in report.get("server", []) if run["callers"] == callers]


def part_of_engine(report: dict[str, Any]) -> float | None:
    """Median throughput with 24 callers, divided by the best of the engine by itself."""
    engine = [row["realtime_factor"] for row in report.get("engine_by_itself", [])]
    server = [run["realtime_factor"] for run in runs(report, 24)]
    return round(median(server) / max(engine), 3) if engine and server else None


def wrong_refusals(report: dict[str, Any]) -> float | None:
    """Callers among 64 with a status other than 200 and 429, or refused without a sane `Retry-After`."""
    calls = [call for run in runs(report, 64) for call in run["calls"]]
    refused = [call for call in calls if call["status"] != 200]
    wrong = [call for call in refused if call["status"] != 429 or not 1 <= (call["retry_after"] or 0) <= LONGEST_RETRY]
    return float(len(wrong)) if calls else None


def slowest_leaver(report: dict[str, Any]) -> float | None:
    """Seconds until everything of a caller who left was free, waiting or listening."""
    return max((seconds for times in report.get("seconds_until_free", {}).values() for seconds in times), default=None)


def growth(report: dict[str, Any]) -> float | None:
    """Growth of the server's largest memory from the first half of many requests to the second, as a part of it.

    Memory rises and falls, as the allocator returns pages now and then; so its peaks are compared.
    """
    sizes: Sequence[float] = report.get("resident_mebibytes", [])[1:]
    half = len(sizes) // 2
    return round(max(sizes[half:]) / max(sizes[:half]) - 1, 4) if half else None


TARGETS = (
    Target("one caller, first byte, seconds", 0.08, worst(1, "first_audio_p50_seconds")),
    Target("24 callers, first audio p50, seconds", 0.25, worst(24, "first_audio_p50_seconds")),
    Target("24 callers, first audio p95, seconds", 0.5, worst(24, "first_audio_p95_seconds")),
    Target("24 callers, listeners with a dry buffer", 0, worst(24, "listeners_with_dry_buffer")),
    Target("24 callers, part of the engine's throughput", 0.9, part_of_engine, is_least=True),
    Target("64 callers, wrong refusals", 0, wrong_refusals),
    Target("64 callers, listeners with a dry buffer", 0, worst(64, "listeners_with_dry_buffer")),
    Target("a caller who leaves, seconds until all is free", 0.1, slowest_leaver),
    Target("growth of memory over many requests", MAX_GROWTH, growth),
)


def check_targets(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target with what was measured."""
    return [target.check(report) for target in TARGETS]


def print_targets(checked: Sequence[dict[str, Any]]) -> None:
    """One line for each target: met, missed, or not measured."""
    words = {True: "met", False: "MISSED", None: "not measured"}
    for one in checked:
        print(f"{words[one['met']]:12} {one['name']}: {one['measured']} (bound {one['bound']})")
