"""The benchmark's command: which cases it plans, and how it reports failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmark_rows import make_case
from typer.testing import CliRunner

from marstts.benchmark import measures, runner
from marstts.benchmark.plan import QUICK, BenchmarkScale, Measure
from marstts.cli import benchmark as command
from marstts.cli.main import app
from marstts.errors import BenchmarkError, ConfigError
from marstts.generation.engine import EngineKind

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_a_model_is_measured_in_int8_too(toy_bundle, tmp_path):
    single, int8 = runner.named_models([str(toy_bundle)], tmp_path)
    assert single == runner.Model("toy", str(toy_bundle)) and int8.label == "toy"
    assert not runner.is_int8(single) and runner.is_int8(int8) and runner.has_graphs(int8)
    assert runner.weights_of(int8, EngineKind.ONNX) == "int8"
    assert runner.named_models([str(toy_bundle)], tmp_path)[1] == int8
    assert runner.named_models([int8.source], tmp_path) == [runner.Model(Path(int8.source).name, int8.source)]
    assert command.choose_engines([], int8) == [EngineKind.ONNX]
    short = make_case(Path(int8.source), Measure.TOKENS, lengths=(0.3,), batches=(1,))
    assert len(measures.measure(short)) == 1


def test_every_engine_gets_the_measurements_that_apply_to_it(toy_bundle):
    model = runner.Model("toy", str(toy_bundle))
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


def test_baselines_are_measured_at_one_length(toy_bundle, tmp_path):
    single, int8 = runner.named_models([str(toy_bundle)], tmp_path)
    engines = [EngineKind.ONNX, EngineKind.TORCH, EngineKind.CUDA]
    baseline = single._replace(is_baseline=True)
    measures = [Measure.TOKENS, Measure.CONCURRENCY]
    cases = runner.plan_cases(baseline, engines, measures, BenchmarkScale())
    assert [(one.engine, one.measure.value, one.lengths[1:], one.batches) for one in cases] == [
        ("onnx", "tokens", (), (1,)), ("torch", "tokens", (), (1,)),
        ("cuda", "tokens", (5, 10, 20, 60), (1, 8, 64)), ("cuda", "concurrency", (5, 10, 20, 60), (1, 8, 64)),
    ]  # fmt: skip
    cases = runner.plan_cases(int8, [EngineKind.ONNX], list(Measure), BenchmarkScale())
    assert len(cases) == 5 and {one.lengths for one in cases} == {(2, 5, 10, 20, 60)}


def test_random_models_are_read_from_the_last_line_of_the_other_process(tmp_path, monkeypatch):
    script = tmp_path / "made.py"
    script.write_text("import sys; print('progress'); print('[\"one\", \"two\"]')")
    monkeypatch.setitem(runner.SIZES, "tiny", "made")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert runner.random_models("tiny", tmp_path) == [
        runner.Model("tiny", "one", is_baseline=True), runner.Model("tiny", "two"),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_command_measures_in_another_process(toy_bundle, tmp_path):
    words = ["benchmark", "--model", str(toy_bundle), "--quick", "--json", str(tmp_path / "out.json")]
    words += ["--cache-dir", str(tmp_path), "--measure", "memory", "--engine", "onnx"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(one["measure"], one["model"], one["weights"]) for one in rows] == [
        ("memory", "toy", "float32"), ("memory", "toy", "int8"),
    ]  # fmt: skip
    assert all(one["peak_megabytes"] > 20 for one in rows)
    assert "| toy, onnx int8 |" in result.output and "these figures are unreliable" in result.output


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


@pytest.mark.slow
def test_the_given_models_are_measured_or_else_mini_and_the_papers_size(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "random_models", lambda size, cache_dir: [runner.Model(size, str(cache_dir))])

    def labels(names, size):
        return {model.label for model in command.choose_models(names, size, tmp_path)}

    assert labels([], None) == {"mini", "70m"}
    assert labels(["mini"], None) == {"mini"}
    assert labels([], command.Size.PAPER) == {"70m"}
    assert labels(["mini"], command.Size.PAPER) == {"mini", "70m"}


def test_without_the_packages_of_the_papers_size_mini_is_measured_alone(tmp_path, monkeypatch):
    def fail(size, cache_dir):
        raise BenchmarkError("no snac here")

    monkeypatch.setattr(command, "random_models", fail)
    assert {model.label for model in command.choose_models([], None, tmp_path)} == {"mini"}
    with pytest.raises(BenchmarkError, match="no snac"):
        command.choose_models([], command.Size.PAPER, tmp_path)


def test_lists_of_numbers_are_sorted_and_bounded():
    assert command.choose_scale(True, "5,2.5", "4,1").lengths == (2.5, 5.0)
    assert command.choose_scale(False, None, "4,1,4").concurrency == (1, 4)
    for text in ("2000", "", "1,inf", "-1"):
        with pytest.raises(ConfigError, match="--lengths"):
            command.choose_scale(False, text, None)
