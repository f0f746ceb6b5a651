"""The formulas of the cost estimate, each against a count: operations, parameters, activations, bytes on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.mars6.objective import ObjectiveConfig, next_token_loss
from marstts.nn import attention
from marstts.training.mars6.cost_estimate import activation_bytes, estimate_cost, num_parameters, row_flops
from marstts.training.mars6.cost_settings import EstimateConfig

ROWS, TEXT, PATCHES = 3, 29, 41
TOY = Mars6Config(
    text_vocab_size=70, codebook_size=53, width=96, encoder_layers=2, global_layers=3, local_layers=2, heads=4,
    local_heads=3, feed_forward_factor=2, identity_size=17, style_size=23,
)  # fmt: skip
RUN = CliRunner()


@pytest.fixture
def loss_of():
    """The toy model, and a function that gives its loss on a batch without padding."""
    torch.manual_seed(0)
    model = Mars6(TOY)
    levels = torch.tensor(TOY.position_levels)
    patches = torch.randint(TOY.codebook_size, (ROWS, PATCHES, TOY.patch_size)) + levels * TOY.codebook_size
    batch = (torch.randint(70, (ROWS, TEXT)), torch.full((ROWS,), TEXT), torch.randn(ROWS, 17), torch.randn(ROWS, 23))

    def score() -> torch.Tensor:
        output = model(*batch, patches, torch.full((ROWS,), PATCHES))
        return next_token_loss(output.logits, patches[output.scored], TOY, ObjectiveConfig()).total

    score.model = model  # type: ignore[attr-defined]
    return score


def test_operations_agree_with_torchs_own_count(loss_of) -> None:
    with FlopCounterMode(display=False) as forward:
        loss_of()
    with FlopCounterMode(display=False) as training:
        loss_of().backward()
    estimated = ROWS * row_flops(TOY, TEXT, PATCHES)
    assert estimated == pytest.approx(forward.get_total_flops(), rel=0.001)
    assert 3 * estimated == pytest.approx(training.get_total_flops(), rel=0.01)


def test_parameters_are_counted_without_making_them(loss_of) -> None:
    assert num_parameters(TOY) == sum(parameter.numel() for parameter in loss_of.model.parameters())
    assert num_parameters(Mars6Config()) == pytest.approx(66.8e6, rel=0.001)


def test_activation_memory_is_about_what_is_estimated(loss_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attend_eager", attention.attend_sdpa)  # as on a GPU
    weights = {parameter.untyped_storage().data_ptr() for parameter in loss_of.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x), torch.autocast("cpu", torch.bfloat16):
        loss_of()
    measured = sum(storage.nbytes() for storage in kept.values())
    assert activation_bytes(TOY, ROWS * (TEXT + 2), ROWS * PATCHES) == pytest.approx(measured, rel=0.3)


def test_the_papers_corpus_makes_28_gigabytes_of_codes() -> None:
    rows = estimate_cost(EstimateConfig(), Mars6Config())
    assert rows["codes"].value == pytest.approx(28, rel=0.05)
    assert rows["host_memory"].value < rows["codes"].value / 4  # codes and embeddings stay on disk
    assert rows["trained_on"].value == 192e6 and rows["epochs"].value == pytest.approx(13.9, abs=0.1)
    assert rows["tokens"].value == pytest.approx(46_000 * 3600 * 82.03, rel=0.01)  # 7 tokens at 11.72 Hz


def test_time_follows_from_gpus_peak_mfu_and_overhead_or_from_throughput() -> None:
    def hours(**changes: float) -> float:
        return estimate_cost(EstimateConfig(**changes), TOY)["hours"].value

    base = {"gpus": 2, "tflops": 100.0, "mfu": 0.2, "overhead_ms": 0.0}
    assert hours(**base) == pytest.approx(2 * hours(**{**base, "gpus": 4}))
    assert hours(**base) == pytest.approx(2 * hours(**{**base, "mfu": 0.4}))
    assert hours(**base) == pytest.approx(2 * hours(**{**base, "tflops": 200.0}))
    assert hours(**{**base, "overhead_ms": 36.0}) - hours(**base) == pytest.approx(2e6 * 0.036 / 3600)
    rows = estimate_cost(EstimateConfig(**base), TOY)
    again = estimate_cost(EstimateConfig(**base, throughput=rows["throughput"].value), TOY)
    assert again["hours"].value == pytest.approx(rows["hours"].value)
    assert again["mfu"].value == pytest.approx(0.2)


def test_recordings_tokenization_and_mining_are_counted() -> None:
    rows = estimate_cost(EstimateConfig(hours=50_000, gpus=8), TOY)
    assert rows["recordings"].value == pytest.approx(3456)  # LibriHeavy's 3.5 TB
    assert rows["tokenization"].value == pytest.approx(50_000 / 8 / 150)
    faster = EstimateConfig(hours=50_000, gpus=2, tokenize_throughput=1000, mining_workers=4, mining_throughput=10)
    assert estimate_cost(faster, TOY)["tokenization"].value == pytest.approx(25)
    assert estimate_cost(faster, TOY)["mining"].value == pytest.approx(2 * 20_000 * 2 * 6 / 3600 / 40)
    assert estimate_cost(EstimateConfig(cycles=0), TOY)["mining"].value == 0


def test_the_command_prints_every_figure_with_its_formula() -> None:
    result = RUN.invoke(app, ["estimate", "--hours", "46000", "--gpus", "8", "--gpu", "h100"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert any(line.startswith("disk: codes") and "27.2 GB" in line and "hours · 3600" in line for line in lines)
    assert "were not measured" in result.stdout
    measured = RUN.invoke(app, ["estimate", "--throughput", "900", "--seconds", "10", "--steps", "1000", "--json"])
    figures = json.loads(measured.stdout)
    assert figures["hours"]["value"] == pytest.approx(1000 * 96 * 10 / 900 / 3600)


def test_options_change_the_estimate_and_impossible_ones_are_refused(tmp_path: Path) -> None:
    toy = tmp_path / "mars6.toml"
    toy.write_text("[model]\nwidth = 64\nheads = 4\nlocal_heads = 4\n[loop]\nsteps = 5\n")
    options = ["--config", str(toy), "--mfu", "0.5", "--overhead-ms", "5", "--batch-size", "8", "--peak-tflops", "10"]
    figures = json.loads(RUN.invoke(app, ["estimate", "--gpu", "mine", *options, "--json"]).stdout)
    assert figures["parameters"]["value"] < 5e6 and figures["trained_on"]["value"] == 16e6
    assert "10 TFLOP/s · 50% mfu" in figures["hours"]["formula"]
    assert "A t4 has 16 GB" in RUN.invoke(app, ["estimate", "--gpu", "t4", "--batch-size", "400"]).stdout
    assert RUN.invoke(app, ["estimate", "--gpu", "abacus"]).exit_code == 2
    assert RUN.invoke(app, ["estimate", "--gpus", "0"]).exit_code == 2
