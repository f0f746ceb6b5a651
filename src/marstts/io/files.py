"""Writing files and folders so that nothing is lost, and keeping other processes out of a folder.

Upstream: every module that writes.  Downstream: the file system.  Readers are in `reading`.
A writer fills a temporary file or folder next to the final one, flushes it to disk and renames it: killing the
process leaves the old file or the new one. What a killed process leaves is removed by the next writer of that name.
Every failure of the disk becomes one sentence of the exception that the caller names (`kind`), or a `FileError`.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from marstts.errors import FileError, MarsError
from marstts.io.reading import DISK_ERRNOS, describe_os_error, disk_problem, os_errors, printable_name

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

LOCK_FILE = ".lock"
"""Name of the file that `lock_folder` locks; it stays, empty, since removing it would break the lock."""


@contextmanager
def atomic_path(path: Path | str, kind: type[MarsError] = FileError) -> Iterator[Path]:
    """A path next to `path`, with its suffix, for a library that writes files; becomes `path` when the body ends.

    On any error, what lay at `path` stays. Missing parent folders are made. A link's target is replaced, not the link.
    A device or pipe that exists at `path` is given as it is. Raises `kind` where the disk is full or read-only.
    """
    with os_errors(path, kind=kind):
        final, is_special = _resolve_target(Path(path), kind)
    if is_special:
        with _disk_errors(final, kind):
            yield final
        return
    with os_errors(final, kind=kind):
        temporary, claim = _make_temporary(final, is_folder=False)
    try:
        with _disk_errors(final, kind):
            yield temporary
            _finish(temporary, final, os.fstat(claim).st_mode)
    finally:
        with suppress(OSError):
            temporary.unlink()
        os.close(claim)


@contextmanager
def atomic_write(path: Path | str, kind: type[MarsError] = FileError) -> Iterator[BinaryIO]:
    """A binary file, open for writing, that becomes `path` when the body ends; otherwise as `atomic_path`."""
    with atomic_path(path, kind) as temporary, _open_for_writing(temporary) as file:
        yield file


def write_file(path: Path | str, content: bytes | str, kind: type[MarsError] = FileError) -> None:
    """Write a whole file atomically; text as UTF-8."""
    with atomic_write(path, kind) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def partial_path(path: Path | str) -> Path:
    """Path of a growing file until it is complete: NAME.partial.SUFFIX, next to `path`."""
    final = Path(path)
    return final.with_name(f"{final.stem}.partial{final.suffix}")


@contextmanager
def growing_path(path: Path | str, kind: type[MarsError] = FileError) -> Iterator[Path]:
    """A path for a file that takes long to write and is of use before it is complete; becomes `path` at the end.

    It is `partial_path(path)`, an empty file, and stays there when the body raises or the process is killed, if there
    is anything in it; the next call for the same `path` begins again. What lay at `path` stays until then. A device or
    pipe that exists at `path` is given as it is. Raises `kind` where another living process is writing the same file.
    """
    with os_errors(path, kind=kind):
        final, is_special = _resolve_target(Path(path), kind)
    if is_special:
        with _disk_errors(final, kind), _open_for_writing(final):  # held open, so that a pipe is not closed early
            yield final
        return
    partial = partial_path(final)
    with claim_file(partial, kind) as claim:
        try:
            with _disk_errors(final, kind):
                os.ftruncate(claim, 0)
                yield partial
                _finish(partial, final, os.fstat(claim).st_mode)
        finally:
            with suppress(OSError):
                if os.path.samestat(partial.stat(), os.fstat(claim)) and os.fstat(claim).st_size == 0:
                    partial.unlink()


@contextmanager
def claim_file(path: Path, kind: type[MarsError] = FileError) -> Iterator[int]:
    """A descriptor of a file that keeps its content and is made where it is missing; no other process may claim it.

    Raises `kind` where another living process has claimed it, and where it is a link or no regular file.
    """
    with os_errors(path, kind=kind):
        claim = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if not _lock(claim):
            raise kind(f"{printable_name(path)}: another process is writing this file; give another name")
        if not stat.S_ISREG(os.fstat(claim).st_mode):
            raise kind(f"{printable_name(path)}: expected no file or a regular one, but this is a device or a pipe")
        yield claim
    finally:
        os.close(claim)


@contextmanager
def atomic_folder(
    path: Path | str, *, replace: Callable[[Path], bool], kind: type[MarsError] = FileError
) -> Iterator[Path]:
    """A new, empty folder next to `path` that becomes `path` when the body ends; on errors, everything stays.

    A folder that exists at `path` is replaced if it is empty or `replace(path)` is true, else `kind` is raised first.
    It is renamed to `.NAME.….old` before the new one takes its place, and then removed.
    """
    final = Path(path)
    with os_errors(final, kind=kind):
        final = final.resolve() if final.is_symlink() else final
        if final.exists() and not final.is_dir():
            raise kind(f"{printable_name(final)}: expected a folder to write to, but this is a file")
        if final.is_dir() and any(final.iterdir()) and not replace(final):
            raise kind(
                f"{printable_name(final)}: this folder holds other files, which would be lost; give another folder"
            )
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary, claim = _make_temporary(final, is_folder=True)
    try:
        with _disk_errors(final, kind):
            yield temporary
            for file in sorted(temporary.rglob("*")):
                _sync(file)
            _sync(temporary)
            old = final.with_name(f".{final.name}.{uuid.uuid4().hex[:8]}.old")
            if final.is_dir():
                os.replace(final, old)
            os.replace(temporary, final)
            _sync(final.parent)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(claim)


def _resolve_target(path: Path, kind: type[MarsError]) -> tuple[Path, bool]:
    """The file to replace, and whether it is a device or pipe to write into; makes the parent folder."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        mode = path.stat().st_mode  # of `path`: /dev/stdout resolves to a name that cannot be opened
    except FileNotFoundError:
        return target, False
    if stat.S_ISDIR(mode):
        raise kind(f"{printable_name(path)}: expected a file to write to, but this is a folder")
    return (target, False) if stat.S_ISREG(mode) else (path, True)


@contextmanager
def _disk_errors(path: Path, kind: type[MarsError]) -> Iterator[None]:
    """Rephrase errors of the disk or of this module's temporary paths; other errors of the body pass."""
    try:
        yield
    except MarsError:
        raise
    except Exception as error:
        problem = disk_problem(error, path.parent)
        if problem is None and isinstance(error, OSError) and _is_about(error, path):
            problem = describe_os_error(error)
        if problem is None:
            raise
        raise kind(f"{printable_name(path)}: cannot be written: {problem}") from error


def _is_about(error: OSError, path: Path) -> bool:
    names = [os.path.basename(os.fsdecode(name)) for name in (error.filename, error.filename2) if name is not None]
    return any(name == path.name or ".partial" in name for name in names)


def _make_temporary(final: Path, *, is_folder: bool) -> tuple[Path, int]:
    """A new temporary file or folder next to `final`, and the descriptor whose lock marks it as in use.

    What killed processes left behind for the same `final` is removed.
    """
    stem = os.fsdecode(os.fsencode(final.name)[:150])
    for leftover in final.parent.glob(f".{glob.escape(stem)}.*.partial*"):
        _remove_abandoned(leftover)
    path = final.with_name(f".{stem}.{uuid.uuid4().hex[:8]}.partial{final.suffix[:20]}")
    if is_folder:
        path.mkdir()
        claim = os.open(path if fcntl else os.devnull, os.O_RDONLY)
    else:
        claim = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    _lock(claim)
    return path, claim


def _lock(descriptor: int) -> bool:
    """Return True where the descriptor's file could be locked; always True where there are no such locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    return True


def _remove_abandoned(path: Path) -> None:
    """Remove a temporary file or folder unless the process that made it is still at work."""
    if fcntl is None:
        return
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if _lock(descriptor):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        finally:
            os.close(descriptor)


def _open_for_writing(path: Path) -> BinaryIO:
    """`path`, open for writing; a pipe without a reader is an error rather than an endless wait."""
    flags = os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


def _finish(temporary: Path, final: Path, mode: int) -> None:
    """Move a complete file to its path, with the permissions of the file that it replaces, or else those of `mode`."""
    _sync(temporary)
    temporary.chmod(stat.S_IMODE(final.stat().st_mode if final.exists() else mode))
    os.replace(temporary, final)
    _sync(final.parent)


def _sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # folders cannot be opened everywhere
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in DISK_ERRNOS:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def lock_folder(folder: Path | str, kind: type[MarsError] = FileError) -> Iterator[None]:
    """Keep other processes out of a folder while the body runs; makes the folder if it is missing.

    Raises `kind` at once where another living process holds the folder. The system frees the lock of a killed process.
    """
    from filelock import FileLock, Timeout

    path = Path(folder)
    with os_errors(path, "be locked", kind):
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / LOCK_FILE)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise kind(
                f"{printable_name(path)}: another process is working in this folder; wait until it ends, or give "
                "another folder"
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def hold_folder(folder: Path, seconds: float, kind: type[MarsError] = FileError) -> Iterator[None]:
    """Keep other processes that hold this folder waiting while the body runs; leaves no file behind.

    Raises `kind` where another one holds it for `seconds`. Nothing waits where folders cannot be locked, as on Windows.
    """
    if fcntl is None:
        yield
        return
    with os_errors(folder, "be locked", kind):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + seconds
        while not _lock(descriptor):
            if time.monotonic() > deadline:
                raise kind(f"{printable_name(folder)}: another process is changing this folder; try again")
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)
