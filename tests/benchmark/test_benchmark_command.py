"""The benchmark's command: which cases it plans, and how it reports failures."""

from __future__ import annotations

import json

import pytest
from benchmark_rows import make_case
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.errors import BenchmarkError, ConfigError
from marstts.generation.engine import EngineKind
from marstts_lab.benchmark import runner
from marstts_lab.benchmark.plan import QUICK, BenchmarkScale, Measure
from marstts_lab.cli import benchmark as command

pytestmark = pytest.mark.slow


def test_every_engine_gets_the_measurements_that_apply_to_it(toy_bundle):
    model = runner.BenchmarkedModel("toy", str(toy_bundle))
    engines = [EngineKind.ONNX, EngineKind.TORCH, EngineKind.CUDA]
    cases = runner.plan_cases(model, engines, list(Measure), BenchmarkScale())
    assert [(one.engine, one.weights, one.measure.value) for one in cases] == [
        *(("onnx", "float32", name) for name in ("tokens", "speech", "concurrency", "memory", "cold-start")),
        ("torch", "float32", "tokens"),
        *(("cuda", "float32", name) for name in ("tokens", "speech", "concurrency", "memory")),
    ]
    assert cases[0].lengths == (2, 5, 10, 20, 60) and cases[5].lengths == (10,) and cases[6].batches == (1, 8, 64)
    assert runner.plan_cases(model, [], list(Measure), QUICK) == []
    assert command.choose_engines([], model)[:2] == [EngineKind.ONNX, EngineKind.TORCH]
    assert command.choose_engines([EngineKind.TORCH], model) == [EngineKind.TORCH]


@pytest.mark.end_to_end
@pytest.mark.slow
def test_the_command_measures_in_another_process(toy_bundle, tmp_path):
    words = ["benchmark", "--model", str(toy_bundle), "--quick", "--json", str(tmp_path / "out.json")]
    words += ["--measure", "memory", "--engine", "onnx"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(one["measure"], one["model"], one["weights"]) for one in rows] == [("memory", "toy", "float32")]
    assert all(one["peak_megabytes"] > 20 for one in rows)
    assert "| toy, onnx float32 |" in result.output and "these figures are unreliable" in result.output


def test_a_case_that_fails_becomes_a_row_with_the_reason(toy_bundle):
    with pytest.raises(BenchmarkError, match="out of steam"):
        runner.run_python(["-c", "import sys; print(1); sys.exit('out of steam')"])
    [row] = runner.run_case(make_case(toy_bundle / "missing", Measure.MEMORY))
    reason = row.pop("failed")
    assert row == {"measure": "memory", "model": "toy", "engine": "onnx", "weights": "float32"}
    assert "missing" in reason and "\n" not in reason


@pytest.mark.parametrize(
    "options",
    [["--lengths", "5,x"], ["--lengths", "nan"], ["--concurrency", "0"], ["--engine", "auto"], ["--model", "nope"]],
)
def test_impossible_options_are_refused(options):
    result = CliRunner().invoke(app, ["benchmark", *options])
    assert result.exit_code == 2 and options[1].split(",")[-1] in result.output


def test_lists_of_numbers_are_sorted_and_bounded():
    assert command.choose_scale(True, "5,2.5", "4,1").lengths == (2.5, 5.0)
    assert command.choose_scale(False, None, "4,1,4").concurrency == (1, 4)
    for text in ("2000", "", "1,inf", "-1"):
        with pytest.raises(ConfigError, match="--lengths"):
            command.choose_scale(False, text, None)
