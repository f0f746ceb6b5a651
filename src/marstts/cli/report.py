"""`marstts report`: a comparison of several evaluations, as the paper's Table I and Figure 2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.evaluate import check_before_work, run_metadata, score_into
from marstts.errors import DataError
from marstts.evaluation.open_systems import SystemOptions, choose_metrics_model, default_baselines
from marstts.evaluation.report import STEM, draw_wer_by_style, format_summary, write_report
from marstts.evaluation.summary import TOPLINES, gather_scores, summarize
from marstts.evaluation.systems import Clone, Variant
from marstts.evaluation.testsets.catalog import SYNTHETIC, open_testset, subsample
from marstts.io.files import write_file
from marstts.io.reading import printable_name
from marstts.metrics.panel import parse_metrics


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
            help="Model to score again without RAS, without quality prefix and, see --untuned, without tuning."
        ),
    ] = None,
    untuned: Annotated[
        str | None, typer.Option(help="The model before preference tuning (RIO-ORPO), for --ablations.")
    ] = None,
    testset: Annotated[str, typer.Option(help="Test set of the ablations, as for `marstts evaluate`.")] = SYNTHETIC,
    root: Annotated[Path | None, typer.Option(help="Folder of its recordings.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Trials of the ablations to use at most.")] = None,
    clone: Annotated[Clone, typer.Option(help="Clones of the ablations.")] = Clone.SHALLOW,
    metrics: Annotated[str, typer.Option(help="Metrics of the ablations, as for `marstts evaluate`.")] = "default",
    seed: Annotated[int, typer.Option(help="Seed of the ablations' takes.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that compute metrics.")] = 2,
) -> None:
    """Compare systems in one table, mark differences within the noise, and draw word error rates by style."""
    found = list(folders or [])
    if ablations is not None:
        found.append(output / "ablations")
        names = ablated_systems(ablations, untuned)
        options = SystemOptions([clone], seed, choose_metrics_model(None, names))
        config = parse_metrics(metrics, options.metrics_model)
        check_before_work([*names, *TOPLINES], config, testset, root, options)
        trials = subsample(open_testset(testset, root), limit)
        score_into(found[-1], [*names, *default_baselines(TOPLINES, trials)], trials, options, config, workers)
    if not found:
        raise DataError("expected output folders of `marstts evaluate`, or a model with --ablations")
    systems = gather_scores(found)
    metadata = {**run_metadata(), "test set": systems.testset, **systems.metrics}
    if ablations is not None and untuned is None:
        metadata["without RIO-ORPO"] = "not run: no model before tuning was given with --untuned"
    markdown = write_report(systems.scores, output, metadata, systems.warnings, "report")
    if any(score.words is not None for score in systems.scores):
        draw_wer_by_style(summarize(systems.scores), output)
        write_file(output / "report.md", markdown + f"\n![Word error rate by style]({STEM}.png)\n")
    typer.echo(format_summary(systems.scores))
    typer.echo(f"all columns, intervals and styles: {printable_name(output / 'report.md')}")


def ablated_systems(model: str, untuned: str | None) -> list[str]:
    """The model, and the ablations of the paper's Table I."""
    without = [f"{model}@{variant.value}" for variant in Variant]
    return [model, *without, *([untuned] if untuned else [])]
