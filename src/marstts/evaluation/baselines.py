"""The paper's baselines by their public packages, each in its own environment: XTTSv2, StyleTTS 2, MetaVoice-1B.

Upstream: `metrics.testset.Trial`.  Downstream: `score`. MARS6 (arXiv:2501.05787), Sec. V, Table I.

Their packages need versions of PyTorch that differ from ours and from each other's, so each runs as a process of the
given Python interpreter, with weights downloaded under their own licenses. For a package that is not available, a
folder of WAV files is scored alike (`systems.TakesFolder`).
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError
from marstts.evaluation import baseline_worker
from marstts.metrics.testset import Trial


class Baseline:
    """One baseline; a `systems.System`. Its process starts with the first take and ends with `close`."""

    timed = True

    def __init__(self, name: str, python: str) -> None:
        """`python` is the interpreter of the environment that has the package."""
        self.name = name
        settings = ", ".join(f"{key} {value}" for key, value in baseline_worker.SETTINGS[name].items())
        self.version = f"{name}, {settings}"
        self.min_reference_seconds = baseline_worker.MIN_REFERENCE_SECONDS.get(name, 0.0)
        self._python = python
        self._process: subprocess.Popen[str] | None = None

    def speak(self, trial: Trial) -> Waveform:
        """The take; DataError where the package cannot be opened or fails on this sentence."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "take.wav"
            reference = long_enough(trial.reference, self.min_reference_seconds, Path(folder))
            self.ask({"text": trial.text, "reference": str(reference.resolve()), "output": str(output)})
            return audio.read(output)

    def ask(self, request: dict[str, Any]) -> None:
        """Send one request and wait until it is done; DataError with the worker's error."""
        process = self._process or self.start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise DataError(f"{self.name}: its process has ended: exit code {process.wait()}") from error
        self.read_answer(process)

    def start(self) -> subprocess.Popen[str]:
        """The package's process, its model loaded; BaselineMissingError where it cannot be opened."""
        command = [self._python, baseline_worker.__file__, self.name]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise BaselineMissingError(f"{self.name}: {self._python} cannot be started: {error.strerror}") from error
        try:
            self.read_answer(process)
        except DataError as error:
            process.kill()
            process.wait()
            raise BaselineMissingError(
                f"{error}; install its package for {self._python}, or give a folder of its takes as a system"
            ) from error
        self._process = process
        return process

    def read_answer(self, process: subprocess.Popen[str]) -> None:
        """Wait for one answer; DataError with its error, if it has one."""
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise DataError(f"{self.name}: its process ended without an answer: exit code {process.wait()}")
        error = json.loads(line)["error"]
        if error is not None:
            raise DataError(f"{self.name}: {error}")

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def long_enough(reference: Path, seconds: float, folder: Path) -> Path:
    """The reference, or a file in `folder` in which it is repeated to a minimum length, in seconds."""
    if not seconds or (waveform := audio.read(reference)).seconds >= seconds:
        return reference
    path = folder / "repeated" / reference.with_suffix(".wav").name
    path.parent.mkdir()
    size = math.ceil(seconds / waveform.seconds) * len(waveform.samples)
    audio.write(Waveform(np.resize(waveform.samples, size), waveform.sample_rate), path)
    return path


class BaselineMissingError(DataError):
    """The package cannot be opened: a reason to stop, not a missing take."""
