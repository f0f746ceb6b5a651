"""`marstts tune`: from preference pairs to a model that makes fewer mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.config import read_config


def tune(
    model: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="A model's name or folder: where tuning begins.")],
    pairs: Annotated[Path, typer.Option(help="pairs.jsonl, see `marstts rank`.")],
    held_out: Annotated[Path, typer.Option(help="testset.jsonl that judges the model: no speaker of the pairs.")],
    config: Annotated[Path, typer.Option(help="TOML with [tune] steps and weights, and [checkup].")],
    output: Annotated[Path, typer.Option(help="Run folder; the best weights are in its folder best.")],
    minutes: Annotated[float, typer.Option(help="Stop, resumably, after so many minutes; 0 = by steps only.")] = 0.0,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 = PyTorch's choice. More than are free is slow.")] = 0,
) -> None:
    """Tune a model by preference; run it again to go on."""
    import torch

    from marstts.preference.checkup import BEST_FOLDER
    from marstts.preference.tune import TuningConfig
    from marstts.preference.tune import tune as tune_model

    if threads:
        torch.set_num_threads(threads)
    settings = read_config(TuningConfig, config)
    if minutes:
        loop = settings.tune.loop.model_copy(update={"minutes": minutes})
        settings = settings.model_copy(update={"tune": settings.tune.model_copy(update={"loop": loop})})
    best = tune_model(model, pairs, held_out, output, settings, say=typer.echo)
    if best is None:
        return
    found = (
        f"CER {best.cer:.3f}, wrong words {best.wrong_words:.3f}, misfit {best.misfit:.2f}, similarity "
        f"{best.similarity:.3f}, failures {best.failures:.0%}"
    )
    if best.step:
        typer.echo(f"{output / BEST_FOLDER}: step {best.step} is the best: {found}")
    else:
        typer.echo(f"{output / BEST_FOLDER}: nothing is better than what it began with, so that is kept: {found}")
