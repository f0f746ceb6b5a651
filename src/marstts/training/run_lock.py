"""One training per run folder: a second process that writes to the same folder is refused.

Upstream: every command that trains.  Downstream: `files.lock_folder`. Under `torchrun` the first process holds the lock
for all. A process may enter the lock of a folder again: commands hold it while they prepare the folder, and so does the
training loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marstts.errors import CheckpointError
from marstts.io.files import lock_folder
from marstts.training import distributed

_held: set[Path] = set()
"""Folders that this process has locked."""


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, which is made if it is missing, while the body runs.

    CheckpointError where another living process holds it; the system frees the lock of a killed process.
    """
    distributed.init_distributed()
    resolved = folder.resolve()
    if not distributed.is_main() or resolved in _held:
        yield
        return
    with lock_folder(folder, CheckpointError):
        _held.add(resolved)
        try:
            yield
        finally:
            _held.discard(resolved)
