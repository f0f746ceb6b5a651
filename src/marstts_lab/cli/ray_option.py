"""The option `--ray` of the commands whose jobs can run on several machines."""

from __future__ import annotations

from typing import Annotated

import typer

Ray = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster to work on, whose nodes share all folders: HOST:PORT, `auto`, or `local`.",
        show_default=False,
    ),
]
