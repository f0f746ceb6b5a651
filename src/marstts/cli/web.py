"""`marstts web`: write a static site that speaks in the browser.

Upstream: the shell.  Downstream: `web.site`; any web host serves the folder (docs/web.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import say
from marstts.io.reading import printable_name


def web(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write; an earlier site is replaced.")],
    model: Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="mini, or a bundle with its parts.")] = "mini",
    packages: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A folder node_modules with onnxruntime-web and pyodide (default: the environment variable "
            "MARSTTS_NODE_MODULES, or the one in the working folder, its build/npm, or a folder above).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a static site that any web host can serve: the model speaks and clones inside the visitor's browser.

    It needs two npm packages and says which where they are missing.
    """
    from marstts.web.packages import find_packages
    from marstts.web.site import write_site

    sizes = write_site(output, model, find_packages(packages))
    shown = ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in sizes.items())
    say(f"wrote {printable_name(output)}: {shown}")
