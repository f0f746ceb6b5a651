"""`marstts estimate`: hours, GPUs and disk of a MARS6 recipe in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import say
from marstts.errors import check_installed

PACKAGES = ("torch",)


def estimate(
    config: Annotated[Path, typer.Option(help="TOML of `marstts train mars6`.")],
    hours: Annotated[float, typer.Option(min=0.01, max=1e9, help="Hours of speech in the corpora.")],
    gpus: Annotated[
        int | None,
        typer.Option(min=1, max=10**6, help="Number of GPUs (default: those of this machine).", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600.0, help="Mean length of a recording.")] = 12.0,
    corpus_rate: Annotated[int, typer.Option(min=1000, max=10**6, help="Sample rate (Hz) of the recordings.")] = 16_000,
    tflops: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="Peak of a GPU in TFLOP/s, bf16 without sparsity (default: H100).")
    ] = 989.0,
    throughput: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1e9,
            help="Seconds of audio a second and GPU, from a run's log: `audio_seconds_per_second` / GPUs.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print hours and disk of tokenization and training in one line, with what is assumed."""
    check_installed(PACKAGES, "train")
    from marstts.io.config import read_config
    from marstts_lab.data.workers import visible_gpus
    from marstts_lab.training.mars6.config import PretrainConfig
    from marstts_lab.training.mars6.cost import Recipe
    from marstts_lab.training.mars6.cost import estimate as estimate_cost

    recipe = Recipe(
        read_config(PretrainConfig, config),
        hours,
        gpus or max(1, len(visible_gpus())),
        seconds,
        corpus_rate,
        tflops,
        throughput,
    )
    say(estimate_cost(recipe).line)
