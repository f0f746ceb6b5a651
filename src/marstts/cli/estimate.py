"""`marstts estimate`: the cost of a training, with the formula of every figure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marstts.errors import ConfigError
from marstts.io.config import parse_config, read_config
from marstts.training.mars6.cost_settings import GPUS, EstimateConfig

if TYPE_CHECKING:
    from marstts.training.mars6.cost_estimate import Row

DEFAULTS = EstimateConfig()


def estimate(
    hours: Annotated[float, typer.Option(help="Hours of speech in the corpus.")] = DEFAULTS.hours,
    gpus: Annotated[int, typer.Option(help="Number of GPUs.")] = DEFAULTS.gpus,
    gpu: Annotated[str, typer.Option(help=f"Their kind: {', '.join(GPUS)}.")] = "h100",
    peak_tflops: Annotated[
        float | None, typer.Option(help="Their peak in TFLOP/s, for other kinds and for those that throttle.")
    ] = None,
    mfu: Annotated[float, typer.Option(help="Model FLOPs utilization, as in a run's log.")] = DEFAULTS.mfu,
    overhead_ms: Annotated[
        float, typer.Option(help="Milliseconds of a step in which the GPU does not compute the model.")
    ] = DEFAULTS.overhead_ms,
    throughput: Annotated[
        float | None, typer.Option(help="Audio seconds per second and GPU, from a run's log, instead of --mfu.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of the training.")] = DEFAULTS.steps,
    batch_size: Annotated[int, typer.Option(help="Utterances per step, on all GPUs.")] = DEFAULTS.batch_size,
    seconds: Annotated[float, typer.Option(help="Mean length of an utterance.")] = DEFAULTS.seconds_per_utterance,
    config: Annotated[
        Path | None, typer.Option(help="TOML of `train mars6` with the model's sizes (default: the paper's).")
    ] = None,
    corpus_rate: Annotated[int, typer.Option(help="Sample rate (Hz) of the recordings.")] = DEFAULTS.corpus_rate,
    tokenize_throughput: Annotated[
        float, typer.Option(help="Audio seconds per second and GPU of `marstts tokenize`.")
    ] = DEFAULTS.tokenize_throughput,
    cycles: Annotated[int, typer.Option(help="Cycles of `marstts preference mine`.")] = DEFAULTS.cycles,
    mining_workers: Annotated[int, typer.Option(help="Its processes.")] = DEFAULTS.mining_workers,
    mining_throughput: Annotated[
        float, typer.Option(help="Seconds of speech that each of them generates, and scores, in a second.")
    ] = DEFAULTS.mining_throughput,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures and formulas as JSON.")] = False,
) -> None:
    """Estimate tokens, steps, operations, hours, disk and memory of all stages; by default the paper's."""
    from marstts.training.mars6.config import PretrainConfig
    from marstts.training.mars6.cost_estimate import estimate_cost

    if gpu not in GPUS and peak_tflops is None:
        raise ConfigError(f"{gpu}: not a known GPU ({', '.join(GPUS)}); give its --peak-tflops")
    values = {
        "hours": hours, "gpus": gpus, "steps": steps, "batch_size": batch_size, "seconds_per_utterance": seconds,
        "mfu": mfu, "overhead_ms": overhead_ms, "throughput": throughput, "corpus_rate": corpus_rate,
        "tokenize_throughput": tokenize_throughput, "cycles": cycles, "mining_workers": mining_workers,
        "mining_throughput": mining_throughput,
        "tflops": GPUS[gpu].tflops if peak_tflops is None else peak_tflops,
    }  # fmt: skip
    model = None if config is None else read_config(PretrainConfig, config).model
    rows = estimate_cost(parse_config(EstimateConfig, values, "marstts estimate"), model)
    if as_json:
        typer.echo(json.dumps({key: asdict(row) for key, row in rows.items()}, indent=2, ensure_ascii=False))
        return
    for row in rows.values():
        typer.echo(f"{row.name:<44} {show_value(row):>16}   = {row.formula}")
    for note in notes(rows, gpu, mfu, overhead_ms, throughput):
        typer.echo(f"\n{note}")


def notes(rows: dict[str, Row], gpu: str, mfu: float, overhead_ms: float, throughput: float | None) -> list[str]:
    """Notes on the figures: assumptions, and memory that does not suffice."""
    found = []
    if throughput is None:
        found.append(
            f"The time assumes an mfu of {mfu:.0%} and {overhead_ms:g} ms a step, which were not measured: train for "
            "some minutes, and give the --throughput of the log."
        )
    found.append(
        "The throughputs of tokenization and of mining are assumptions, too: take them from the first log lines."
    )
    needed = rows["gpu_memory"].value
    if gpu in GPUS and needed > GPUS[gpu].memory_gb:
        found.append(
            f"A {gpu} has {GPUS[gpu].memory_gb:g} GB: take {needed / GPUS[gpu].memory_gb:.1f} times as many GPUs, or "
            "smaller batches and more of them per step (`accumulation_batches`)."
        )
    return found


def show_value(row: Row) -> str:
    """A value as people read it."""
    value = row.value
    if value >= 1e9:
        return f"{value:.3g} {row.unit}".strip()
    return f"{value:,.0f} {row.unit}".strip() if value >= 100 else f"{value:.3g} {row.unit}".strip()
