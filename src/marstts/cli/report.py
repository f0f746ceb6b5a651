"""`marstts report`: systems side by side, as the paper's Table I and Figure 2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.evaluate import (
    Wanted,
    choose_judge_model,
    company,
    facts,
    judge_systems,
)
from marstts.cli.terminal import messages
from marstts.errors import DataError
from marstts.evaluation.comparison import gather
from marstts.evaluation.figure import STEM, draw_wer_by_style
from marstts.evaluation.report import BOUNDS, summarize, write_report
from marstts.evaluation.systems import Clone, Variant
from marstts.evaluation.testsets.catalogue import STUDIO, open_testset, thin_out


def report(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Output folders of `marstts evaluate`.", show_default=False)
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for report.md, report.json and the figure.")] = Path(
        "runs/report"
    ),
    ablations: Annotated[
        str | None,
        typer.Option(
            help="Model to judge again without RAS, without quality prefix and, see --untuned, without tuning."
        ),
    ] = None,
    untuned: Annotated[
        str | None, typer.Option(help="The model before preference tuning (RIO-ORPO), for --ablations.")
    ] = None,
    testset: Annotated[str, typer.Option(help="Test set of the ablations, as for `marstts evaluate`.")] = STUDIO,
    root: Annotated[Path | None, typer.Option(help="Where its recordings lie.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Trials of the ablations to use at most.")] = None,
    clone: Annotated[Clone, typer.Option(help="Clones of the ablations.")] = Clone.SHALLOW,
    judges: Annotated[str, typer.Option(help="Judges of the ablations, as for `marstts evaluate`.")] = "offline",
    seed: Annotated[int, typer.Option(help="Seed of the ablations' takes.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that judge at the same time.")] = 2,
) -> None:
    """Put systems side by side, mark what lies within the noise, and draw word errors by style."""
    found = list(folders or [])
    if ablations is not None:
        found.append(output / "ablations")
        trials = thin_out(open_testset(testset, root, messages().print), limit)
        names = [*ablated_systems(ablations, untuned), *company(BOUNDS, trials)]
        wanted = Wanted([clone], seed, {}, choose_judge_model(None, names))
        judge_systems(names, trials, found[-1], wanted, judges, workers, testset)
    if not found:
        raise DataError("say what to report: output folders of `marstts evaluate`, or a model with --ablations")
    pool = gather(found)
    told = {**facts(), "test set": pool.testset, **pool.judges}
    if ablations is not None and untuned is None:
        told["without RIO-ORPO"] = "not run: no model before tuning was named with --untuned"
    markdown = write_report(pool.scores, output, told, pool.remarks, "report")
    if any(score.words is not None for score in pool.scores):
        paths = draw_wer_by_style(summarize(pool.scores), output)
        markdown += f"\n![Word error rate by style]({STEM}.png)\n"
        (output / "report.md").write_text(markdown, encoding="utf-8")
        messages().print(f"drawn: {', '.join(map(str, paths))}")
    typer.echo(markdown)


def ablated_systems(model: str, untuned: str | None) -> list[str]:
    """The model, and what the paper's Table I takes away from it."""
    without = [f"{model}@{variant.value}" for variant in Variant]
    return [model, *without, *([untuned] if untuned else [])]
