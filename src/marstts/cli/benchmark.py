"""`marstts benchmark`: how fast, how soon, how much memory, on this machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from marstts.benchmark.plan import QUICK, Extent, Measure
from marstts.benchmark.report import as_json, as_markdown, gather_facts, gpu_name
from marstts.benchmark.runner import Model, cases, has_graphs, is_int8, measured, named_models, shaped_models
from marstts.cli.terminal import messages, warn
from marstts.errors import BenchmarkError, ConfigError
from marstts.synthesis.loading import Engine, has_gpu

Number = TypeVar("Number", int, float)

MOST = 1000
"""Seconds or callers nobody waits for."""


class Shape(str, Enum):
    """Sizes that are measured with random weights."""

    PAPER = "70m"


def benchmark(
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME_OR_FOLDER", help="Model to measure; may be given several times (default: mini)."),
    ] = None,
    shape: Annotated[
        Shape | None, typer.Option(help="A size with random weights (default: 70m, unless --model is given).")
    ] = None,
    engine: Annotated[
        list[Engine] | None, typer.Option(help="Engine, may be given several times (default: all there are).")
    ] = None,
    measure: Annotated[
        list[Measure] | None, typer.Option(help="What to measure, may be given several times (default: everything).")
    ] = None,
    lengths: Annotated[str | None, typer.Option(metavar="SECONDS", help="Text lengths, with commas between.")] = None,
    callers: Annotated[str | None, typer.Option(metavar="COUNTS", help="Callers at once, with commas between.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="See that it works; the figures are not to be believed.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write figures as JSON.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Where models with random weights are kept.")] = Path("runs/benchmark"),
) -> None:
    """Measure speed, latency and memory, and print tables; nothing else should run on the machine."""
    if engine and Engine.AUTO in engine:
        raise ConfigError("--engine auto: name the engines to measure, or leave --engine out for all there are")
    extent = choose_extent(quick, lengths, callers)
    plan = []
    for one in choose_models(model or [], shape, work):
        naive = find_spec("torch") is not None and not is_int8(one)
        plan += cases(one, choose_engines(engine or [], one), measure or list(Measure), extent, naive)
    rows = []
    for number, case in enumerate(plan, start=1):
        messages().print(f"{number} of {len(plan)}: {case.label}, {case.engine} {case.weights}, {case.measure.value}")
        rows += measured(case)
    facts = gather_facts(shlex.join(["marstts", *sys.argv[1:]]))
    if json_file is not None:
        json_file.write_text(as_json(facts, rows), encoding="utf-8")
    typer.echo(as_markdown(facts, rows), nl=False)
    if quick:
        warn("these figures are not to be believed: --quick is there to see that everything works")


def choose_extent(quick: bool, lengths: str | None, callers: str | None) -> Extent:
    """How much to measure."""
    extent = QUICK if quick else Extent()
    if lengths is not None:
        extent = replace(extent, lengths=tuple(numbers(lengths, "--lengths", float)))
    if callers is not None:
        extent = replace(extent, callers=tuple(numbers(callers, "--callers", int)))
    return extent


def numbers(text: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    """Positive numbers with commas between, in ascending order."""
    try:
        found = sorted({kind(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not 0 < found[0] <= found[-1] < MOST:
        raise ConfigError(f"{option} {text}: expected numbers above 0 and below {MOST} with commas between")
    return found


def choose_models(names: list[str], shape: Shape | None, work: Path) -> list[Model]:
    """Those asked for; where nothing was, mini and the paper's size, the latter if it can be made here."""
    models = named_models(names, work)
    if shape is not None:
        return models + shaped_models(shape.value, work)
    if names:
        return models
    models = named_models(["mini"], work)
    try:
        return models + shaped_models(Shape.PAPER.value, work)
    except BenchmarkError as error:
        warn(f"the paper's size is left out: {error}")
        return models


def choose_engines(engines: list[Engine], model: Model) -> list[Engine]:
    """Those asked for, or all that can run the model here."""
    if engines:
        return engines
    in_torch = find_spec("torch") is not None and not is_int8(model)
    found = [Engine.ONNX] if has_graphs(model) else []
    found += [Engine.TORCH] if in_torch else []
    return found + ([Engine.CUDA] if in_torch and gpu_name() and has_gpu() else [])
