"""Files of people: only the user who runs the server can read them.

Upstream: `voice_store`, `consents`.  Downstream: the file system.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from marstts.io.files import atomic_path
from marstts.server.api_errors import storage_errors

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically, with its folder; a link is replaced, and what it points to stays.

    ApiError 507 where the disk is full, or cannot be written.
    """
    with storage_errors():
        make_folder(path.parent)
        target = path.with_name(f"{path.name}.new") if path.is_symlink() else path
        with atomic_path(target) as temporary:
            temporary.chmod(FILE_MODE)
            temporary.write_bytes(content)
        if target != path:
            target.replace(path)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, for this user alone."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)


def make_private(path: Path) -> None:
    """Take the rights of others from a file that an earlier version wrote, where that is possible."""
    with suppress(OSError):
        if not path.is_symlink() and path.stat().st_mode & 0o077:
            os.chmod(path, FILE_MODE)
