"""The revision of a model: a short digest of all its tensors.

Upstream: the safetensors files and graphs of a folder.  Downstream: `bundle`, provenance of trainings.
Names, shapes, types and bytes of tensors count, in the order of the files' and of their own names; neither the order in
a file nor its padding does. A graph that is written anew over the same weights leaves the revision as it is: of a graph
only tensors count that lie in it and are too large to be constants.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marstts.errors import CheckpointError
from marstts.io.reading import open_regular, printable_name, read_regular_file
from marstts.io.stored_tensors import MAX_WEIGHTS_BYTES, stored_tensors
from marstts.onnx.graph import parse_model
from marstts.onnx.session import MAX_GRAPH_BYTES

REVISION_DIGITS = 12

MIN_WEIGHTS = 4096
"""Numbers of the smallest tensor in a graph that counts: positions and sizes, which exporters write, have less."""


def revision_of(parts: Mapping[str, Path | Mapping[str, Any]]) -> str:
    """Hexadecimal digits of the SHA-256 over the parts of a model, in the order of their names.

    A part is the folder of its weights or, where they are published elsewhere, its description. CheckpointError for a
    folder with a file that is none of tensors.
    """
    hashed = hashlib.sha256()
    for name, part in sorted(parts.items()):
        hashed.update(f"{name}\n".encode())
        if isinstance(part, Path):
            hash_tensors(part, hashed)
        else:
            hashed.update(json.dumps(part, sort_keys=True).encode())
    return hashed.hexdigest()[:REVISION_DIGITS]


def hash_tensors(folder: Path, hashed: Any) -> None:
    """Add all tensors of a folder's safetensors files and graphs to a hash."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.suffix == ".safetensors":
            hash_stored(path, hashed)
        elif path.suffix == ".onnx":
            for name, tensor in sorted(large_tensors(parse_graph(path))):
                hashed.update(f"{path.name} {name} {tensor.data_type} {list(tensor.dims)}\n".encode())
                hashed.update(tensor.SerializeToString(deterministic=True))


def hash_stored(path: Path, hashed: Any) -> None:
    """Add the tensors of a safetensors file to a hash."""
    stored = stored_tensors(path)
    with open_regular(path, MAX_WEIGHTS_BYTES, CheckpointError) as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    for name, tensor in sorted(stored.items()):
        hashed.update(f"{path.name} {name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        hashed.update(content[tensor.offset : tensor.offset + tensor.length])


def parse_graph(path: Path) -> Any:
    """The main graph of an ONNX file; CheckpointError, with its name, where it is none."""
    try:
        return parse_model(read_regular_file(path, MAX_GRAPH_BYTES, CheckpointError)).graph
    except CheckpointError as error:
        raise CheckpointError(f"{printable_name(path)}: {error}") from error


def large_tensors(graph: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Names and tensors of at least `MIN_WEIGHTS` numbers that lie in a graph itself, inner graphs included."""
    for tensor in graph.initializer:
        if not tensor.external_data and is_large(tensor):
            yield f"{place}{tensor.name}", tensor
    for number, node in enumerate(graph.node):
        for attribute in node.attribute:
            if is_large(attribute.t):
                yield f"{place}{number}.{attribute.name}", attribute.t
            if attribute.HasField("g"):
                yield from large_tensors(attribute.g, f"{place}{number}.{attribute.name}/")


def is_large(tensor: Any) -> bool:
    """Return True where a tensor has so many numbers that it is a weight."""
    size = 1
    for dimension in tensor.dims:
        size *= dimension
    return bool(tensor.dims) and size >= MIN_WEIGHTS
