"""`marstts plan`: what a training will take, with the formula of every figure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from marstts.config import parse_config, read_config
from marstts.errors import ConfigError
from marstts.mars6.config import Mars6Config
from marstts.training.planning import GPUS, PlanConfig, Row, make_plan

DEFAULTS = PlanConfig()


def plan(
    hours: Annotated[float, typer.Option(help="Hours of speech in the corpus.")] = DEFAULTS.hours,
    gpus: Annotated[int, typer.Option(help="How many GPUs train.")] = DEFAULTS.gpus,
    gpu: Annotated[str, typer.Option(help=f"Their kind: {', '.join(GPUS)}.")] = "h100",
    peak_tflops: Annotated[
        float | None, typer.Option(help="Their peak in TFLOP/s, for other kinds and for those that throttle.")
    ] = None,
    utilisation: Annotated[
        float, typer.Option(help="Share of the peak that goes into the model; a run's log tells the true one.")
    ] = DEFAULTS.utilisation,
    overhead: Annotated[
        float, typer.Option(help="Milliseconds of a step in which the GPU is not at work on the model.")
    ] = DEFAULTS.overhead_ms,
    throughput: Annotated[
        float | None, typer.Option(help="Audio seconds per second and GPU, from a run's log, instead of utilisation.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps to train.")] = DEFAULTS.steps,
    batch: Annotated[int, typer.Option(help="Utterances per step, on all GPUs.")] = DEFAULTS.batch,
    seconds: Annotated[float, typer.Option(help="Mean length of an utterance.")] = DEFAULTS.seconds_per_utterance,
    config: Annotated[
        Path | None, typer.Option(help="TOML of `train mars6`, whose model it is; else the paper's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures and formulas as JSON.")] = False,
) -> None:
    """Reckon tokens, steps, operations, hours, disk and memory of a training; by default the paper's."""
    if gpu not in GPUS and peak_tflops is None:
        raise ConfigError(f"{gpu}: not a GPU known here ({', '.join(GPUS)}); give its --peak-tflops")
    values = {
        "hours": hours, "gpus": gpus, "steps": steps, "batch": batch, "seconds_per_utterance": seconds,
        "utilisation": utilisation, "overhead_ms": overhead, "throughput": throughput,
        "tflops": GPUS[gpu].tflops if peak_tflops is None else peak_tflops,
    }  # fmt: skip
    rows = make_plan(parse_config(PlanConfig, values, "marstts plan"), model_of(config))
    if as_json:
        typer.echo(json.dumps({key: asdict(row) for key, row in rows.items()}, indent=2, ensure_ascii=False))
        return
    for row in rows.values():
        typer.echo(f"{row.name:<44} {figure(row):>16}   = {row.formula}")
    if throughput is None:
        typer.echo(
            f"\nThe time rests on a utilisation of {utilisation:.0%} and {overhead:g} ms a step, which nobody "
            "measured: train for some minutes, and give the --throughput that its log says."
        )
    needed = rows["gpu_memory"].value
    if gpu in GPUS and needed > GPUS[gpu].memory_gb:
        typer.echo(
            f"\nA {gpu} has {GPUS[gpu].memory_gb:g} GB: take {needed / GPUS[gpu].memory_gb:.1f} times as many GPUs, or "
            "smaller batches and more of them per step."
        )


def model_of(config: Path | None) -> Mars6Config:
    """The model of a training's configuration, or the paper's."""
    if config is None:
        return Mars6Config()
    from marstts.training.pretrain import PretrainConfig

    return read_config(PretrainConfig, config).model


def figure(row: Row) -> str:
    """A value as people read it."""
    value = row.value
    if value >= 1e9:
        return f"{value:.3g} {row.unit}".strip()
    return f"{value:,.0f} {row.unit}".strip() if value >= 100 else f"{value:.3g} {row.unit}".strip()
