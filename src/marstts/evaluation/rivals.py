"""The paper's baselines, each by its own public package in an environment of its own: XTTSv2, StyleTTS 2, MetaVoice-1B.

Upstream: `testset.Trial`.  Downstream: `score`. MARS6 (arXiv:2501.05787), Sec. V, Table I.

Their packages want versions of PyTorch that differ from ours and from each other's, so each runs as a process under the
Python a person names, with weights that person has fetched under the licences that come with them. Where a package
cannot be had, a folder of wavs made in any way is judged alike (`systems.TakesFolder`).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import DataError
from marstts.evaluation import rival_runner
from marstts.evaluation.testset import Trial


class Rival:
    """One baseline. Its process starts with the first take and ends with `close`, or with this one."""

    timed = True

    def __init__(self, name: str, python: str) -> None:
        """`python` is the interpreter of the environment in which the package is installed."""
        self.name = name
        self.version = f"{name}, defaults of its package"
        self._python = python
        self._process: subprocess.Popen[str] | None = None

    def speak(self, trial: Trial) -> Waveform:
        """The take; DataError where the package cannot be opened, or fails on this sentence."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "take.wav"
            self.ask({"text": trial.text, "reference": str(trial.reference.resolve()), "output": str(output)})
            return audio.read(output)

    def ask(self, request: dict[str, Any]) -> None:
        """Hand over one request and wait until it is done; DataError with what went wrong."""
        process = self._process or self.start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise DataError(f"{self.name}: its process has ended: exit code {process.wait()}") from error
        self.hear_answer(process)

    def start(self) -> subprocess.Popen[str]:
        """The package's process, ready to speak."""
        command = [self._python, rival_runner.__file__, self.name]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise DataError(f"{self.name}: {self._python} cannot be started: {error.strerror}") from error
        try:
            self.hear_answer(process)
        except DataError as error:
            process.kill()
            raise RivalMissing(
                f"{error}; install its package for {self._python}, or give a folder of its takes as a system"
            ) from error
        self._process = process
        return process

    def hear_answer(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise DataError(f"{self.name}: its process ended without an answer: exit code {process.wait()}")
        problem = json.loads(line)["problem"]
        if problem is not None:
            raise DataError(f"{self.name}: {problem}")

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


class RivalMissing(DataError):
    """The package is not there at all: a reason to stop, not a missing take."""
