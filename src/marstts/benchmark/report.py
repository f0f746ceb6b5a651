"""Figures as tables to read and as JSON to compute with.

Upstream: `measures`, `bars`.  Downstream: people, `docs/results.md`.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import marstts
from marstts.benchmark.bars import Figures, Measured, Way, against_naive, judge
from marstts.benchmark.plan import Measure

PACKAGES = ("numpy", "onnxruntime", "torch")

Table = tuple[list[str], list[list[str]]]
"""Heads and rows."""


def as_json(facts: dict[str, Any], rows: Sequence[Figures]) -> str:
    """Everything, with each bar's figure beside it."""
    bars = [
        {"bar": one.bar.name, **one.way._asdict(), "limit": one.bar.limit, "figure": one.figure, "met": one.is_met}
        for one in judge(rows)
    ]
    return json.dumps({"facts": facts, "rows": list(rows), "bars": bars}, indent=2, ensure_ascii=False) + "\n"


def as_markdown(facts: dict[str, Any], rows: Sequence[Figures]) -> str:
    """The tables that have anything in them, facts first."""
    measured = Measured(rows)
    sections = {
        "Bars": bars_table(rows),
        "Tokens, one text: RTF": tokens_table(measured),
        f"Tokens, several texts of {measured.reference:g} s at once": batches_table(measured),
        "Text to audio: RTF": speech_table(measured),
        "First audible sample, seconds (half of the requests / 95 % of them)": callers_table(measured),
        "Memory and start": memory_table(measured),
    }
    parts = [facts_paragraph(facts)]
    parts += [f"### {title}\n\n{as_table(*table)}" for title, table in sections.items() if table[1]]
    failed = [f"- {name(way_of(row))}, {row['measure']}: {row['failed']}" for row in rows if "failed" in row]
    if failed:
        parts.append("Not measured:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def facts_paragraph(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {number}" for package, number in facts["versions"].items())
    return (
        f"`{facts['command']}`\n\n{facts['date']}, marstts {facts['marstts']}, commit {facts['commit']}; "
        f"{facts['machine']}; {versions}; OMP_NUM_THREADS {facts['omp_num_threads']}."
    )


def bars_table(rows: Sequence[Figures]) -> Table:
    lines = []
    for verdict in judge(rows):
        bar = verdict.bar
        wanted = f"{'at least' if bar.at_least else 'at most'} {number(bar.limit)}{unit(bar.unit)}"
        mark = "met" if verdict.is_met else "**missed**"
        lines.append([bar.name, name(verdict.way), wanted, f"{number(verdict.figure)}{unit(bar.unit)}", mark])
    return ["bar", "model", "wanted", "measured", "met?"], lines


def tokens_table(measured: Measured) -> Table:
    """A column for every length, and what one text of the reference length says besides."""
    lengths, reference = measured.lengths(Measure.TOKENS), measured.reference
    lines = []
    for way in measured.ways:
        if not measured.of(way, Measure.TOKENS):
            continue
        single = {"batch": 1, "seconds": reference}
        cells = [measured.one(way, Measure.TOKENS, "rtf", batch=1, seconds=length) for length in lengths]
        cells.append(measured.one(way, Measure.TOKENS, "tokens_per_second", **single))
        first = measured.one(way, Measure.TOKENS, "first_patch_seconds", **single)
        cells.append(None if first is None else 1000 * first)
        cells.append(against_naive(measured, way, reference))
        lines.append([name(way), *map(number, cells)])
    heads = [f"{length:g} s" for length in lengths]
    besides = ["tokens per second", "first patch, ms", "times the naive mode"]
    return ["model", *heads, *(f"{title}, {reference:g} s" for title in besides)], lines


def batches_table(measured: Measured) -> Table:
    lines = []
    for way in measured.ways:
        one = measured.one(way, Measure.TOKENS, "rtf", batch=1, seconds=measured.reference)
        for row in measured.of(way, Measure.TOKENS, seconds=measured.reference):
            if row["batch"] > 1:
                ratio = None if one is None else one / row["rtf"]
                lines.append([name(way), str(row["batch"]), *map(number, (row["rtf"], 1 / row["rtf"], ratio))])
    return ["model", "texts", "RTF of all together", "times real time", "throughput against one"], lines


def speech_table(measured: Measured) -> Table:
    lengths = measured.lengths(Measure.SPEECH)
    lines = []
    for way in measured.ways:
        if rows := measured.of(way, Measure.SPEECH):
            cells = [measured.one(way, Measure.SPEECH, "rtf", seconds=length) for length in lengths]
            lines.append([name(way), *map(number, cells), number(rows[0]["load_seconds"])])
    return ["model", *(f"{length:g} s" for length in lengths), "loading, s"], lines


def callers_table(measured: Measured) -> Table:
    counts = sorted({row["callers"] for row in measured.rows if row["measure"] == Measure.CALLERS.value})
    lines = []
    for way in measured.ways:
        if measured.of(way, Measure.CALLERS):
            cells = []
            for count in counts:
                rows = measured.of(way, Measure.CALLERS, callers=count)
                both = [number(row[f"first_audible_{p}"]) for row in rows for p in ("p50", "p95")]
                cells.append(" / ".join(both))
            lines.append([name(way), *cells])
    return ["model", *(f"{count} caller{'s' if count > 1 else ''}" for count in counts)], lines


def memory_table(measured: Measured) -> Table:
    lines = []
    for way in measured.ways:
        cells = [
            measured.one(way, Measure.MEMORY, "peak_megabytes"),
            next((row.get("gpu_peak_megabytes") for row in measured.of(way, Measure.MEMORY)), None),
            measured.one(way, Measure.START, "first_sample_seconds"),
        ]
        if any(cell is not None for cell in cells):
            lines.append([name(way), *map(number, cells)])
    return ["model", "peak memory, MB", "peak GPU memory, MB", "process start to first sample, s"], lines


def as_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def way_of(row: Figures) -> Way:
    return Way(row["model"], row["engine"], row["weights"])


def name(way: Way) -> str:
    return f"{way.model}, {way.engine} {way.weights}"


def number(value: float | None) -> str:
    """Three significant digits, and none where nothing was measured."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def unit(name: str) -> str:
    return f" {name}" if name else ""


def gather_facts(command: str) -> dict[str, Any]:
    """What a reader needs to know to measure again."""
    return {
        "command": command,
        "date": date.today().isoformat(),
        "marstts": marstts.__version__,
        "commit": commit(),
        "machine": machine(),
        "versions": {package: found for package in PACKAGES if (found := installed(package))},
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", "not set"),
    }


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str:
    """Of the checkout this package runs from, "+" if it was changed since; "unknown" where it is installed."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")


def machine() -> str:
    """Processor, cores, memory, system and GPU in a line."""
    parts = [f"{processor()}, {os.cpu_count()} cores"]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        parts.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB of memory")
    parts.append(f"{platform.system()} {platform.release()}, Python {platform.python_version()}")
    gpu = gpu_name()
    return ", ".join([*parts, gpu] if gpu else parts)


def processor() -> str:
    """The processor's own name, where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def gpu_name() -> str | None:
    """The GPU's name, asked of its driver: PyTorch would take memory from the measurements that follow."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.splitlines()[0].strip() if found.stdout.strip() else None
