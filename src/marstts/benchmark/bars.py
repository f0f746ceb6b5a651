"""What was asked of the speed of this project, and whether the figures meet it.

Upstream: rows of `measures`.  Downstream: `report`.
A bar is looked at for every model, engine and kind of weights that it speaks of, and says nothing where its figures
were not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from marstts.benchmark.plan import Measure

Figures = dict[str, Any]

SHORTEST, LONGEST = 5.0, 60.0
"""Seconds of speech between which bars on RTF hold."""

REFERENCE = 10.0
"""Seconds of speech at which others do."""


class Way(NamedTuple):
    """A model and a way to run it."""

    model: str
    engine: str
    weights: str


class Measured:
    """All rows, by way."""

    def __init__(self, rows: Sequence[Figures]) -> None:
        self.rows = [row for row in rows if "failed" not in row]

    @property
    def ways(self) -> list[Way]:
        """In the order of their first rows; the naive mode is none."""
        rows = [row for row in self.rows if row["measure"] != Measure.NAIVE.value]
        return list(dict.fromkeys(Way(row["model"], row["engine"], row["weights"]) for row in rows))

    def of(self, way: Way, measure: Measure, **wanted: Any) -> list[Figures]:
        """The rows of one measurement with these values."""
        return [
            row
            for row in self.rows
            if Way(row["model"], row["engine"], row["weights"]) == way and has(row, measure, **wanted)
        ]

    def one(self, way: Way, measure: Measure, figure: str, **wanted: Any) -> float | None:
        """A figure of the one row with these values, if there is one."""
        rows = self.of(way, measure, **wanted)
        return float(rows[0][figure]) if rows else None

    def naive(self, model: str, seconds: float) -> float | None:
        """RTF of the naive mode of a model, however else it is run."""
        rows = [row for row in self.rows if row["model"] == model and has(row, Measure.NAIVE, seconds=seconds)]
        return float(rows[0]["rtf"]) if rows else None

    def lengths(self, measure: Measure) -> list[float]:
        """Of the texts that were measured, in ascending order."""
        return sorted({row["seconds"] for row in self.rows if has(row, measure)})

    @property
    def reference(self) -> float:
        """The length at which several texts were measured, or the naive mode."""
        rows = [row for row in self.rows if has(row, Measure.NAIVE) or row.get("batch", 1) > 1]
        return float(rows[0]["seconds"]) if rows else REFERENCE


def has(row: Figures, measure: Measure, **wanted: Any) -> bool:
    return row["measure"] == measure.value and all(row.get(name) == value for name, value in wanted.items())


def rtfs(measured: Measured, way: Way, measure: Measure, **wanted: Any) -> list[float]:
    """At all lengths of which bars on RTF speak."""
    rows = measured.of(way, measure, **wanted)
    return [row["rtf"] for row in rows if SHORTEST <= row["seconds"] <= LONGEST]


def worst_rtf(measure: Measure, **wanted: Any) -> Callable[[Measured, Way], float | None]:
    return lambda measured, way: max(rtfs(measured, way, measure, **wanted), default=None)


def growth(measured: Measured, way: Way) -> float | None:
    """Slowest RTF over quickest, if both the shortest and the longest text were measured."""
    ends = [measured.of(way, Measure.TOKENS, batch=1, seconds=seconds) for seconds in (SHORTEST, LONGEST)]
    found = rtfs(measured, way, Measure.TOKENS, batch=1)
    return max(found) / min(found) if all(ends) else None


def against_naive(measured: Measured, way: Way, seconds: float = REFERENCE) -> float | None:
    """How many times faster than the naive mode."""
    naive = measured.naive(way.model, seconds)
    own = measured.one(way, Measure.TOKENS, "rtf", batch=1, seconds=seconds)
    return naive / own if naive is not None and own is not None else None


def throughput(batch: int) -> Callable[[Measured, Way], float | None]:
    """How many times the throughput of a single text."""

    def figure(measured: Measured, way: Way) -> float | None:
        one, many = (measured.one(way, Measure.TOKENS, "rtf", batch=n, seconds=REFERENCE) for n in (1, batch))
        return one / many if one is not None and many is not None else None

    return figure


def times_real_time(batch: int) -> Callable[[Measured, Way], float | None]:
    def figure(measured: Measured, way: Way) -> float | None:
        rtf = measured.one(way, Measure.TOKENS, "rtf", batch=batch, seconds=REFERENCE)
        return None if rtf is None else 1 / rtf

    return figure


def plain(measure: Measure, figure: str, **wanted: Any) -> Callable[[Measured, Way], float | None]:
    return lambda measured, way: measured.one(way, measure, figure, **wanted)


@dataclass(frozen=True)
class Bar:
    """One thing that was asked for."""

    name: str
    figure: Callable[[Measured, Way], float | None]
    limit: float
    unit: str
    """"" for ratios."""

    at_least: bool = False
    """Whether larger is better."""

    of: Mapping[str, str] = field(default_factory=dict)
    """Of which ways it speaks: those with these values."""

    def speaks_of(self, way: Way) -> bool:
        return self.of.items() <= way._asdict().items()

    def is_met(self, figure: float) -> bool:
        return figure >= self.limit if self.at_least else figure <= self.limit


INT8 = {"model": "70m", "engine": "onnx", "weights": "int8"}
MINI = {"model": "mini", "engine": "onnx"}
ONNX = {"engine": "onnx"}
GPU = {"model": "70m", "engine": "cuda"}

TOKENS_RTF = worst_rtf(Measure.TOKENS, batch=1)
SPEECH_RTF = worst_rtf(Measure.SPEECH)
FIRST_AUDIBLE = plain(Measure.CALLERS, "first_audible_p95", callers=1)
PEAK_MEMORY = plain(Measure.MEMORY, "peak_megabytes", seconds=REFERENCE)
START = plain(Measure.START, "first_sample_seconds")

BARS = (
    Bar("tokens, RTF from 5 to 60 s", TOKENS_RTF, 0.08, "", of=INT8),
    Bar("tokens, slowest RTF over quickest from 5 to 60 s", growth, 1.15, "times", of=INT8),
    Bar("tokens at 10 s, quicker than the naive mode", against_naive, 15, "times", at_least=True, of=INT8),
    Bar("text to audio, RTF from 5 to 60 s", SPEECH_RTF, 0.22, "", of=INT8),
    Bar("first audible sample, one caller, 95 % of requests", FIRST_AUDIBLE, 0.25, "s", of=INT8),
    Bar("peak memory", PEAK_MEMORY, 700, "MB", of=INT8),
    Bar("text to audio, RTF from 5 to 60 s", SPEECH_RTF, 0.03, "", of=MINI),
    Bar("first audible sample, one caller, 95 % of requests", FIRST_AUDIBLE, 0.08, "s", of=MINI),
    Bar("process start to first sample in a pipe", START, 1.5, "s", of=MINI),
    Bar("peak memory", PEAK_MEMORY, 300, "MB", of=MINI),
    Bar("8 texts at once, throughput against one", throughput(8), 4, "times", at_least=True, of=ONNX),
    Bar("tokens at 10 s against real time", times_real_time(1), 40, "times", at_least=True, of=GPU),
    Bar("64 texts at once against real time", times_real_time(64), 1500, "times", at_least=True, of=GPU),
)
"""For a machine of two cores, but for the last two, which are for an H200."""


class Verdict(NamedTuple):
    """A bar beside its figure."""

    bar: Bar
    way: Way
    figure: float

    @property
    def is_met(self) -> bool:
        return self.bar.is_met(self.figure)


def judge(rows: Sequence[Figures], bars: Sequence[Bar] = BARS) -> list[Verdict]:
    """Every bar beside every figure it speaks of."""
    measured = Measured(rows)
    looked_at = [(bar, way, bar.figure(measured, way)) for way in measured.ways for bar in bars if bar.speaks_of(way)]
    return [Verdict(bar, way, figure) for bar, way, figure in looked_at if figure is not None]
