"""Targets for speed, latency and memory, and whether figures meet them.

Upstream: rows of `measures`.  Downstream: `report`.
A target is compared with every variant that it applies to; where its figure was not measured, there is no result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from marstts.benchmark.plan import Measure

Figures = dict[str, Any]

SHORTEST, LONGEST = 5.0, 60.0
"""Range of lengths, in seconds of speech, for targets on RTF."""

REFERENCE = 10.0
"""Length, in seconds of speech, for other targets."""


class Variant(NamedTuple):
    """A model on an engine, with a format of weights."""

    model: str
    engine: str
    weights: str


class MeasuredRows:
    """All rows of a benchmark that were measured, by variant."""

    def __init__(self, rows: Sequence[Figures]) -> None:
        self.rows = [row for row in rows if "failed" not in row]

    @property
    def variants(self) -> list[Variant]:
        """The variants in the order of their first rows, naive decoding excluded."""
        return list(dict.fromkeys(variant_of(row) for row in self.rows if row["measure"] != Measure.NAIVE.value))

    def of(self, variant: Variant, measure: Measure, **values: Any) -> list[Figures]:
        """The rows of one measurement of a variant with these values."""
        return [row for row in self.rows if variant_of(row) == variant and matches(row, measure, **values)]

    def one(self, variant: Variant, measure: Measure, figure: str, **values: Any) -> float | None:
        """A figure of the first row with these values, if there is one."""
        rows = self.of(variant, measure, **values)
        return float(rows[0][figure]) if rows else None

    def naive(self, model: str, seconds: float) -> float | None:
        """RTF of naive decoding of a model, of which there is one variant."""
        rows = [row for row in self.rows if row["model"] == model and matches(row, Measure.NAIVE, seconds=seconds)]
        return float(rows[0]["rtf"]) if rows else None

    def lengths(self, measure: Measure) -> list[float]:
        """Lengths that were measured, in ascending order."""
        return sorted({row["seconds"] for row in self.rows if matches(row, measure)})

    @property
    def reference(self) -> float:
        """The length at which batches or naive decoding were measured."""
        rows = [row for row in self.rows if matches(row, Measure.NAIVE) or row.get("batch", 1) > 1]
        return float(rows[0]["seconds"]) if rows else REFERENCE


def variant_of(row: Figures) -> Variant:
    """The variant that a row belongs to."""
    return Variant(row["model"], row["engine"], row["weights"])


def matches(row: Figures, measure: Measure, **values: Any) -> bool:
    """Whether a row belongs to a measurement and has these values."""
    return row["measure"] == measure.value and all(row.get(name) == value for name, value in values.items())


Figure = Callable[[MeasuredRows, Variant], float | None]


def rtfs(measured: MeasuredRows, variant: Variant, measure: Measure, **values: Any) -> list[float]:
    """RTF at all lengths within the range of targets."""
    rows = measured.of(variant, measure, **values)
    return [row["rtf"] for row in rows if SHORTEST <= row["seconds"] <= LONGEST]


def worst_rtf(measure: Measure, **values: Any) -> Figure:
    """The largest RTF at any length within the range."""
    return lambda measured, variant: max(rtfs(measured, variant, measure, **values), default=None)


def rtf_growth(measured: MeasuredRows, variant: Variant) -> float | None:
    """Largest RTF over smallest, if both the shortest and the longest text were measured."""
    ends = [measured.of(variant, Measure.TOKENS, batch=1, seconds=seconds) for seconds in (SHORTEST, LONGEST)]
    found = rtfs(measured, variant, Measure.TOKENS, batch=1)
    return max(found) / min(found) if all(ends) else None


def speedup_over_naive(measured: MeasuredRows, variant: Variant, seconds: float = REFERENCE) -> float | None:
    """RTF of naive decoding over that of the variant."""
    naive = measured.naive(variant.model, seconds)
    rtf = measured.one(variant, Measure.TOKENS, "rtf", batch=1, seconds=seconds)
    return naive / rtf if naive is not None and rtf is not None else None


def throughput(batch: int) -> Figure:
    """Throughput of a batch over that of a single text."""

    def figure(measured: MeasuredRows, variant: Variant) -> float | None:
        one, many = (measured.one(variant, Measure.TOKENS, "rtf", batch=n, seconds=REFERENCE) for n in (1, batch))
        return one / many if one is not None and many is not None else None

    return figure


def times_real_time(batch: int) -> Figure:
    """Seconds of speech per second of computation, all texts of a batch together."""

    def figure(measured: MeasuredRows, variant: Variant) -> float | None:
        rtf = measured.one(variant, Measure.TOKENS, "rtf", batch=batch, seconds=REFERENCE)
        return None if rtf is None else 1 / rtf

    return figure


def plain_figure(measure: Measure, figure: str, **values: Any) -> Figure:
    """A figure as it was measured."""
    return lambda measured, variant: measured.one(variant, measure, figure, **values)


@dataclass(frozen=True)
class Target:
    """A bound on one figure."""

    name: str
    figure: Figure
    limit: float
    unit: str
    """Empty for ratios."""

    at_least: bool = False
    """Whether larger is better."""

    of: Mapping[str, str] = field(default_factory=dict)
    """Fields of the variants that the target applies to."""

    def applies_to(self, variant: Variant) -> bool:
        """Whether the target applies to a variant."""
        return self.of.items() <= variant._asdict().items()

    def is_met(self, figure: float) -> bool:
        """Whether a figure is within the bound."""
        return figure >= self.limit if self.at_least else figure <= self.limit


INT8 = {"model": "70m", "engine": "onnx", "weights": "int8"}
MINI = {"model": "mini", "engine": "onnx"}
ONNX = {"engine": "onnx"}
GPU = {"model": "70m", "engine": "cuda"}

TOKENS_RTF = worst_rtf(Measure.TOKENS, batch=1)
SPEECH_RTF = worst_rtf(Measure.SPEECH)
FIRST_AUDIBLE = plain_figure(Measure.CONCURRENCY, "first_audible_p95", concurrency=1)
PEAK_MEMORY = plain_figure(Measure.MEMORY, "peak_megabytes", seconds=REFERENCE)
COLD_START = plain_figure(Measure.COLD_START, "first_sample_seconds")

TARGETS = (
    Target("tokens, RTF from 5 to 60 s", TOKENS_RTF, 0.08, "", of=INT8),
    Target("tokens, largest RTF over smallest from 5 to 60 s", rtf_growth, 1.15, "times", of=INT8),
    Target("tokens at 10 s, speedup over naive decoding", speedup_over_naive, 15, "times", at_least=True, of=INT8),
    Target("text to audio, RTF from 5 to 60 s", SPEECH_RTF, 0.22, "", of=INT8),
    Target("first audible sample, concurrency 1, 95th percentile", FIRST_AUDIBLE, 0.25, "s", of=INT8),
    Target("peak memory", PEAK_MEMORY, 700, "MB", of=INT8),
    Target("text to audio, RTF from 5 to 60 s", SPEECH_RTF, 0.03, "", of=MINI),
    Target("first audible sample, concurrency 1, 95th percentile", FIRST_AUDIBLE, 0.08, "s", of=MINI),
    Target("cold start to first sample in a pipe", COLD_START, 1.5, "s", of=MINI),
    Target("peak memory", PEAK_MEMORY, 300, "MB", of=MINI),
    Target("throughput of a batch of 8 over one text", throughput(8), 4, "times", at_least=True, of=ONNX),
    Target("tokens at 10 s, times real time", times_real_time(1), 40, "times", at_least=True, of=GPU),
    Target("tokens in a batch of 64, times real time", times_real_time(64), 1500, "times", at_least=True, of=GPU),
)
"""Targets for a machine of two cores; the last two are for an H200."""


class TargetResult(NamedTuple):
    """A target and the figure of a variant."""

    target: Target
    variant: Variant
    figure: float

    @property
    def is_met(self) -> bool:
        """Whether the figure is within the bound."""
        return self.target.is_met(self.figure)


def check_targets(rows: Sequence[Figures], targets: Sequence[Target] = TARGETS) -> list[TargetResult]:
    """The result of every target for every variant it applies to, where the figure was measured."""
    measured = MeasuredRows(rows)
    figures = [
        (target, variant, target.figure(measured, variant))
        for variant in measured.variants
        for target in targets
        if target.applies_to(variant)
    ]
    return [TargetResult(target, variant, figure) for target, variant, figure in figures if figure is not None]
