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
from typing import Any, NamedTuple

import marstts
from marstts.benchmark.plan import Measure

Table = tuple[list[str], list[list[str]]]
"""Column names and rows."""


Figures = dict[str, Any]


class Variant(NamedTuple):
    """A model on an engine, with a format of weights."""

    model: str
    engine: str
    weights: str


class MeasuredRows:
    """All rows of a benchmark that were measured, by variant."""

    def __init__(self, rows: Sequence[Figures]) -> None:
        self.rows = [row for row in rows if "failed" not in row]

    @property
    def variants(self) -> list[Variant]:
        """The variants in the order of their first rows."""
        return list(dict.fromkeys(map(variant_of, self.rows)))

    def of(self, variant: Variant, measure: Measure, **values: Any) -> list[Figures]:
        """The rows of one measurement of a variant with these values."""
        return [row for row in self.rows if variant_of(row) == variant and matches(row, measure, **values)]

    def one(self, variant: Variant, measure: Measure, figure: str, **values: Any) -> float | None:
        """A figure of the first row with these values, if there is one."""
        rows = self.of(variant, measure, **values)
        return float(rows[0][figure]) if rows else None

    def lengths(self, measure: Measure) -> list[float]:
        """Lengths that were measured, in ascending order."""
        return sorted({row["seconds"] for row in self.rows if matches(row, measure)})

    @property
    def reference(self) -> float:
        """The length at which batches were measured."""
        return next((float(row["seconds"]) for row in self.rows if row.get("batch", 1) > 1), 10.0)


def variant_of(row: Figures) -> Variant:
    """The variant that a row belongs to."""
    return Variant(row["model"], row["engine"], row["weights"])


def matches(row: Figures, measure: Measure, **values: Any) -> bool:
    """Whether a row belongs to a measurement and has these values."""
    return row["measure"] == measure.value and all(row.get(name) == value for name, value in values.items())


def as_json(metadata: dict[str, Any], rows: Sequence[Figures]) -> str:
    """Metadata and all rows."""
    return json.dumps({"metadata": metadata, "rows": list(rows)}, indent=2, ensure_ascii=False) + "\n"


def as_markdown(metadata: dict[str, Any], rows: Sequence[Figures]) -> str:
    """The metadata and all tables that are not empty."""
    measured = MeasuredRows(rows)
    sections = {
        "Tokens, one text: RTF": tokens_table(measured),
        f"Tokens, several texts of {measured.reference:g} s in a batch": batches_table(measured),
        "Text to audio: RTF": speech_table(measured),
        "First audible sample, seconds (median / 95th percentile of requests)": concurrency_table(measured),
        "Memory and cold start": memory_table(measured),
    }
    parts = [metadata_paragraph(metadata)]
    parts += [f"### {title}\n\n{as_table(*table)}" for title, table in sections.items() if table[1]]
    failed = [f"- {name_of(variant_of(row))}, {row['measure']}: {row['failed']}" for row in rows if "failed" in row]
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


def tokens_table(measured: MeasuredRows) -> Table:
    """A column for every length, and further figures of the reference length."""
    lengths, reference = measured.lengths(Measure.TOKENS), measured.reference
    lines = []
    for variant in measured.variants:
        if not measured.of(variant, Measure.TOKENS):
            continue
        single = {"batch": 1, "seconds": reference}
        cells = [measured.one(variant, Measure.TOKENS, "rtf", batch=1, seconds=length) for length in lengths]
        cells.append(measured.one(variant, Measure.TOKENS, "tokens_per_second", **single))
        first = measured.one(variant, Measure.TOKENS, "first_patch_seconds", **single)
        cells.append(None if first is None else 1000 * first)
        lines.append([name_of(variant), *map(format_number, cells)])
    further = ["tokens per second", "first patch, ms"]
    return ["model", *(f"{length:g} s" for length in lengths), *(f"{one}, {reference:g} s" for one in further)], lines


def batches_table(measured: MeasuredRows) -> Table:
    """A row for each batch size above one."""
    lines = []
    for variant in measured.variants:
        one = measured.one(variant, Measure.TOKENS, "rtf", batch=1, seconds=measured.reference)
        for row in measured.of(variant, Measure.TOKENS, seconds=measured.reference):
            if row["batch"] > 1:
                ratio = None if one is None else one / row["rtf"]
                cells = map(format_number, (row["rtf"], 1 / row["rtf"], ratio))
                lines.append([name_of(variant), str(row["batch"]), *cells])
    return ["model", "batch size", "RTF of the batch", "times real time", "throughput over one text"], lines


def speech_table(measured: MeasuredRows) -> Table:
    """A column for every length, and the time to load the model."""
    lengths = measured.lengths(Measure.SPEECH)
    lines = []
    for variant in measured.variants:
        if rows := measured.of(variant, Measure.SPEECH):
            cells = [measured.one(variant, Measure.SPEECH, "rtf", seconds=length) for length in lengths]
            lines.append([name_of(variant), *map(format_number, cells), format_number(rows[0]["load_seconds"])])
    return ["model", *(f"{length:g} s" for length in lengths), "loading, s"], lines


def concurrency_table(measured: MeasuredRows) -> Table:
    """A column for every number of concurrent callers."""
    counts = sorted({row["concurrency"] for row in measured.rows if row["measure"] == Measure.CONCURRENCY.value})
    lines = []
    for variant in measured.variants:
        if measured.of(variant, Measure.CONCURRENCY):
            cells = []
            for count in counts:
                rows = measured.of(variant, Measure.CONCURRENCY, concurrency=count)
                both = [format_number(row[f"first_audible_{p}"]) for row in rows for p in ("p50", "p95")]
                cells.append(" / ".join(both))
            lines.append([name_of(variant), *cells])
    return ["model", *(f"concurrency {count}" for count in counts)], lines


def memory_table(measured: MeasuredRows) -> Table:
    """Peak memory and cold start of each variant."""
    lines = []
    for variant in measured.variants:
        cells = [
            measured.one(variant, Measure.MEMORY, "peak_megabytes"),
            next((row.get("gpu_peak_megabytes") for row in measured.of(variant, Measure.MEMORY)), None),
            measured.one(variant, Measure.COLD_START, "first_sample_seconds"),
        ]
        if any(cell is not None for cell in cells):
            lines.append([name_of(variant), *map(format_number, cells)])
    return ["model", "peak memory, MB", "peak GPU memory, MB", "cold start to first sample, s"], lines


def as_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def name_of(variant: Variant) -> str:
    """A variant in a table."""
    return f"{variant.model}, {variant.engine} {variant.weights}"


def format_number(value: float | None) -> str:
    """Three significant digits; empty for None."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


# The machine and the software of a benchmark.

PACKAGES = ("numpy", "onnxruntime", "torch")


def gather_metadata(command: str) -> dict[str, Any]:
    """Command, versions and machine: everything needed to repeat the measurement."""
    return {
        "command": command,
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


def commit() -> str:
    """Commit of the checkout that this package runs from, with "+" if it was changed; "unknown" if it is installed."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip() + ("+" if changed.stdout.strip() else "")


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
