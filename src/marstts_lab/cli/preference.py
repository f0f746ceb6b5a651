"""`marstts preference`: from a model to takes (mine), to preference pairs (pairs), to a better model (train)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import say
from marstts.errors import require
from marstts.io.config import read_config
from marstts.io.reading import printable_name
from marstts_lab.cli.ray_option import Ray
from marstts_lab.data.ray_cluster import open_executor
from marstts_lab.preference.mine import MineConfig
from marstts_lab.preference.mine import mine as mine_takes
from marstts_lab.preference.pairs import make_pairs
from marstts_lab.preference.ranking import RankConfig

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes (default: 1; with --ray, workers: the cluster's processors).",
        show_default=False,
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model's name or a bundle's folder.")]

app = typer.Typer(help="Mine takes, rank them into pairs, train on the pairs.", no_args_is_help=True)


@app.callback()
def preference() -> None:
    """Mine takes, rank them into pairs, train on the pairs."""


@app.command()
def mine(
    model: Model,
    references: Annotated[
        list[Path],
        typer.Option(
            help="Corpus with recordings whose voices are cloned: its utterances.jsonl. May be given several times."
        ),
    ],
    texts: Annotated[Path, typer.Option(help="Sentences, one a line, or source<TAB>sentence; may be .gz.")],
    output: Annotated[Path, typer.Option(help="Folder for the takes; an interrupted run resumes.")],
    config: Annotated[Path | None, typer.Option(help="TOML with numbers of references and takes, and more.")] = None,
    workers: Workers = None,
    ray: Ray = None,
) -> None:
    """Speak texts in the voices of recordings, then the recordings' words in the voices of these takes."""
    settings = MineConfig() if config is None else read_config(MineConfig, config)
    report = mine_takes(model, references, texts, output, settings, executor=open_executor(workers, ray))
    say(
        f"{printable_name(output)}: {report.takes} takes, {report.generated_now} of them generated now; "
        f"{report.errors} incomplete, see `error` in their lines"
    )


@app.command()
def pairs(
    mined: Annotated[Path, typer.Argument(help="Folder of takes, see `marstts preference mine`.")],
    output: Annotated[Path, typer.Option(help="pairs.jsonl to write; codes and a report are written next to it.")],
    config: Annotated[Path | None, typer.Option(help="TOML with scheme, metrics, thresholds and quotas.")] = None,
    workers: Workers = None,
    ray: Ray = None,
) -> None:
    """Score all takes, and pair the worst with better ones or with the recordings."""
    settings = RankConfig() if config is None else read_config(RankConfig, config)
    report = make_pairs(mined, output, settings, executor=open_executor(workers, ray))
    every, rejected = report["all_takes"], report["rejected"]
    means = "; ".join(
        f"mean {metric.replace('_', ' ')} {every[metric]['mean']:.2f}, of rejected takes {rejected[metric]['mean']:.2f}"
        for metric in every
    )
    say(
        f"{printable_name(output)}: {report['pairs']} pairs of {report['takes']} takes; {means}; "
        f"examples in {printable_name(output.stem)}-report"
    )


@app.command()
def train(
    model: Model,
    pairs: Annotated[
        list[Path], typer.Option(help="pairs.jsonl, see `marstts preference pairs`. May be given several times.")
    ],
    held_out: Annotated[Path, typer.Option(help="testset.jsonl for validation: no speaker of the pairs.")],
    config: Annotated[Path, typer.Option(help="TOML with the tables orpo and validation.")],
    output: Annotated[Path, typer.Option(help="Run folder; its checkpoint best/ has the best weights.")],
    max_minutes: Annotated[
        float, typer.Option(min=0.0, help="Stop after this many minutes; 0 = never. The run can be resumed.")
    ] = 0,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 = PyTorch's choice.")] = 0,
) -> None:
    """Train a model on preference pairs (ORPO or DPO); an interrupted run resumes."""
    torch = require("torch", "train")  # mining and ranking need none

    from marstts_lab.preference.train import PreferenceConfig
    from marstts_lab.preference.train import train as train_model

    if threads:
        torch.set_num_threads(threads)
    settings = read_config(PreferenceConfig, config)
    if max_minutes:
        loop = settings.orpo.loop.model_copy(update={"max_minutes": max_minutes})
        settings = settings.model_copy(update={"orpo": settings.orpo.model_copy(update={"loop": loop})})
    best = train_model(model, pairs, held_out, output, settings)
    if best is None:
        return
    metrics = f"CER {best.cer:.3f}, similarity {best.similarity:.3f}, failure rate {best.failure_rate:.0%}"
    kept = "no step is better than the initial model, which is kept"
    outcome = f"step {best.step} is the best" if best.step else kept
    say(f"{printable_name(output / 'best')}: {outcome}: {metrics}")
