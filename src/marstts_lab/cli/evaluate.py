"""`marstts evaluate`: from models and recordings to tables with intervals."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import date
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import marstts
from marstts.cli.terminal import check_not_read, messages, printed_warnings, say
from marstts.errors import DataError
from marstts.io.part_provenance import command_line, commit
from marstts.io.reading import printable_name, printable_text
from marstts_lab.cli.ray_option import Ray
from marstts_lab.data.ray_cluster import open_executor
from marstts_lab.data.workers import Executor
from marstts_lab.evaluation.open_systems import (
    DEFAULT_BASELINES,
    SystemOptions,
    choose_metrics_model,
    default_baselines,
    find_systems,
    system_problems,
)
from marstts_lab.evaluation.report import format_summary, write_report
from marstts_lab.evaluation.score import score_systems
from marstts_lab.evaluation.summary import ScoredSystems, gather_scores
from marstts_lab.evaluation.systems import Clone
from marstts_lab.evaluation.testset import make_testset, read_testset, trials_digest, write_testset
from marstts_lab.evaluation.testsets.catalog import (
    CORPORA,
    PACKAGED_VOICES,
    RENDERED,
    SYNTHETIC,
    missing_for_testset,
    open_testset,
    subsample,
)
from marstts_lab.metrics.panel import (
    MetricsConfig,
    fetch_weights,
    missing_packages,
    open_metrics,
    parse_metrics,
)
from marstts_lab.metrics.trial import Trial

evaluate = typer.Typer(help="Score synthesized speech against recordings.", invoke_without_command=True)

Metrics = Annotated[
    str,
    typer.Option(
        help="default, paper, or metrics by name, each with a folder or name of its weights: "
        "default,faster-whisper=FOLDER; resemblyzer,distillmos."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes that compute metrics (default: 2; with --ray, workers: the cluster's processors).",
        show_default=False,
    ),
]


class Clones(str, Enum):
    """Clones of a model to score."""

    BOTH = "both"
    SHALLOW = "shallow"
    DEEP = "deep"

    @property
    def kinds(self) -> list[Clone]:
        """The clones as a list."""
        return list(Clone) if self is Clones.BOTH else [Clone(self.value)]


@evaluate.callback()
def evaluate_systems(
    context: typer.Context,
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="System to score, may be given several times: a model by name or folder (mini; mini@no-ras and "
            "mini@no-quality-prefix are ablations), a folder of <trial id>.wav; NAME=SYSTEM gives it a name; "
            f"{', '.join(DEFAULT_BASELINES)}.",
            show_default=False,
        ),
    ] = None,
    testset: Annotated[
        str,
        typer.Option(
            help=f"{', '.join((PACKAGED_VOICES, *RENDERED, *CORPORA))}, a testset.jsonl, an utterances.jsonl, or a "
            "folder of recordings with their transcripts."
        ),
    ] = SYNTHETIC,
    output: Annotated[
        Path, typer.Option(help="Folder for takes, scores and tables; an interrupted run resumes.")
    ] = Path("runs/evaluation"),
    root: Annotated[
        Path | None, typer.Option(help="Folder of the test set's recordings (synthetic: rendered into it).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Trials to use at most, spread over the styles.")] = None,
    clone: Annotated[Clones, typer.Option(help="Clones of models.")] = Clones.BOTH,
    baselines: Annotated[
        str, typer.Option(help="Systems to compare with, separated by commas; empty for none.")
    ] = ",".join(DEFAULT_BASELINES),
    metrics: Metrics = "default",
    metrics_model: Annotated[
        str | None,
        typer.Option(
            help="Model whose codec is used by 'codec-resynthesis' and whose encoder is the metric "
            "'identity' (default: the first model among the systems, else mini); 'none' for none."
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Models speak as the paper says, without what marstts adds (docs/paper.md)."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the models' takes.")] = 0,
    workers: Workers = None,
    ray: Ray = None,
) -> None:
    """Generate and score takes of a test set; results.md has a row for every system scored into the output folder."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by PyTorch, which an adapter may import later
    if context.invoked_subcommand is not None:
        return
    if not system:
        raise DataError("expected --system, e.g. --system mini or --system FOLDER_OF_WAVS")
    names = [*system, *(name for name in baselines.split(",") if name and name not in system)]
    options = SystemOptions(clone.kinds, seed, choose_metrics_model(metrics_model, names), paper)
    config = parse_metrics(metrics, options.metrics_model)
    check_before_work(names, config, testset, root, options)
    trials = subsample(open_testset(testset, root), limit)
    names = [*system, *default_baselines([name for name in names if name not in system], trials)]
    score_into(output, names, trials, options, config, open_executor(workers, ray, default=2))
    say(report_folder(output, f"{testset}, {len(trials)} trials, {trials_digest(trials)}"))


def check_before_work(
    names: Sequence[str], config: MetricsConfig, testset: str, root: Path | None, options: SystemOptions
) -> None:
    """Raise one DataError that names everything that is missing, before anything is rendered or generated."""
    problems = [
        *missing_packages(config.names),
        *system_problems(names, options),
        *missing_for_testset(testset, root),
    ]
    if problems:
        raise DataError("; ".join(dict.fromkeys(problems)))
    fetch_weights(config)  # before a test set is rendered


def score_into(
    output: Path,
    names: Sequence[str],
    trials: list[Trial],
    options: SystemOptions,
    config: MetricsConfig,
    executor: Executor,
) -> None:
    """Generate and score the takes of all named systems into the output folder."""
    systems = [one for name in names for one in find_systems(name, options)]
    with printed_warnings():
        score_systems(systems, trials, output, partial(open_metrics, config, trials), executor)


def report_folder(output: Path, testset: str) -> str:
    """Write the tables of an output folder; a summary for the terminal."""
    systems = gather_scores([output])
    metadata = {**run_metadata(), **models_of(systems), "test set": testset, **systems.metrics}
    write_report(systems.scores, output, metadata, systems.warnings)
    results = printable_name(output / "results.md")
    return f"{format_summary(systems.scores)}\nall columns, intervals and styles: {results}"


def models_of(systems: ScoredSystems) -> dict[str, str]:
    """The entry of the metadata that says which weights are measured; none without a model."""
    return {"models": ", ".join(dict.fromkeys(systems.models.values()))} if systems.models else {}


@evaluate.command("testset")
def testset_command(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl; its test split is used.")],
    output: Annotated[Path, typer.Option(help="Test set to write, e.g. testset.jsonl.")],
    speakers: Annotated[str, typer.Option(help="Number of speakers, or their names separated by commas.")] = "4",
    sentences: Annotated[int, typer.Option(min=1, help="Number of sentences.")] = 40,
    style: Annotated[str, typer.Option(help="Style of sentences and references, or `any`.")] = "regular",
    exclude: Annotated[Path | None, typer.Option(help="Test set whose sentences are left out.")] = None,
) -> None:
    """Pair test utterances with references by the same speaker; the same manifest gives the same test set."""
    check_not_read([output], manifest, exclude)
    count, named = parse_speakers(speakers)
    trials = make_testset(
        manifest,
        num_speakers=count,
        num_sentences=sentences,
        speakers=named,
        style=None if style == "any" else style,
        exclude=[] if exclude is None else read_testset(exclude),
        recordings=output.with_suffix(""),
    )
    write_testset(trials, output)
    chosen = sorted({trial.speaker for trial in trials})
    messages().print(f"{printable_name(output)}: {len(trials)} trials by {printable_text(', '.join(chosen))}")


def parse_speakers(speakers: str) -> tuple[int, list[str]]:
    """Number and names of speakers; no names where only a number was given."""
    if speakers.isascii() and speakers.isdigit() and len(speakers) < 10:
        count, named = int(speakers), []
    else:
        named = [name.strip() for name in speakers.split(",")]
        count = len(named)
    if not count or "" in named:
        raise DataError(
            f"--speakers {printable_text(speakers, 100)!r}: expected a number of speakers from 1, or their names "
            "separated by commas"
        )
    return count, named


def run_metadata() -> dict[str, Any]:
    """Date, version, command and machine of a run, for reports."""
    command = command_line()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    return {
        "date": date.today().isoformat(),
        "marstts": marstts.__version__,
        "commit": commit(),
        "command": command,
        "machine": f"{machine}, Python {platform.python_version()}",
    }
