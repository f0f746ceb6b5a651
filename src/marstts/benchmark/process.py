"""Processes from outside and inside: time until a command's first output, peak memory of this process.

Upstream: `measures`.  Downstream: the operating system.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from marstts.errors import BenchmarkError
from marstts.voice import Voice

SAMPLE_BYTES = 2


def first_sample_seconds(model: str, engine: str, text: str, voice: Voice) -> float:
    """Seconds from the start of a `marstts speak --stream` process to its first sample."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.voice"
        voice.save(path)
        command = [sys.executable, "-m", "marstts", "speak", text, "--model", model, "--voice", str(path)]
        return first_output_seconds([*command, "--engine", engine, "--stream", "--output", "-"], SAMPLE_BYTES)


def first_output_seconds(command: list[str], count: int) -> float:
    """Seconds until a command has written `count` bytes to standard output; waits for the end of the command."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        received = process.stdout.read(count)
        seconds = time.perf_counter() - started
        _, errors = process.communicate()
    if process.returncode or len(received) < count:
        raise BenchmarkError(f"{shlex.join(command)} failed: {errors.decode(errors='replace').strip()}")
    return seconds


def peak_megabytes() -> float:
    """Peak memory of this process.

    Linux counts it per program; `getrusage` may include the memory of the parent at the time of the fork.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        [line] = [line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
