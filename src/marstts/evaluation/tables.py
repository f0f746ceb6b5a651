"""Markdown tables of a report: the main table, one per group of columns, and one per column by style.

Upstream: `summary.Summary`, `columns`.  Downstream: `report`, `verification`, `metric_sanity`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marstts.evaluation.columns import GROUPS, Better, Metric
from marstts.evaluation.summary import TOPLINES, Summary, within_noise
from marstts.metrics.intervals import RESAMPLES, Interval
from marstts.metrics.length import LengthStatus

FOOTNOTES = (
    "In brackets: 95 % bootstrap intervals over sentences (percentile method, {resamples} resamples). **Bold**: the "
    "best of the column; ≈: its difference from the best is within the noise (paired bootstrap). Ground truth and "
    "codec resynthesis are upper bounds and are not ranked.",
    "WER, CER: text and transcript pass one normalizer (lower case, letters and inner apostrophes only, numbers in "
    "words). Repetition rate: takes in whose transcript a run of up to four words occurs twice in a row and not so in "
    "the text; truncation rate: takes whose transcript lacks the last fifth of the text.",
    "Spoof EER: equal error rate, in percent, of detecting takes as spoofs by their similarity to the reference "
    "(pairs of reference and take 0, of reference and ground truth 1): how often a take passes as its speaker. Higher "
    "is better, 50 is the most. SIM: cosine to the reference. Speaker verification accuracy: fraction of pairs (own "
    "reference, another speaker's reference) in which the take is nearer to its own; 10-way speaker ID accuracy: "
    "probability that its own is the nearest of ten references, nine of them other speakers'; speaker ID accuracy: "
    "fraction of takes whose own reference is the nearest of all speakers'.",
    "Minimal-pair accuracy: fraction of words recognized among up to four near-homophones. Alignment failure rate: "
    "takes whose forced alignment fails or whose worst word scores below -12.",
    "Failure rate: takes without speech, of more than twice the expected length, with a repetition or a truncation. "
    "Duration ratio: length over the ground truth's. Style accuracy: the nearest of the speaker's references has the "
    "trial's style. F0 and energy correlation: with the ground truth's contours, after dynamic time warping.",
    "A take that is empty, silent or missing gets the worst score of every column except duration ratio and RTF, which "
    "leave it out.",
)


def as_markdown(summaries: Sequence[Summary], columns: Sequence[Metric], metadata: Mapping[str, Any]) -> str:
    """All tables, the definitions of their columns, and every failed take by name."""
    main = [column for column in columns if column.in_main_table]
    rest = [column for column in columns if not column.in_main_table]
    styles = sorted({style for summary in summaries for style in summary.by_style})
    failed = [f"- {summary.system}: {line}" for summary in summaries for line in (*summary.warnings, *summary.failures)]
    by_style = [column for column in columns if column.in_main_table or column.per_style]
    parts = [
        ["# Results", *(f"- {name}: {value}" for name, value in metadata.items())],
        score_table(summaries, main),
        *(score_table(summaries, of_group) for of_group in group_columns(rest)),
        length_table(summaries),
        *([["## By style"], *(style_table(summaries, c, styles) for c in by_style)] if len(styles) > 1 else []),
        ["## Notes", *(f"- {note.format(resamples=RESAMPLES)}" for note in FOOTNOTES), *unknown_words_note(summaries)],
        ["Failed takes:", *failed] if failed else ["No take is too long, too short, empty or missing."],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def group_columns(columns: Sequence[Metric]) -> list[list[Metric]]:
    """The columns by their group, without empty groups."""
    groups = [[column for column in columns if column.group == group] for group in GROUPS]
    return [group for group in groups if group]


def score_table(summaries: Sequence[Summary], columns: Sequence[Metric]) -> list[str]:
    """Lines of a table with a row per system."""
    return markdown_table(
        ["system", *(column.heading for column in columns)],
        [[s.system, *(format_cell(s, column) for column in columns)] for s in summaries],
    )


def length_table(summaries: Sequence[Summary]) -> list[str]:
    """Lines of the table of counts."""
    return markdown_table(
        ["system", "takes", "CER relative to codec ↓", "too long / too short / none"],
        [
            [s.system, str(s.takes), format_interval(s.cer_relative_to_codec, 2), format_statuses(s.length_statuses)]
            for s in summaries
        ],
    )


def style_table(summaries: Sequence[Summary], column: Metric, styles: Sequence[str]) -> list[str]:
    """Lines of one column's table, with a column per style."""
    return markdown_table(
        [column.heading, *styles],
        [
            [s.system, *(format_interval(s.by_style.get(style, {}).get(column.key), column.digits) for style in styles)]
            for s in summaries
        ],
    )


def format_cell(summary: Summary, column: Metric) -> str:
    """A score with its interval, marked where it is the best or within the noise of the best."""
    text = format_interval(summary.scores[column.key], column.digits)
    if column.better is Better.NEITHER or summary.system in TOPLINES or summary.scores[column.key] is None:
        return text
    if summary.is_best(column.key):
        return f"**{text}**"
    difference = summary.differences.get(column.key)
    return f"{text} ≈" if difference is not None and within_noise(difference) else text


def unknown_words_note(summaries: Sequence[Summary]) -> list[str]:
    """A line with the number of words that minimal pairs and alignment left out; none where that is 0."""
    counts = [f"{summary.system} {summary.words_unknown}" for summary in summaries if summary.words_unknown]
    return [f"- Words without a known pronunciation, left out of both: {', '.join(counts)}."] if counts else []


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [markdown_row(titles), markdown_row(["---"] * len(titles)), *(markdown_row(row) for row in rows)]


def markdown_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def format_interval(interval: Interval | None, digits: int) -> str:
    """A score with its interval, or a dash."""
    return "-" if interval is None else interval.format(digits)


def format_statuses(statuses: Mapping[LengthStatus, int]) -> str:
    """Counts of takes too long / too short / empty, silent or missing."""
    none = sum(statuses.get(status, 0) for status in (LengthStatus.EMPTY, LengthStatus.SILENT, LengthStatus.MISSING))
    return f"{statuses.get(LengthStatus.TOO_LONG, 0)} / {statuses.get(LengthStatus.TOO_SHORT, 0)} / {none}"
