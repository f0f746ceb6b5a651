"""Files of people, which only the user who runs the server can read, and their ids and names.

Upstream: `voice_store`.  Downstream: the file system.
"""

from __future__ import annotations

import os
import secrets
import string
from contextlib import suppress
from pathlib import Path

from marstts.io.files import atomic_path
from marstts.server.api_errors import ApiError, storage_errors

FILE_MODE, FOLDER_MODE = 0o600, 0o700
NAME_CHARACTERS = 64


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


def new_id(prefix: str) -> str:
    """A random id of 128 bits or more, which cannot be guessed; it is the file's name, too."""
    return prefix + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(26))


def check_name(name: str) -> None:
    """ApiError where no voice can have this name."""
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise ApiError(400, f"name: expected 1 to {NAME_CHARACTERS} printable characters.", param="name")
