"""Files of `torch.save`, read without PyTorch's reader: tensors and plain data, and nothing else.

Upstream: a `.pt` file, which is untrusted.  Downstream: `pretrained` and `published_checkpoint`.
`torch.load` finds the parts of an archive in another way than any check of ours could, and runs what TorchScript holds.
Here, one reader (`zipfile`) gives the bytes that are checked and used: the pickle `data.pkl`, which makes no object
but dictionaries, lists, texts, numbers and tensors, and the storages that it names. Every size that the file states is
compared with the bytes that it has.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from marstts.errors import CheckpointError, MarsError, require
from marstts.io.archives import CORRUPT, open_zip, read_part
from marstts.io.reading import printable_name, printable_text
from marstts.io.stored_tensors import MAX_WEIGHTS_BYTES

MAX_DIRECTORY_BYTES = 16 * 2**20
MAX_PICKLE_BYTES = 64 * 2**20
MAX_AXES = 16

STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8",
}  # fmt: skip
"""PyTorch's names of storages, and the number formats of what they hold."""

ForeignClass = Callable[[str, str], Any]
"""What stands for a class that a pickle names by module and name; it raises CheckpointError to refuse the file."""


class Inert(dict[Any, Any]):
    """An object of a class that is not imported: it keeps the items of a dictionary, and ignores everything else."""

    def __new__(cls, *args: Any, **options: Any) -> Inert:
        return super().__new__(cls)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()

    def __call__(self, *args: Any, **options: Any) -> Inert:
        return self

    def append(self, item: Any) -> None: ...

    def extend(self, items: Any) -> None: ...

    def add(self, item: Any) -> None: ...

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def make_inert(module: str, name: str) -> type[Inert]:
    """A class that stands for any other, which is neither imported nor run."""
    return Inert


def read_torch_archive(path: Path, foreign_class: ForeignClass = make_inert) -> Any:
    """The content of a `.pt` file, its tensors on the CPU.

    Raises CheckpointError where it is a program, corrupt, compressed, or states more than it has.
    """
    name = printable_name(path)
    try:
        with open_zip(path, MAX_WEIGHTS_BYTES, MAX_DIRECTORY_BYTES, CheckpointError) as archive:
            folder = _check_entries(name, archive, path.stat().st_size)
            return _Archive(name, archive, folder, foreign_class).read()
    except MarsError:
        raise
    except zipfile.BadZipFile as error:
        raise CheckpointError(
            f"{name}: expected weights as a PyTorch checkpoint, but it is corrupt, or of PyTorch before 1.6: {error}"
        ) from error
    except (*CORRUPT, Exception) as error:  # a corrupt pickle may fail in any way at all
        problem = printable_text(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 200)
        raise CheckpointError(
            f"{name}: expected weights as a PyTorch checkpoint, but it is corrupt ({problem})"
        ) from error


def _check_entries(name: str, archive: zipfile.ZipFile, num_bytes: int) -> str:
    """The folder of the archive that holds `data.pkl`; CheckpointError unless `torch.save` may have written it."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if any(each.rpartition("/")[2] == "constants.pkl" or "/code/" in each for each in names):
        raise CheckpointError(f"{name}: expected weights, but it is a program for TorchScript; not opened")
    size = sum(entry.file_size for entry in entries)
    if size > num_bytes or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise CheckpointError(f"{name}: unfolds to {size} bytes, which PyTorch checkpoints do not; not opened")
    if len(names) != len(set(names)):
        raise CheckpointError(
            f"{name}: expected weights as a PyTorch checkpoint, but parts of it have the same name; not opened"
        )
    folders = [each.removesuffix("data.pkl") for each in names if each.endswith("/data.pkl") and each.count("/") == 1]
    if len(folders) != 1:
        raise CheckpointError(
            f"{name}: expected weights as a PyTorch checkpoint, but it is corrupt: it has no data.pkl"
        )
    return folders[0]


class _Archive:
    """An open archive whose entries were checked."""

    def __init__(self, name: str, archive: zipfile.ZipFile, folder: str, foreign_class: ForeignClass) -> None:
        self.name, self.archive, self.folder, self.foreign_class = name, archive, folder, foreign_class
        self.torch = require("torch", "released")
        self.storages: dict[str, Any] = {}

    def read(self) -> Any:
        """The object that `data.pkl` describes."""
        if self.folder + "byteorder" in self.archive.namelist() and self.part("byteorder", 16) != b"little":
            raise CheckpointError(f"{self.name}: its numbers are big-endian; save it again on another machine")
        return _unpickler(self)(io.BytesIO(self.part("data.pkl", MAX_PICKLE_BYTES))).load()

    def part(self, part: str, max_bytes: int) -> bytearray:
        """The bytes of a part."""
        content = read_part(self.archive, self.archive.getinfo(self.folder + part), max_bytes)
        if len(content) > max_bytes:
            raise CheckpointError(f"{self.name}: its part {part} is too large for a PyTorch checkpoint")
        return content

    def find(self, module: str, name: str) -> Any:
        """What stands for a global of a pickle; nothing is imported."""
        if module in ("torch", "torch.storage") and name in STORAGES:
            return getattr(self.torch, STORAGES[name])
        if module == "torch" and isinstance(getattr(self.torch, name, None), self.torch.dtype):
            return getattr(self.torch, name)
        allowed: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): _ordered,
            ("torch._utils", "_rebuild_tensor_v2"): self.tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("torch", "Size"): _size,
        }
        return allowed.get((module, name)) or self.foreign_class(module, name)

    def storage(self, reference: Any) -> Any:
        """The numbers that a pickle refers to, a vector; read once."""
        kind, dtype, key = reference[0], reference[1], reference[2]
        if kind != "storage" or not isinstance(dtype, self.torch.dtype) or not isinstance(key, str):
            raise CheckpointError(
                f"{self.name}: expected weights as a PyTorch checkpoint, but it has tensors of an unknown kind"
            )
        if key not in self.storages:
            content = self.part(f"data/{key}", MAX_WEIGHTS_BYTES)
            self.storages[key] = self.torch.frombuffer(content, dtype=self.torch.uint8) if content else None
        found = self.storages[key]
        return self.torch.empty(0, dtype=dtype) if found is None else found.view(dtype)

    def tensor(self, storage: Any, offset: int, size: Any, stride: Any, *others: Any) -> Any:
        """A tensor of these numbers; CheckpointError unless they are its own and as many as it needs."""
        is_usual = isinstance(storage, self.torch.Tensor) and all(
            isinstance(each, tuple)
            and len(each) <= MAX_AXES
            and all(isinstance(one, int) and 0 <= one <= MAX_WEIGHTS_BYTES for one in each)
            for each in (size, stride, (offset,))
        )
        if not is_usual or len(size) != len(stride) or math.prod(size) > storage.numel():
            raise CheckpointError(f"{self.name}: a tensor claims more numbers than the file has; fetch it again")
        return storage.as_strided(size, stride, offset)  # which checks that they lie within the storage


def _ordered(*items: Any) -> dict[Any, Any]:
    """What stands for OrderedDict: pickles make an empty one, and add its items then."""
    if items:
        raise CheckpointError("expected weights as a PyTorch checkpoint, but it has a dictionary of an unusual form")
    return OrderedDict()


def _parameter(tensor: Any, *others: Any) -> Any:
    return tensor


def _size(axes: Any = ()) -> tuple[Any, ...]:
    return tuple(axes[:MAX_AXES])


def _check_keys(keys: Any) -> None:
    """CheckpointError for keys whose hash could take any time, such as tuples that hold one another."""
    for key in keys:
        if not isinstance(key, (str, bytes, int, float, Inert, type(None))):
            raise CheckpointError(
                f"expected weights as a PyTorch checkpoint, but a key of it is a {type(key).__name__}"
            )


def _unpickler(archive: _Archive) -> Any:
    """The class that reads the pickle of an archive.

    It is Python's own reader in Python: the one in C makes room for as many objects as a few bytes announce.
    """
    base: Any = pickle._Unpickler

    class Unpickler(base):
        dispatch: ClassVar[dict[int, Any]] = {
            code: load
            for code, load in base.dispatch.items()
            if code not in (pickle.BYTEARRAY8[0], pickle.NEXT_BUFFER[0], pickle.READONLY_BUFFER[0])
        }

        def find_class(self, module: str, name: str) -> Any:
            return archive.find(module, name)

        def persistent_load(self, reference: Any) -> Any:
            return archive.storage(reference)

        def build(self) -> None:
            """Drop the state of an object: it is that of a class that is not there, or of a dictionary's attributes."""
            self.stack.pop()

        def set_item(self) -> None:
            _check_keys(self.stack[-2:-1])
            base.load_setitem(self)

        def set_items(self) -> None:
            _check_keys(self.stack[::2])
            base.load_setitems(self)

        def make_dict(self) -> None:
            _check_keys(self.stack[::2])
            base.load_dict(self)

        def add_items(self) -> None:
            _check_keys(self.stack)
            base.load_additems(self)

        def make_frozenset(self) -> None:
            _check_keys(self.stack)
            base.load_frozenset(self)

        dispatch |= {
            pickle.BUILD[0]: build, pickle.SETITEM[0]: set_item, pickle.SETITEMS[0]: set_items,
            pickle.DICT[0]: make_dict, pickle.ADDITEMS[0]: add_items, pickle.FROZENSET[0]: make_frozenset,
        }  # fmt: skip

    return Unpickler
