"""`marstts mine`: from a model to takes that show where it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.config import read_config
from marstts.data.workers import Engine, Processes, RayCluster
from marstts.preference.mine import MineConfig
from marstts.preference.mine import mine as mine_takes


def mine(
    model: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="A model's name or folder: who speaks.")],
    references: Annotated[Path, typer.Option(help="Corpus whose recordings lend their voices: its utterances.jsonl.")],
    texts: Annotated[Path, typer.Option(help="What to say: sentences, one a line, or source<TAB>sentence; or .gz.")],
    output: Annotated[Path, typer.Option(help="Folder for the takes; goes on where it stopped.")],
    config: Annotated[Path | None, typer.Option(help="TOML with numbers of references and takes, and more.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes (with --ray, actors) that speak at one time.")] = 1,
    ray: Annotated[
        str | None, typer.Option(help="Ray cluster that does the work: HOST:PORT, `auto`, or `local`.")
    ] = None,
) -> None:
    """Speak texts in the voices of recordings, and the recordings' words in the voices of what came out."""
    settings = MineConfig() if config is None else read_config(MineConfig, config)
    report = mine_takes(model, references, texts, output, settings, engine=crew(workers, ray), say=typer.echo)
    typer.echo(
        f"{output}: {report.takes} takes, {report.made_now} of them spoken now; {report.problems} broke off half-way, "
        "see `problem` in their lines"
    )


def crew(workers: int, ray: str | None) -> Engine:
    """Who does the work."""
    return Processes(workers) if ray is None else RayCluster(ray, workers)
