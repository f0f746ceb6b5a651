"""PyTorch's archives are read by one reader: what is checked is what is used, and every size is backed by bytes."""

from __future__ import annotations

import pickle
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from marstts.errors import CheckpointError
from marstts.weights.pretrained import read_tensors
from marstts.weights.published_checkpoint import read_content

READERS = [read_content, read_tensors]
WORDS = b"important words of the user"


class Program(torch.nn.Module):
    """A program for TorchScript that writes into a file where it is opened."""

    def __init__(self, victim: Path) -> None:
        super().__init__()
        self.victim, self.opened = str(victim), torch.zeros(1)

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.victim, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.victim, self.training = state[0], state[1]
        self.opened = torch.from_file(self.victim, shared=True, size=5, dtype=torch.uint8).copy_(
            torch.zeros(5, dtype=torch.uint8)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def two_directories(path: Path) -> None:
    """Append a second table of contents that Python reads; the first one is where PyTorch looks."""
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        start, count = archive.start_dir, len(archive.infolist())
    end = content.rfind(b"PK\5\6")
    first = content[start : content.find(b"PK\6\6") if b"PK\6\6" in content else end]
    second = bytearray(first.replace(b"/constants.pkl", b"/constantz.pkl"))
    entry = -1
    while (entry := second.find(b"PK\1\2", entry + 1)) >= 0:  # as if all were stored
        second[entry + 10 : entry + 12] = b"\0\0"
        second[entry + 24 : entry + 28] = second[entry + 20 : entry + 24]
    record = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(second), start, 0)
    path.write_bytes(content[:start] + first + second + record)


@pytest.mark.parametrize("read", READERS)
def test_a_program_behind_a_second_table_of_contents_is_not_run(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    victim, path = tmp_path / "victim.txt", tmp_path / "model.pt"
    victim.write_bytes(WORDS)
    torch.jit.save(torch.jit.script(Program(victim)), path)
    victim.write_bytes(WORDS)
    two_directories(path)
    with pytest.raises(CheckpointError) as caught:
        read(path)
    assert victim.read_bytes() == WORDS and "\n" not in str(caught.value)


def write_archive(path: Path, described: bytes, storage: bytes = bytes(24), method: int = zipfile.ZIP_STORED) -> Path:
    """A file as `torch.save` writes it, with this pickle."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("model/data.pkl", described)
        archive.writestr("model/version", "3\n")
        archive.writestr("model/data/0", storage)
    return path


def tensor_pickle(offset: int = 0, size: tuple[int, ...] = (2, 3), stride: tuple[int, ...] = (3, 1)) -> bytes:
    """A state dict of one tensor of 6 float32 numbers, or what claims to be one."""

    class Tensor:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, (Storage(), offset, size, stride, False, {})

    class Storage:
        pass

    class Pickler(pickle._Pickler):  # type: ignore[name-defined]
        def persistent_id(self, thing: object) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", 6) if isinstance(thing, Storage) else None

    import io

    sink = io.BytesIO()
    Pickler(sink, 2).dump({"model": {"a": Tensor()}})
    return sink.getvalue()


def test_a_plain_archive_is_read(tmp_path: Path) -> None:
    found = read_content(write_archive(tmp_path / "m.pt", tensor_pickle(), struct.pack("<6f", *range(6))))
    assert torch.equal(found["model"]["a"], torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    "claims",
    [{"size": (2**20, 3), "stride": (0, 1)}, {"size": (7,), "stride": (1,)}, {"offset": 1}, {"size": (2**70,)},
     {"size": (-2, -3)}, {"size": (1,) * 70, "stride": (1,) * 70}, {"stride": (2**50, 1)}, {"offset": -4}],
)  # fmt: skip
def test_a_tensor_of_more_numbers_than_the_file_has_is_refused(tmp_path: Path, claims: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        read_content(write_archive(tmp_path / "m.pt", tensor_pickle(**claims)))


TUPLES = b"\x80\x02)q\x00" + b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(60))
"""Sixty pairs, each of the pair before twice: the hash of the last takes 2^60 steps."""


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "described",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # the place of an object in the memo: C's reader makes room for all before it
        TUPLES + b"}h\x3cNs.",
        TUPLES + b"}(h\x3cNu.",
        TUPLES + b"(h\x3cNd.",
        b"\x80\x04" + TUPLES[2:] + b"\x8f(h\x3c\x90.",
        b"\x80\x04" + TUPLES[2:] + b"(h\x3c\x91.",
        b"\x80\x05\x96" + struct.pack("<Q", 2**34) + b"a.",
        TUPLES + b"h\x3cQ.",
        b"\x80\x02c__builtin__\neval\n.",
        b"",
    ],
)
def test_pickles_that_take_for_ever_or_all_memory_are_refused_at_once(
    tmp_path: Path, described: bytes, read: Callable[[Path], Any]
) -> None:
    started = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        read(write_archive(tmp_path / "m.pt", described))
    assert time.process_time() - started < 2.0 and "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize("read", READERS)
def test_compressed_entries_are_refused(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    path = write_archive(tmp_path / "m.pt", tensor_pickle(), bytes(2**24), zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="unfolds to"):
        read(path)


def test_entries_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "m.pt", tensor_pickle(), bytes(2**16))
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        start, count = archive.start_dir, len(archive.infolist())
    end = content.rfind(b"PK\5\6")
    entry = content[content.rfind(b"PK\1\2") : end]
    copies = b"".join(entry.replace(b"model/data/0", b"model/data/%c" % letter) for letter in b"123456789")
    size = end - start + len(copies)
    record = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count + 9, count + 9, size, start, 0)
    path.write_bytes(content[:end] + copies + record)
    with pytest.raises(CheckpointError, match="unfolds to"):
        read_content(path)
