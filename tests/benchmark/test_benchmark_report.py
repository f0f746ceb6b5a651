"""Tables of a benchmark from given rows."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from benchmark_rows import make_row, tokens_row

from marstts_lab.benchmark import report
from marstts_lab.benchmark.plan import Measure


def test_the_report_holds_everything_that_was_measured_and_every_failure():
    rows = [
        tokens_row(5, 0.07), tokens_row(10, 0.075), tokens_row(10, 0.02, batch=8),
        make_row(Measure.SPEECH, seconds=10, rtf=0.2, load_seconds=0.5),
        make_row(Measure.CONCURRENCY, concurrency=4, first_audible_p50=0.2, first_audible_p95=0.3),
        make_row(Measure.MEMORY, seconds=10, peak_megabytes=650.0), make_row(Measure.COLD_START, failed="out of steam"),
    ]  # fmt: skip
    metadata = report.gather_metadata("marstts benchmark")
    text = report.as_markdown(metadata, rows)
    assert "| model | batch | seconds | rtf | tokens per second | first patch seconds |" in text
    assert "| 70m, onnx int8 | 1 | 5 | 0.0700 | 1,171 | 0.0100 |" in text
    assert "### First audible sample, seconds\n\n| model | concurrency | first audible p50 |" in text
    assert "| 70m, onnx int8 | 10 | 650 |" in text and "- 70m, onnx int8, cold-start: out of steam" in text
    assert metadata["commit"] in text and f"numpy {np.__version__}" in text
    saved = json.loads(report.as_json(metadata, rows))
    assert saved["rows"] == rows and saved["metadata"] == metadata


@pytest.mark.parametrize(
    "value, text",
    [(None, ""), (0.0, "0"), (math.inf, "inf"), (0.01234, "0.0123"), (1.5, "1.50"), (15.04, "15.0"), (1234.5, "1,234")],
)
def test_numbers_have_three_significant_digits(value, text):
    assert report.format_number(value) == text
