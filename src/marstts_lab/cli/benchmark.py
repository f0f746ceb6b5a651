"""`marstts benchmark`: speed, latency and memory on this machine."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from marstts.cli.terminal import say
from marstts.errors import BenchmarkError, ConfigError
from marstts.generation.engine import EngineKind
from marstts.io.files import write_file
from marstts.synthesis.loading import has_gpu
from marstts_lab.benchmark.plan import QUICK, BenchmarkScale, Measure
from marstts_lab.benchmark.report import as_json, as_markdown, gather_metadata, gpu_name
from marstts_lab.benchmark.runner import BenchmarkedModel, has_graphs, named_models, plan_cases, run_case

log = logging.getLogger(__name__)

Number = TypeVar("Number", int, float)

MAX_NUMBER = 1000
"""Bound of lengths in seconds and of concurrent callers."""


def benchmark(
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME_OR_FOLDER", help="Model to measure; may be given several times (default: mini)."),
    ] = None,
    engine: Annotated[
        list[EngineKind] | None,
        typer.Option(help="Engine, may be given several times (default: all available).", case_sensitive=False),
    ] = None,
    measure: Annotated[
        list[Measure] | None, typer.Option(help="What to measure, may be given several times (default: everything).")
    ] = None,
    lengths: Annotated[str | None, typer.Option(metavar="SECONDS", help="Text lengths, separated by commas.")] = None,
    concurrency: Annotated[
        str | None, typer.Option(metavar="COUNTS", help="Numbers of concurrent callers, separated by commas.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Test the benchmark itself; the figures are unreliable.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write figures as JSON.")
    ] = None,
) -> None:
    """Measure speed, latency and memory, and print tables; nothing else should run on the machine."""
    if engine and EngineKind.AUTO in engine:
        raise ConfigError("--engine auto: name the engines to measure, or leave --engine out for all available ones")
    scale = choose_scale(quick, lengths, concurrency)
    cases = []
    for one in named_models(model or ["mini"]):
        cases += plan_cases(one, choose_engines(engine or [], one), measure or list(Measure), scale)
    rows = []
    for number, case in enumerate(cases, start=1):
        log.info(f"{number} of {len(cases)}: {case.label}, {case.engine} {case.weights}, {case.measure.value}")
        rows += run_case(case)
    metadata = gather_metadata(shlex.join(["marstts", *sys.argv[1:]]), model or ["mini"])
    if json_file is not None:
        write_file(json_file, as_json(metadata, rows), BenchmarkError)
    say(as_markdown(metadata, rows), nl=False)
    if quick:
        log.warning("these figures are unreliable: --quick only tests that the benchmark works")


def choose_scale(quick: bool, lengths: str | None, concurrency: str | None) -> BenchmarkScale:
    """The scale that the options ask for."""
    scale = QUICK if quick else BenchmarkScale()
    if lengths is not None:
        scale = scale.model_copy(update={"lengths": tuple(parse_numbers(lengths, "--lengths", float))})
    if concurrency is not None:
        scale = scale.model_copy(update={"concurrency": tuple(parse_numbers(concurrency, "--concurrency", int))})
    return scale


def parse_numbers(text: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    """Positive numbers separated by commas, in ascending order."""
    try:
        found = sorted({kind(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(0 < number < MAX_NUMBER for number in found):
        raise ConfigError(f"{option} {text}: expected numbers above 0 and below {MAX_NUMBER}, separated by commas")
    return found


def choose_engines(engines: list[EngineKind], model: BenchmarkedModel) -> list[EngineKind]:
    """The given engines, or all that can run the model on this machine."""
    if engines:
        return engines
    in_torch = find_spec("torch") is not None
    found = [EngineKind.ONNX] if has_graphs(model) else []
    found += [EngineKind.TORCH] if in_torch else []
    return found + ([EngineKind.CUDA] if in_torch and gpu_name() and has_gpu() else [])
