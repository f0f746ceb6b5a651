"""Pickles of published checkpoints, read without running or importing anything that they name.

Upstream: a `.pt` file of `torch.save`.  Downstream: `published_checkpoint`, and so `marstts convert` alone.
A checkpoint may hold objects of any class next to its tensors: a configuration, a path, a NumPy number. Each such class
is replaced by an `Inert` one, and the tensors and plain data around it are kept. The names that are not replaced are
those of `ALLOWED`, which make tensors of numbers that the file holds.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import IO, Any

from marstts.errors import require

ALLOWED = {
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch", "Size"),
}


class Inert(dict[Any, Any]):
    """An object of a class that is not imported: it keeps the items of a dictionary, and ignores everything else."""

    def __new__(cls, *args: Any, **options: Any) -> Inert:
        return super().__new__(cls)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()

    def __call__(self, *args: Any, **options: Any) -> Inert:
        return self

    def __setstate__(self, state: Any) -> None: ...

    def append(self, item: Any) -> None: ...

    def extend(self, items: Any) -> None: ...

    def add(self, item: Any) -> None: ...

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


class InertPickle:
    """What `torch.load` takes for a pickle module; `names` are those of the classes that were replaced."""

    def __init__(self) -> None:
        names: set[str] = set()

        class Unpickler(pickle.Unpickler):
            def find_class(self, module: str, name: str) -> Any:
                if (module, name) in ALLOWED:
                    return super().find_class(module, name)
                names.add(f"{module}.{name}")
                return type(name, (Inert,), {})

        self.names, self.Unpickler = names, Unpickler
        self.__name__ = __name__  # PyTorch asks for it, as of a module

    def load(self, file: IO[bytes], **options: Any) -> Any:
        """`pickle.load`."""
        return self.Unpickler(file, **options).load()


def read_inert(path: Path) -> tuple[Any, tuple[str, ...]]:
    """The content of a `.pt` file, a ZIP archive, on the CPU; and the classes that were replaced, in order.

    Raises whatever PyTorch and `pickle` raise for a corrupt file.
    """
    torch, inert = require("torch", "released"), InertPickle()
    content = torch.load(path, map_location="cpu", pickle_module=inert, weights_only=False)
    return content, tuple(sorted(inert.names))
