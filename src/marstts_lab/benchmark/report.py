"""Figures of a benchmark as tables to read and as JSON to compute with, and the machine that they are of.

Upstream: `measures`.  Downstream: readers of the results.
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
from marstts.bundle import label_of
from marstts.io.part_provenance import commit
from marstts_lab.benchmark.plan import Measure

Figures = dict[str, Any]

TITLES = {
    Measure.TOKENS: "Tokens",
    Measure.SPEECH: "Text to audio",
    Measure.CONCURRENCY: "First audible sample, seconds",
    Measure.MEMORY: "Memory",
    Measure.COLD_START: "Cold start",
}
VARIANT = ("model", "engine", "weights")
"""Names in a row that say what was measured."""


def as_json(metadata: dict[str, Any], rows: Sequence[Figures]) -> str:
    """Metadata and all rows."""
    return json.dumps({"metadata": metadata, "rows": list(rows)}, indent=2, ensure_ascii=False) + "\n"


def as_markdown(metadata: dict[str, Any], rows: Sequence[Figures]) -> str:
    """The metadata, a table of each measurement, and the reasons of those that failed."""
    parts = [metadata_paragraph(metadata)]
    for measure, title in TITLES.items():
        if found := [row for row in rows if row["measure"] == measure.value and "failed" not in row]:
            parts.append(f"### {title}\n\n{as_table(found)}")
    failed = [f"- {name_of(row)}, {row['measure']}: {row['failed']}" for row in rows if "failed" in row]
    if failed:
        parts.append("Not measured:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def metadata_paragraph(metadata: dict[str, Any]) -> str:
    """Command, date, versions and machine in two paragraphs."""
    versions = ", ".join(f"{package} {number}" for package, number in metadata["versions"].items())
    return (
        f"`{metadata['command']}`\n\n{metadata['date']}, marstts {metadata['marstts']}, commit {metadata['commit']}; "
        f"{metadata['machine']}; {versions}; OMP_NUM_THREADS {metadata['omp_num_threads']}."
    )


def as_table(rows: Sequence[Figures]) -> str:
    """Rows of one measurement in Markdown; a figure that a row lacks is empty."""
    figures = list(dict.fromkeys(name for row in rows for name in row if name not in ("measure", *VARIANT)))
    lines = [["model", *(name.replace("_", " ") for name in figures)], ["---"] * (1 + len(figures))]
    lines += [[name_of(row), *(format_number(row.get(name)) for name in figures)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def name_of(row: Figures) -> str:
    """What was measured, in a table."""
    model, engine, weights = (row[name] for name in VARIANT)
    return f"{model}, {engine} {weights}"


def format_number(value: float | None) -> str:
    """A whole number as it is, others with three significant digits; empty for None."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


# The machine and the software of a benchmark.

PACKAGES = ("numpy", "onnxruntime", "torch")


def gather_metadata(command: str, models: Sequence[str] = ()) -> dict[str, Any]:
    """Command, versions and machine: everything needed to repeat the measurement.

    `models` are the models (names or folders) that were measured; each gets its revision.
    """
    return {
        "command": command,
        **({"models": ", ".join(map(label_of, models))} if models else {}),
        "date": date.today().isoformat(),
        "marstts": marstts.__version__,
        "commit": commit(),
        "machine": machine(),
        "versions": {package: found for package in PACKAGES if (found := installed(package))},
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", "not set"),
    }


def print_json(result: dict[str, Any], output: Path | None) -> None:
    """Print the result of a benchmark, and write it to `output` if that is given."""
    text = json.dumps(result, indent=1)
    print(text)
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")


def installed(package: str) -> str | None:
    """Version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> str:
    """Processor, cores, memory, system and GPU in one line."""
    parts = [f"{processor()}, {os.cpu_count()} cores"]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        parts.append(f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB of memory")
    parts.append(f"{platform.system()} {platform.release()}, Python {platform.python_version()}")
    gpu = gpu_name()
    return ", ".join([*parts, gpu] if gpu else parts)


def processor() -> str:
    """Name of the processor, where the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def gpu_name() -> str | None:
    """Name of the GPU from its driver: PyTorch would take memory from the measurements that follow."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.splitlines()[0].strip() if found.stdout.strip() else None
