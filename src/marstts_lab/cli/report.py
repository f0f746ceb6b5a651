"""`marstts report`: a comparison of several evaluations, as the paper's Table I and Figure 2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import say
from marstts.io.files import write_file
from marstts.io.reading import printable_name
from marstts_lab.cli.evaluate import models_of, run_metadata
from marstts_lab.evaluation.report import STEM, draw_wer_by_style, format_summary, write_report
from marstts_lab.evaluation.summary import gather_scores, summarize


def report(
    folders: Annotated[list[Path], typer.Argument(help="Output folders of `marstts evaluate`.", show_default=False)],
    output: Annotated[Path, typer.Option(help="Folder for report.md, report.json and the figure.")] = Path(
        "runs/report"
    ),
) -> None:
    """Compare systems in one table, mark differences within the noise, and draw word error rates by style."""
    systems = gather_scores(folders)
    metadata = {**run_metadata(), **models_of(systems), "test set": systems.testset, **systems.metrics}
    markdown = write_report(systems.scores, output, metadata, systems.warnings, "report")
    if any(score.words is not None for score in systems.scores):
        draw_wer_by_style(summarize(systems.scores), output)
        write_file(output / "report.md", markdown + f"\n![Word error rate by style]({STEM}.png)\n")
    say(format_summary(systems.scores))
    say(f"all columns, intervals and styles: {printable_name(output / 'report.md')}")
