"""Files of people, which only the user who runs the program can read.

Upstream: the folder of voices.  Downstream: `files`, the file system.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from marstts.errors import FileError, MarsError
from marstts.io.files import atomic_path
from marstts.io.reading import os_errors

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def write_private(path: Path, content: bytes, kind: type[MarsError] = FileError) -> None:
    """Write a file atomically, with its folder; a link is replaced, and what it points to stays.

    Raises `kind` where the disk is full, or cannot be written.
    """
    make_folder(path.parent, kind)
    target = path.with_name(f"{path.name}.new") if path.is_symlink() else path
    with atomic_path(target, kind) as temporary:
        temporary.chmod(FILE_MODE)
        temporary.write_bytes(content)
    if target != path:
        with os_errors(path, kind=kind):
            target.replace(path)


def make_folder(folder: Path, kind: type[MarsError] = FileError) -> None:
    """Make a folder and those above it that are missing, for this user alone; raises `kind` where that fails."""
    if not folder.is_dir():
        make_folder(folder.parent, kind)
        with os_errors(folder, "be made", kind):
            folder.mkdir(FOLDER_MODE, exist_ok=True)


def make_private(path: Path) -> None:
    """Take the rights of others from a file that an earlier version wrote, where that is possible."""
    with suppress(OSError):
        if not path.is_symlink() and path.stat().st_mode & 0o077:
            os.chmod(path, FILE_MODE)
