"""Commands in forks of one process that has imported the large packages: each saves seconds of imports.

`ForkedCommands` is the test's side. Its `bin` folder has the commands as clients: they send their arguments, variables
and streams to the server, which forks itself, and they end as the fork does. A client that ends takes its fork along.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from runpy import run_module, run_path
from typing import Any

COMMANDS = {"marstts": "marstts", "torchrun": "torch.distributed.run"}

TRAINING = ("torch._dynamo", "marstts_lab.training.mars6.task", "marstts_lab.preference.train")
EXPORT = ("torch.onnx._internal.exporter._core", "onnxscript.function_libs.torch_lib.ops", "scipy.stats")
"""Modules that take long to import, and start no thread."""

KILL_BEFORE = "KILL_BEFORE"
"""Variable: a path. All commands are killed just before one of them renames something to it."""

KILL = b"kill"

CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
call = {{"module": {module!r}, "arguments": sys.argv[1:], "folder": os.getcwd(), "variables": dict(os.environ)}}
socket.send_fds(server, [json.dumps(call).encode()], [0, 1, 2])
signal.signal(signal.SIGTERM, lambda number, frame: server.send(b"15"))
sys.exit(int(server.recv(9) or 137))
"""


class ForkedCommands:
    """A server, and a folder of commands that it runs."""

    def __init__(self, folder: Path, preloaded: tuple[str, ...] = TRAINING + EXPORT, **scripts: Path) -> None:
        """`preloaded` modules are imported once; `scripts` are files of Python that are commands, too."""
        self.address, self.bin = str(folder / "server"), folder / "bin"
        self.bin.mkdir()
        for name, module in {**COMMANDS, **{name: str(path) for name, path in scripts.items()}}.items():
            client = CLIENT.format(python=sys.executable, address=self.address, module=module)
            (self.bin / name).write_text(client)
            (self.bin / name).chmod(0o755)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, self.address, *preloaded]
        self.server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)
        assert self.server.stdout is not None and self.server.stdout.readline() == b"ready\n"

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Variables of a script that uses these commands."""
        path = f"{self.bin}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **variables}

    def close(self) -> None:
        """End the server, and all that it runs."""
        kill_all(self.address)
        self.server.kill()
        self.server.wait()


def kill_all(address: str) -> None:
    """Kill all commands that a server runs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        server.send(KILL)
        server.recv(1)


def serve(address: str, preloaded: list[str]) -> None:
    """Run one command for each connection, until this process is killed."""
    for name in preloaded:
        importlib.import_module(name)
    score_at_once()
    assert threading.active_count() == 1
    gc.freeze()
    running: set[int] = set()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            running = {process for process in running if os.waitpid(process, os.WNOHANG) == (0, 0)}
            message, streams, _, _ = socket.recv_fds(connection, 2**20, 3)
            if message == KILL:
                for process in running:
                    os.killpg(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                running.clear()
            elif process := os.fork():
                running.add(process)
            else:
                listener.close()
                os.setpgid(0, 0)
                return run(connection, json.loads(message), streams, address)
            for stream in streams:
                os.close(stream)
            connection.close()


def score_at_once() -> None:
    """Replace the metrics that take seconds for each take; those of a toy's speech say nothing."""
    from marstts_lab.metrics.quality import Dnsmos
    from marstts_lab.metrics.recognition import SphinxRecognizer

    SphinxRecognizer.transcribe = lambda self, waveform: ["word"]
    Dnsmos.rate = lambda self, waveform: dict.fromkeys(self.scales, waveform.seconds)


def run(connection: socket.socket, call: Mapping[str, Any], streams: list[int], address: str) -> None:
    """Run a command in another fork, pass signals on, and tell the client how it ended."""
    if not (child := os.fork()):
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in enumerate("rww"))  # noqa: SIM115
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["variables"])
        if (target := os.environ.get(KILL_BEFORE)) is not None:
            sys.addaudithook(lambda event, values: kill_all(address) if is_rename_to(target, event, values) else None)
        sys.argv = [call["module"], *call["arguments"]]
        with end_at_once():
            if call["module"].endswith(".py"):
                run_path(call["module"], run_name="__main__")
            else:
                run_module(call["module"], run_name="__main__", alter_sys=True)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(child)
    while connection in select.select([connection, ended], [], [])[0]:
        number = connection.recv(9)
        os.kill(child, int(number or signal.SIGKILL))
        if not number:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.send(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


@contextmanager
def end_at_once() -> Iterator[None]:
    """End this process as Python does, without the second that freeing all modules takes."""
    code = 0
    try:
        yield
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        code = 1
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_rename_to(target: str, event: str, values: tuple[Any, ...]) -> bool:
    """Whether an audit event is a rename to a path."""
    return event == "os.rename" and os.fspath(values[1]) == target


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
