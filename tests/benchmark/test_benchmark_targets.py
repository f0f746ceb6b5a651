"""Targets and tables of a benchmark from given rows."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from benchmark_rows import make_row, tokens_row

from marstts.benchmark import machine, report
from marstts.benchmark.plan import Measure
from marstts.benchmark.targets import TARGETS, Target, Variant, check_targets

INT8, FLOAT32 = Variant("70m", "onnx", "int8"), Variant("70m", "onnx", "float32")


def test_targets_are_checked_for_the_variants_they_apply_to_where_figures_were_measured():
    rows = [
        tokens_row(5, 0.070), tokens_row(10, 0.075), tokens_row(60, 0.079), tokens_row(10, 0.020, batch=8),
        tokens_row(2, 0.3), tokens_row(10, 0.19, weights="float32"), tokens_row(10, 0.07, batch=8, weights="float32"),
        make_row(Measure.NAIVE, engine="torch", weights="float32", seconds=10.0, batch=1, rtf=1.5, timed_patches=12),
        make_row(Measure.CONCURRENCY, concurrency=1, first_audible_p50=0.2, first_audible_p95=0.3),
        make_row(Measure.MEMORY, seconds=10.0, peak_megabytes=650.0),
        make_row(Measure.SPEECH, "mini", weights="float32", seconds=10.0, rtf=0.02, load_seconds=0.5),
        make_row(Measure.COLD_START, "mini", weights="float32", failed="out of steam"),
    ]  # fmt: skip
    results = {(one.variant, one.target.name): (round(one.figure, 3), one.is_met) for one in check_targets(rows)}
    assert results == {
        (INT8, "tokens, RTF from 5 to 60 s"): (0.079, True),
        (INT8, "tokens, largest RTF over smallest from 5 to 60 s"): (1.129, True),
        (INT8, "tokens at 10 s, speedup over naive decoding"): (20.0, True),
        (INT8, "first audible sample, concurrency 1, 95th percentile"): (0.3, False),
        (INT8, "peak memory"): (650.0, True),
        (INT8, "throughput of a batch of 8 over one text"): (3.75, False),
        (FLOAT32, "throughput of a batch of 8 over one text"): (2.714, False),
        (Variant("mini", "onnx", "float32"), "text to audio, RTF from 5 to 60 s"): (0.02, True),
    }


def test_a_gpu_has_targets_of_its_own():
    variant = {"engine": "cuda", "weights": "half"}
    rows = [tokens_row(10, 1 / 50, **variant), tokens_row(10, 1 / 1400, batch=64, **variant)]
    found = [(one.target.limit, round(one.figure), one.is_met) for one in check_targets(rows)]
    assert found == [(40, 50, True), (1500, 1400, False)]


def test_a_target_is_an_upper_or_a_lower_bound():
    upper, lower = (Target("", lambda *_: 1.0, 1.0, "", at_least=at_least) for at_least in (False, True))
    assert upper.is_met(1.0) and not upper.is_met(1.1) and lower.is_met(1.0) and not lower.is_met(0.9)
    assert len({(target.name, *target.of.items()) for target in TARGETS}) == len(TARGETS)


def test_the_report_holds_everything_that_was_measured_and_every_failure():
    rows = [
        tokens_row(5, 0.07), tokens_row(10, 0.075), tokens_row(10, 0.02, batch=8),
        make_row(Measure.NAIVE, engine="torch", weights="float32", seconds=10, batch=1, rtf=1.5, timed_patches=12),
        make_row(Measure.SPEECH, seconds=10, rtf=0.2, load_seconds=0.5),
        make_row(Measure.CONCURRENCY, concurrency=4, first_audible_p50=0.2, first_audible_p95=0.3),
        make_row(Measure.MEMORY, seconds=10, peak_megabytes=650.0), make_row(Measure.COLD_START, failed="out of steam"),
    ]  # fmt: skip
    metadata = machine.gather_metadata("marstts benchmark")
    text = report.as_markdown(metadata, rows)
    assert "| 70m, onnx int8 | 0.0700 | 0.0750 | 1,093 | 10.0 | 20.0 |" in text
    assert "| 70m, onnx int8 | 8 | 0.0200 | 50.0 | 3.75 |" in text
    assert "| 70m, onnx int8 | 0.200 | 0.500 |" in text and "| 70m, onnx int8 | 0.200 / 0.300 |" in text
    assert "| model | concurrency 4 |" in text
    assert "| 70m, onnx int8 | 650 |  |  |" in text and "- 70m, onnx int8, cold-start: out of steam" in text
    assert "| peak memory | 70m, onnx int8 | at most 700 MB | 650 MB | met |" in text
    assert "**missed**" in text and metadata["commit"] in text and f"numpy {np.__version__}" in text
    saved = json.loads(report.as_json(metadata, rows))
    assert saved["rows"] == rows and saved["metadata"] == metadata
    assert {"met", "figure", "limit", "target", "model", "engine", "weights"} == set(saved["targets"][0])


@pytest.mark.parametrize(
    "value, text",
    [(None, ""), (0.0, "0"), (math.inf, "inf"), (0.01234, "0.0123"), (1.5, "1.50"), (15.04, "15.0"), (1234.5, "1,234")],
)
def test_numbers_have_three_significant_digits(value, text):
    assert report.format_number(value) == text
