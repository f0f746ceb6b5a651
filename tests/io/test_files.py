"""Files are written whole or not at all, and folders have one owner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from marstts.errors import AudioError, DataError, FileError
from marstts.io.files import atomic_folder, atomic_path, atomic_write, lock_folder, write_file
from marstts.io.reading import disk_problem, printable_name

posix = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and limits of POSIX")


def never(folder: Path) -> bool:
    return False


def run_child(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE)


def test_a_written_file_holds_all_of_its_content(tmp_path):
    write_file(tmp_path / "new" / "note.txt", "grün\n")
    assert (tmp_path / "new" / "note.txt").read_bytes() == "grün\n".encode()


def test_a_file_is_old_until_it_is_complete(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new and longer")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new and longer"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_an_error_while_writing_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as file:
        file.write(b"half")
        _ = 1 / 0
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_libraries_write_to_a_path_of_the_same_suffix(tmp_path):
    path = tmp_path / "weights.safetensors"
    with atomic_path(path) as temporary:
        assert temporary.suffix == ".safetensors" and temporary.parent == tmp_path
        save_file({"a": np.arange(3)}, temporary)
    assert load_file(path)["a"].tolist() == [0, 1, 2]


@posix
def test_permissions_are_those_of_the_old_file_or_of_any_new_one(tmp_path):
    kept, new, plain = tmp_path / "kept", tmp_path / "new.safetensors", tmp_path / "plain"
    kept.write_bytes(b"")
    kept.chmod(0o640)
    plain.write_bytes(b"")
    write_file(kept, b"1")
    with atomic_path(new) as temporary:
        save_file({"a": np.arange(3)}, temporary)  # which writes for its owner only
    assert kept.stat().st_mode & 0o777 == 0o640
    assert new.stat().st_mode == plain.stat().st_mode


@posix
def test_a_link_is_written_through(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FileError, match="symbolic links"):
        write_file(tmp_path / "loop", b"new")


@posix
def test_devices_are_written_into(tmp_path):
    write_file("/dev/null", b"anything")
    with pytest.raises(AudioError, match=r"^/dev/full: cannot be written: the disk is full$"):
        write_file("/dev/full", b"anything", AudioError)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="no process reads from this pipe"):
        write_file(tmp_path / "pipe", b"anything")


@posix
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("file/below", "not a directory|file exists"),
        ("x" * 300, "name too long"),
        ("folder", "expected a file to write to, but this is a folder"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_in_one_sentence(tmp_path, name, complaint):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=complaint) as caught:
        write_file(tmp_path / name, b"1", DataError)
    assert "\n" not in str(caught.value)


LIMITED = """
import resource, sys
from marstts.errors import FileError
from marstts.io.files import atomic_path
import numpy as np, safetensors.numpy
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    with atomic_path(sys.argv[1]) as path:
        safetensors.numpy.save_file({"a": np.zeros(200_000)}, path)
except FileError as error:
    print(error)
"""


@posix
def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    output = run_child(LIMITED, path).communicate()[0].decode()
    assert "cannot be written: file too large" in output
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_is_recognized_in_errors_of_libraries(tmp_path):
    assert disk_problem(ValueError("I/O error: No space left on device (os error 28)"), tmp_path) == "the disk is full"
    assert disk_problem(ValueError("bad shape"), tmp_path) is None
    assert disk_problem(RuntimeError("write failed"), tmp_path) is None


def test_a_folder_is_replaced_only_where_the_caller_allows_it(tmp_path):
    path = tmp_path / "made"
    path.mkdir()
    with atomic_folder(path, replace=never) as folder:  # an empty one is no loss
        (folder / "a").write_text("1")
    with pytest.raises(DataError, match="holds other files"), atomic_folder(path, replace=never, kind=DataError):
        pass
    with atomic_folder(path, replace=lambda old: (old / "a").exists()) as folder:
        (folder / "b").write_text("2")
        assert (path / "a").exists()
    assert [p.name for p in path.iterdir()] == ["b"] and len(list(tmp_path.iterdir())) == 1


def test_a_file_in_the_way_of_a_folder_is_refused(tmp_path):
    (tmp_path / "a").write_text("1")
    with pytest.raises(FileError, match="but this is a file"), atomic_folder(tmp_path / "a", replace=never):
        pass


LOCKER = """
import sys, time
from marstts.io.files import lock_folder
with lock_folder(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_folder_has_one_owner_at_a_time(tmp_path):
    child = run_child(LOCKER, tmp_path / "run")
    child.stdout.readline()
    try:
        refused = pytest.raises(DataError, match="another process is working in this folder")
        with refused, lock_folder(tmp_path / "run", DataError):
            pass
    finally:
        child.kill()
        child.wait()
    with lock_folder(tmp_path / "run"):  # the owner was killed
        pass
    with lock_folder(tmp_path / "run"):
        pass


def test_a_folder_is_locked_against_its_own_process_too(tmp_path):
    with lock_folder(tmp_path), pytest.raises(FileError, match="another process"), lock_folder(tmp_path):
        pass


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain ü.wav", "plain ü.wav"),
        ("a\nb\x1b[31m", "a\\nb\\x1b[31m"),
        (b"caf\xe9.wav", "caf\\xe9.wav"),
        ("\ud800", "\\ud800"),
        ("a\u202eb", "a\\u202eb"),
        (Path("x"), "x"),
    ],
)
def test_names_are_printed_in_one_harmless_line(name, shown):
    assert printable_name(name) == shown
    printable_name(name).encode("utf-8")


def test_long_names_are_cut_in_the_middle():
    shown = printable_name("a" * 4000 + ".wav")
    assert len(shown) == 201 and shown.endswith(".wav") and "…" in shown
