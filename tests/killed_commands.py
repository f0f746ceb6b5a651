"""Runs a command in a child and kills it at the N-th operation on a file that changes one, or after B written bytes.

`python killed_commands.py` reads lines of JSON, [SCENARIO, FOLDER, POINT], and prints one for each: whether the child
was killed, and after how many operations it ended where it was not. Modules are imported once; each child is a fork.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def changes_a_file(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an audit event is an operation that creates, opens for writing, renames or removes a file."""
    return event in EVENTS or (event == "open" and bool(arguments[2] & WRITING))


class Killer:
    """Kills this process just before the operation number `point`."""

    def __init__(self, point: int) -> None:
        self.point, self.count, self.active = point, 0, False

    def step(self) -> None:
        if self.active:
            self.count += 1
            if self.count == self.point:
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        sys.addaudithook(lambda event, arguments: self.step() if changes_a_file(event, arguments) else None)
        for name in ("fsync", "ftruncate", "fchmod"):  # which raise no audit event everywhere
            setattr(os, name, self.counted(getattr(os, name)))
        self.active = True

    def counted(self, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.step()
            return function(*arguments, **options)

        return call


def speak(folder: Path) -> list[str]:
    import marstts.cli.speak
    from scripted import good, scripted_synthesizer

    marstts.cli.speak.load = lambda *how: scripted_synthesizer(good)
    return ["speak", "The cat sat.", "--voice", str(folder / "a.voice"), "--output", str(folder / "target.wav")]


def stream(folder: Path) -> list[str]:
    return [*speak(folder), "--stream"]


def batch(folder: Path) -> list[str]:
    words = speak(folder)
    (folder / "lines.txt").write_text("The cat sat.\nShe sells.\n", encoding="utf-8")
    return [words[0], "--file", str(folder / "lines.txt"), *words[2:5], str(folder / "target"), "--batch", "1"]


def book(folder: Path) -> list[str]:
    from small_epub import write_small_epub

    words = speak(folder)
    write_small_epub(folder / "book.epub")
    return [words[0], "--file", str(folder / "book.epub"), *words[2:5], f"{folder / 'target'}/"]


SCENARIOS = {
    "speak": speak,
    "stream": stream,
    "batch": batch,
    "book": book,
}


def run_child(words: list[str], point: str) -> None:
    """Run the command; `point` is "N" for the N-th operation, "Bytes N" for the N-th byte of any file."""
    from typer.testing import CliRunner

    from marstts.cli.main import app

    killer = Killer(0 if point.startswith("b") else int(point))
    if point.startswith("b"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ends the process in the middle of a write
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(point[1:]),) * 2)
    killer.install()
    result = CliRunner().invoke(app, words)
    killer.active = False
    outcome = {"killed": False, "exit": result.exit_code, "operations": killer.count, "message": result.stderr}
    print(json.dumps(outcome), flush=True)
    os._exit(0)


def main() -> None:
    from typer.testing import CliRunner

    from marstts.cli.main import app

    warnings.simplefilter("ignore")
    commands: dict[Path, list[str]] = {}
    for line in sys.stdin:
        scenario, name, point = json.loads(line)
        folder = Path(name)
        if folder not in commands:
            commands[folder] = SCENARIOS[scenario](folder)
            shutil.copytree(folder, folder.with_name("kept"), symlinks=True)
            CliRunner().invoke(app, commands[folder])  # imports all that the command imports
            assert threading.active_count() == 1
        shutil.rmtree(folder)
        shutil.copytree(folder.with_name("kept"), folder, symlinks=True)
        child = os.fork()
        if child == 0:
            run_child(commands[folder], point)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print(json.dumps({"killed": True, "signal": os.WTERMSIG(status)}), flush=True)


if __name__ == "__main__":
    main()
