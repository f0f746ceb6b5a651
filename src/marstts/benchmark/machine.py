"""The machine and the software of a benchmark.

Upstream: `cli.benchmark`.  Downstream: the operating system, git, the GPU's driver.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import marstts

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
