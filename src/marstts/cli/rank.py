"""`marstts rank`: from mined takes to preference pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.mine import crew
from marstts.config import read_config
from marstts.preference.rank import rank as rank_takes
from marstts.preference.ranking import RankConfig


def rank(
    mined: Annotated[Path, typer.Argument(help="What `marstts mine` wrote.")],
    output: Annotated[Path, typer.Option(help="pairs.jsonl to write; codes and a report go beside it.")],
    config: Annotated[Path | None, typer.Option(help="TOML with scheme, judges, thresholds and quotas.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes (with --ray, actors) that judge at one time.")] = 1,
    ray: Annotated[
        str | None, typer.Option(help="Ray cluster that does the work: HOST:PORT, `auto`, or `local`.")
    ] = None,
) -> None:
    """Judge all takes, and pair the worst with what should have been said."""
    settings = RankConfig() if config is None else read_config(RankConfig, config)
    report = rank_takes(mined, output, settings, engine=crew(workers, ray), say=typer.echo)
    every, rejected = report["all_takes"], report["rejected"]
    means = "; ".join(
        f"mean {scale.replace('_', ' ')} {every[scale]['mean']:.2f}, of rejected takes {rejected[scale]['mean']:.2f}"
        for scale in every
    )
    typer.echo(
        f"{output}: {report['pairs']} pairs of {report['takes']} takes; {means}; histograms and extremes in "
        f"{output.stem}-report"
    )
