"""Reports: results.md with all tables, results.json with the same figures, and a summary for the terminal.

Upstream: `metrics.scores.TakeScore` lines, `summary`, `tables`.  Downstream: readers, `docs/results.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from marstts.evaluation.columns import Metric, columns_of
from marstts.evaluation.summary import TOPLINES, Summary, compare, summarize, within_noise
from marstts.evaluation.tables import as_markdown, markdown_table
from marstts.io.files import write_file
from marstts.metrics.intervals import Interval
from marstts.metrics.scores import TakeScore

__all__ = ["TOPLINES", "compare", "format_summary", "markdown_table", "summarize", "within_noise", "write_report"]

TERMINAL_COLUMNS = 80
NAME_COLUMNS = 26
SUMMARY_COLUMNS = (
    "wer",
    "cer",
    "similarity",
    "distillmos",
    "utmos",
    "dnsmos_ovrl",
    "plcmos",
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
