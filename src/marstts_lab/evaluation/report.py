"""Reports: results.md with all tables, results.json with the same figures, and a summary for the terminal.

Upstream: `metrics.scores.TakeScore` lines, `summary`.  Downstream: readers, `docs/results.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from marstts.errors import DataError, require
from marstts.io.files import atomic_path, write_file
from marstts_lab.evaluation.columns import GROUPS, Better, Metric, columns_of
from marstts_lab.evaluation.summary import TOPLINES, Summary, summarize, within_noise
from marstts_lab.metrics.intervals import RESAMPLES, Interval
from marstts_lab.metrics.length import LengthStatus
from marstts_lab.metrics.scores import TakeScore

TERMINAL_COLUMNS = 80
NAME_COLUMNS = 26
SUMMARY_COLUMNS = (
    "wer",
    "cer",
    "similarity",
    "distillmos",
    "utmos",
    "dnsmos_ovrl",
    "failure_rate",
    "real_time_factor",
)
"""Columns of the terminal's summary, by the beginning of their keys; as many as fit, in this order."""


def write_report(
    scores: Sequence[TakeScore],
    output: Path,
    metadata: Mapping[str, Any],
    warnings: Mapping[str, Sequence[str]] | None = None,
    stem: str = "results",
) -> str:
    """Write `stem`.json and `stem`.md, both with the `metadata` (versions, command, test set); the Markdown."""
    summaries, columns = summarize(scores, warnings), columns_of(scores)
    results = {"metadata": dict(metadata), "systems": [as_json(summary) for summary in summaries]}
    write_file(output / f"{stem}.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    markdown = as_markdown(summaries, columns, metadata)
    write_file(output / f"{stem}.md", markdown)
    return markdown


def as_json(summary: Summary) -> dict[str, Any]:
    """A summary as JSON values."""
    statuses = {status.value: count for status, count in summary.length_statuses.items()}
    return {**asdict(summary), "length_statuses": statuses}


def format_summary(scores: Sequence[TakeScore], width: int = TERMINAL_COLUMNS) -> str:
    """A plain-text table without intervals that fits a terminal of `width` columns."""
    summaries, columns = summarize(scores), summary_columns(columns_of(scores))
    titles = [short_title(column) for column in columns]
    name_width = min(NAME_COLUMNS, max(len(summary.system) for summary in summaries))
    widths = [max(len(title), 6) for title in titles]
    while widths and name_width + sum(2 + one for one in widths) > width:
        widths.pop()
    lines = [_text_row("system", titles, name_width, widths)]
    for summary in summaries:
        cells = [_value(summary.scores[column.key], column.digits) for column in columns]
        lines.append(_text_row(summary.system, cells, name_width, widths))
    return "\n".join(lines)


def summary_columns(columns: Sequence[Metric]) -> list[Metric]:
    """The columns of the terminal's summary, in their order; of several speaker encoders, the first one."""
    found = [next((column for column in columns if column.key.startswith(key)), None) for key in SUMMARY_COLUMNS]
    return [column for column in found if column is not None]


def short_title(column: Metric) -> str:
    """A column's title in at most 14 characters, with its direction."""
    title = column.title.partition(",")[0].replace("DNSMOS OVRL", "DNSMOS").replace("failure rate", "fail")
    return f"{title[:12]} {column.better.value}"


def _value(interval: Interval | None, digits: int) -> str:
    return "-" if interval is None else f"{interval.value:.{digits}f}"


def _text_row(name: str, cells: Sequence[str], name_width: int, widths: Sequence[int]) -> str:
    shown = name if len(name) <= name_width else name[: name_width - 1] + "…"
    return shown.ljust(name_width) + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=False))


# Markdown tables of a report: the main table, one per group of columns, and one per column by style.

FOOTNOTES = (
    "In brackets: 95 % bootstrap intervals over sentences (percentile method, {resamples} resamples). **Bold**: the "
    "best of the column; ≈: its difference from the best is within the noise (paired bootstrap). Ground truth and "
    "codec resynthesis are upper bounds and are not ranked.",
    "WER, CER: text and transcript pass one normalizer (lower case, letters and inner apostrophes only, numbers in "
    "words). Repetition rate: takes in whose transcript a run of up to four words occurs twice in a row and not so in "
    "the text; truncation rate: takes whose transcript lacks the last fifth of the text.",
    "Spoof EER: equal error rate, in percent, of detecting takes as spoofs by their similarity to the reference "
    "(pairs of reference and take 0, of reference and ground truth 1): how often a take passes as its speaker. Higher "
    "is better, 50 is the most. SIM: cosine to the reference.",
    "Failure rate: takes without speech, of more than twice the expected length, with a repetition or a truncation. "
    "Duration ratio: length over the ground truth's.",
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
        ["## Notes", *(f"- {note.format(resamples=RESAMPLES)}" for note in FOOTNOTES)],
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
        ["system", "takes", "too long / too short / none"],
        [[s.system, str(s.takes), format_statuses(s.length_statuses)] for s in summaries],
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


# Figure 2 of MARS6 (arXiv:2501.05787): word error rate by the style of the reference, a bar per system.
# Drawn by matplotlib, as PNG and SVG, without a display.

STEM = "wer_by_style"


def draw_wer_by_style(summaries: Sequence[Summary], output: Path, column: str = "wer") -> list[Path]:
    """Write wer_by_style.png and .svg into `output`; DataError where no system was scored by a recognizer.

    Bars are error rates, whiskers their 95 % intervals; styles are sorted by the first system's error rate.
    """
    scored = [summary for summary in summaries if summary.scores.get(column) is not None]
    if not scored:
        raise DataError("there is no word error rate to draw: no system was scored by a recognizer")
    matplotlib = require("matplotlib", "eval")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = STEM  # makes the names inside the file deterministic
    figure = draw(scored, column)
    paths = [output / f"{STEM}{suffix}" for suffix in (".png", ".svg")]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with atomic_path(path) as temporary:
            figure.savefig(temporary, dpi=150, bbox_inches="tight", metadata=metadata)
    require("matplotlib.pyplot", "eval").close(figure)
    return paths


def draw(summaries: Sequence[Summary], column: str) -> Any:
    """The matplotlib figure."""
    pyplot = require("matplotlib.pyplot", "eval")
    styles = order_styles(summaries, column)
    positions = np.arange(len(styles), dtype=float)
    width = 0.8 / len(summaries)
    figure, axes = pyplot.subplots(figsize=(max(6.0, 1.3 * len(styles)), 3.6))
    for number, summary in enumerate(summaries):
        intervals = [summary.by_style.get(style, {}).get(column) for style in styles]
        values = [np.nan if interval is None else interval.value for interval in intervals]
        whiskers = [
            (0.0, 0.0) if i is None else (max(0.0, i.value - i.low), max(0.0, i.high - i.value)) for i in intervals
        ]
        shift = (number - (len(summaries) - 1) / 2) * width
        axes.bar(positions + shift, values, width, label=summary.system, yerr=np.array(whiskers).T, capsize=2)
    axes.set_xticks(positions, styles)
    axes.set_ylabel("word error rate")
    axes.set_xlabel("style of the reference")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.22))
    return figure


def order_styles(summaries: Sequence[Summary], column: str) -> list[str]:
    """All styles, by the error rate of the first system."""
    styles = dict.fromkeys(style for summary in summaries for style in summary.by_style)

    def difficulty(style: str) -> float:
        interval = summaries[0].by_style.get(style, {}).get(column)
        return np.inf if interval is None else interval.value

    return sorted(styles, key=lambda style: (difficulty(style), style))
