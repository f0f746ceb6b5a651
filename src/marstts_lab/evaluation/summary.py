"""Summaries of systems: every column's score with its interval, overall and by style, and the distance to the best.

Upstream: `metrics.scores.TakeScore`, `columns`.  Downstream: `report`.

The objective columns are those of Table I of MARS6 (arXiv:2501.05787) and more. Differences between systems are
bootstrapped over the same sentences. The ground truth and its resynthesis are upper bounds and are not ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marstts.errors import DataError
from marstts.io.reading import printable_name
from marstts_lab.evaluation.columns import Better, Metric, columns_of
from marstts_lab.evaluation.score import Provenance, read_provenances
from marstts_lab.evaluation.systems import CODEC_RESYNTHESIS, GROUND_TRUTH, list_names
from marstts_lab.metrics.intervals import Interval, bootstrap_difference
from marstts_lab.metrics.length import LengthStatus
from marstts_lab.metrics.scores import TakeScore, read_scores

TOPLINES = (GROUND_TRUTH, CODEC_RESYNTHESIS)
"""Systems that are upper bounds and not ranked."""

LENGTH_FAILURES = (
    LengthStatus.TOO_LONG,
    LengthStatus.TOO_SHORT,
    LengthStatus.EMPTY,
    LengthStatus.SILENT,
    LengthStatus.MISSING,
)


@dataclass(frozen=True)
class Summary:
    """One row of the tables."""

    system: str
    takes: int
    scores: Mapping[str, Interval | None]
    by_style: Mapping[str, Mapping[str, Interval | None]]
    differences: Mapping[str, Interval]
    """To the best ranked system of each column; that one has none."""

    length_statuses: Mapping[LengthStatus, int]
    sample_rates: Mapping[int, int]
    """Takes by their rate in Hz."""

    failures: Sequence[str]
    """Every take that is not of plausible length, in words."""

    warnings: Sequence[str]
    """Warnings about the takes as a whole, in sentences."""

    def is_best(self, key: str) -> bool:
        """Whether this is the best ranked system of a column."""
        return self.system not in TOPLINES and self.scores[key] is not None and key not in self.differences


def summarize(scores: Sequence[TakeScore], warnings: Mapping[str, Sequence[str]] | None = None) -> list[Summary]:
    """One summary per system, in order of appearance; `warnings` about systems' takes as a whole by system."""
    by_system: dict[str, list[TakeScore]] = {}
    for score in scores:
        by_system.setdefault(score.system, []).append(score)
    columns = columns_of(scores)
    differences = differences_from_best(by_system, columns)
    return [
        summarize_system(system, rows, columns, differences[system], (warnings or {}).get(system, ()))
        for system, rows in by_system.items()
    ]


def summarize_system(
    system: str,
    rows: Sequence[TakeScore],
    columns: Sequence[Metric],
    differences: Mapping[str, Interval],
    warnings: Sequence[str],
) -> Summary:
    """Summary of one system; `rows` are all its takes."""
    styles = sorted({row.style for row in rows})
    rates = dict(Counter(row.sample_rate for row in rows if row.sample_rate is not None))
    return Summary(
        system=system,
        takes=len(rows),
        scores={column.key: column.evaluate(rows) for column in columns},
        by_style={
            style: {c.key: c.evaluate([row for row in rows if row.style == style]) for c in columns} for style in styles
        },
        differences=differences,
        length_statuses=dict(Counter(row.length_status for row in rows)),
        sample_rates=rates,
        failures=[describe_failure(row) for row in rows if row.length_status in LENGTH_FAILURES],
        warnings=[*warnings, *warn_about_rates(rows, rates)],
    )


def differences_from_best(
    by_system: Mapping[str, Sequence[TakeScore]], columns: Sequence[Metric]
) -> dict[str, dict[str, Interval]]:
    """Difference of each system from the best ranked one in each column, on the trials that both have."""
    found: dict[str, dict[str, Interval]] = {system: {} for system in by_system}
    for column in columns:
        if column.better is Better.NEITHER:
            continue
        values = {system: column.evaluate(rows) for system, rows in by_system.items() if system not in TOPLINES}
        known = {system: interval.value for system, interval in values.items() if interval is not None}
        if not known:
            continue
        best = (min if column.better is Better.LOWER else max)(known, key=lambda system: known[system])
        for system in known.keys() - {best}:
            difference = compare(column, by_system[system], by_system[best])
            if difference is not None:
                found[system][column.key] = difference
    return found


def compare(column: Metric, rows: Sequence[TakeScore], others: Sequence[TakeScore]) -> Interval | None:
    """Difference of the column's score between `rows` and `others`, on the trials that both have."""
    by_trial = {row.trial: row for row in others}
    pairs = [(row, by_trial[row.trial]) for row in rows if row.trial in by_trial]
    first, second = column.matrix([row for row, _ in pairs]), column.matrix([other for _, other in pairs])
    return None if first is None or second is None else bootstrap_difference(first, second, column.statistic)


def within_noise(difference: Interval) -> bool:
    """Whether the interval of a difference contains 0."""
    return difference.low <= 0.0 <= difference.high


def describe_failure(row: TakeScore) -> str:
    """A take of implausible length in a line, e.g. `s12-007: too long, 8.4 s for 3.1 s`."""
    expected = "" if row.ground_truth_seconds is None else f" for {row.ground_truth_seconds:.1f} s"
    return f"{row.trial}: {row.length_status.value}, {row.error or f'{row.seconds:.1f} s{expected}'}"


def warn_about_rates(rows: Sequence[TakeScore], rates: Mapping[int, int]) -> list[str]:
    """A sentence if takes have different sample rates: something other than the model differs between them."""
    if len(rates) < 2:
        return []
    usual = max(rates, key=lambda rate: rates[rate])
    other = [f"{row.trial} ({row.sample_rate} Hz)" for row in rows if row.sample_rate not in (None, usual)]
    return [f"{len(other)} takes have another sample rate than the {usual} Hz of the others: {list_names(other)}"]


# Comparison of systems: the scores of several output folders of `marstts evaluate` as one set.
# Only systems with the same trials and the same versions of the same metrics are compared; DataError names what
# differs.


@dataclass(frozen=True)
class ScoredSystems:
    """Scores of several folders, every system under a unique name."""

    scores: Sequence[TakeScore]
    warnings: Mapping[str, Sequence[str]]
    testset: str
    """Digest of the trials."""

    metrics: Mapping[str, str]

    models: Mapping[str, str] = field(default_factory=dict)
    """`NAME@REVISION` of the model of each system that is of one."""


def gather_scores(folders: Sequence[Path]) -> ScoredSystems:
    """All systems scored into the folders; DataError where there is none, or where they are not comparable.

    A system that is the same in two folders (such as the ground truth) is used once; two versions get different names.
    """
    scores: list[TakeScore] = []
    provenances: dict[str, Provenance] = {}
    for folder in folders:
        found, of_folder = read_scores(folder), read_provenances(folder)
        if not found:
            raise DataError(
                f"{printable_name(folder)}: expected an output folder of `marstts evaluate` with scores.jsonl"
            )
        for system in dict.fromkeys(score.system for score in found):
            provenance = of_folder.get(system)
            if provenance is None:
                raise DataError(
                    f"{printable_name(folder)}: {system} has scores, but takes/{system}/provenance.json is missing; "
                    "evaluate it again into a new folder"
                )
            if provenances.get(system) == provenance:
                continue
            name = system if system not in provenances else f"{system}, {folder.resolve().name}"
            provenances[name] = provenance
            scores += [s.model_copy(update={"system": name}) for s in found if s.system == system]
    refuse_incomparable(provenances)
    first = next(iter(provenances.values()))
    warnings = {name: provenance.warnings for name, provenance in provenances.items()}
    models = {name: provenance.model for name, provenance in provenances.items() if provenance.model}
    return ScoredSystems(scores, warnings, first.testset, first.metrics, models)


def refuse_incomparable(provenances: Mapping[str, Provenance]) -> None:
    """Raise DataError where two systems have different trials or metrics."""
    (first_name, first), *others = provenances.items()
    for name, provenance in others:
        if provenance.testset != first.testset:
            raise DataError(f"{first_name} and {name} have different test sets, so their scores are not comparable")
        if provenance.metrics != first.metrics:
            changed = sorted(
                key
                for key in first.metrics.keys() | provenance.metrics.keys()
                if first.metrics.get(key) != provenance.metrics.get(key)
            )
            raise DataError(
                f"{first_name} and {name} have different metrics ({', '.join(changed)}), so their scores are not "
                "comparable; evaluate one of them again"
            )
