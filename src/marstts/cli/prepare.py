"""`marstts prepare`: from a corpus as its makers laid it out, or from nothing, to a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.config import read_config
from marstts.errors import DataError

app = typer.Typer(help="Make a corpus ready: recordings and utterances.jsonl.", no_args_is_help=True)


@app.callback()
def prepare() -> None:
    """Make a corpus ready: recordings and utterances.jsonl."""


@app.command()
def studio(
    output: Annotated[Path, typer.Option(help="Folder for the recordings and utterances.jsonl.")],
    config: Annotated[Path, typer.Option(help="TOML with the voices and hours wanted.")],
    sentences: Annotated[
        list[str], typer.Option(help="File of sentences, optionally FILE:WEIGHT; may be given several times.")
    ],
    workers: Annotated[int, typer.Option(min=1, help="Processes that speak at the same time.")] = 1,
) -> None:
    """Build the studio corpus from open speech engines (ordinary Debian packages); goes on where it stopped."""
    from marstts.data.corpora.studio import StudioConfig, build

    build(read_config(StudioConfig, config), [weighted_file(item) for item in sentences], output, workers, typer.echo)


def weighted_file(item: str) -> tuple[Path, float]:
    """`FILE` or `FILE:WEIGHT`."""
    name, _, weight = item.rpartition(":")
    if not name:
        return Path(item), 1.0
    try:
        return Path(name), float(weight)
    except ValueError as error:
        raise DataError(f"{item}: expected FILE or FILE:WEIGHT, with a number as the weight") from error
