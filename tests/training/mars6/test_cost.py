"""The estimate of a recipe: it follows the configuration, and one line says it with what is assumed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.io.config import read_config
from marstts_lab.training.mars6.config import PretrainConfig
from marstts_lab.training.mars6.cost import Recipe, count_operations, estimate, round_hours

pytestmark = pytest.mark.slow

RECIPES = Path(__file__).parents[3] / "recipes"
PAPER = RECIPES / "paper" / "mars6.toml"
RUN = CliRunner()


@pytest.fixture(scope="module")
def small() -> Recipe:
    """A model of a recipe that is quick to count."""
    config = read_config(PretrainConfig, PAPER)
    sizes = {"width": 64, "encoder_layers": 1, "global_layers": 1, "local_layers": 1, "codebook_size": 64}
    return Recipe(config.model_copy(update={"model": config.model.model_copy(update=sizes)}), 100.0)


def test_the_papers_recipe_has_its_parameters_its_audio_and_its_disk() -> None:
    recipe = Recipe(read_config(PretrainConfig, PAPER), 46_000.0, gpus=8)
    cost = estimate(recipe)
    assert cost.trained_hours == pytest.approx(2e6 * 96 * 12 / 3600)
    assert cost.shards_gb == pytest.approx(27 + 42 + 5.5, rel=0.05)  # codes, embeddings, texts and names
    assert cost.checkpoints_gb == pytest.approx(6 * 16 * 66.8e6 / 1e9, rel=0.01)
    assert cost.tokenization_hours == pytest.approx(46_000 / 8 / 150)
    half = estimate(replace(recipe, hours=50_000.0, gpus=4))
    assert half.recordings_gb == pytest.approx(3500, rel=0.05)  # LibriHeavy
    assert half.training_hours < 2 * cost.training_hours  # the rest of a step does not shrink with more GPUs


def test_operations_are_those_of_the_matrices(small: Recipe) -> None:
    model = small.config.model
    flops, parameters = count_operations(model, 40, 100)
    twice, _ = count_operations(model, 40, 200)
    assert 1.8 < twice / flops < 2.6
    assert flops > 2 * 100 * model.patch_size * 64 * 65  # the logits alone
    wider, more = count_operations(model.model_copy(update={"width": 128}), 40, 100)
    assert wider > 1.8 * flops and more > 1.8 * parameters


def test_a_measured_throughput_replaces_the_assumptions(small: Recipe) -> None:
    measured = estimate(replace(small, gpus=2, throughput=1000.0))
    assert measured.training_hours == pytest.approx(measured.trained_hours / 2000)
    assert "not measured" not in measured.line and "not measured" in estimate(small).line
    slower = estimate(replace(small, tflops=1.0))
    assert slower.training_hours > 2 * estimate(small).training_hours


@pytest.mark.parametrize(
    ("hours", "shown"), [(0.001, "1 min"), (0.5, "30 min"), (3.94, "3.9 h"), (12.3, "12 h"), (1234.0, "1,200 h")]
)
def test_hours_have_two_digits(hours: float, shown: str) -> None:
    assert round_hours(hours) == shown


@pytest.mark.parametrize("recipe", ["paper", "libritts"])
def test_the_command_prints_one_line(recipe: str) -> None:
    config = str(RECIPES / recipe / "mars6.toml")
    options = ["--hours", "585", "--seconds", "5.6", "--corpus-rate", "24000", "--gpus", "2", "--tflops", "500"]
    result = RUN.invoke(app, ["estimate", "--config", config, *options])
    assert result.exit_code == 0, result.output
    [line] = result.stdout.splitlines()
    assert re.search(r"585 h of speech on 2 GPUs: tokenization 1\.9 h .* training on .* recordings 61 GB", line)
    assert "20% of 500 TFLOP/s" in line
    faster = RUN.invoke(app, ["estimate", "--config", config, "--hours", "585", "--throughput", "900"])
    assert "900 s of audio a second and GPU" in faster.stdout and "on 1 GPU:" in faster.stdout


def test_impossible_numbers_are_refused() -> None:
    for options in (["--hours", "0"], ["--hours", "5", "--gpus", "0"], ["--hours", "nan"]):
        assert RUN.invoke(app, ["estimate", "--config", str(PAPER), *options]).exit_code == 2
