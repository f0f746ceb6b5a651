"""Opening an ONNX graph for the CPU, with thread settings for speech synthesis.

Upstream: graphs written by `onnx.export`.  Downstream: the mini codec, the speaker encoders, the ONNX engine.
A graph keeps its weights in a safetensors file next to it. ONNX Runtime gets graph and weights from memory and opens no
file itself: its versions differ in which links they refuse (package managers and hub caches make them), and old ones
read any file that an untrusted graph names. The weights are mapped, not copied.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from marstts.errors import CheckpointError
from marstts.io.file_errors import printable_name, printable_text
from marstts.io.reading import open_regular, parse_object, read_regular_file
from marstts.onnx.graph import ExternalTensor, check_loops, embed_inner, external_tensors

MAX_GRAPH_BYTES = 256 * 2**20
MAX_WEIGHTS_BYTES = 64 * 2**30
MAX_HEADER_BYTES = 16 * 2**20
"""Limit of the list of tensors that a safetensors file begins with."""

DEFAULT_MEMORY_BYTES = 16 * 2**30
"""Memory of a machine that does not tell."""

NUMBERS = {1: "f4", 2: "u1", 3: "i1", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8"}
"""NumPy's names for the number formats of TensorProto.DataType."""


class Session(onnxruntime.InferenceSession):
    """A session that keeps the mapped weights it computes with, and nothing else of what it was made from."""

    weights: Sequence[onnxruntime.OrtValue] = ()

    def forget_graph(self) -> None:
        """Release the graph's bytes, which the base class keeps for execution providers that are chosen later."""
        self._model_bytes = None


@dataclass(frozen=True, eq=False)
class Weights:
    """A safetensors file, mapped into memory."""

    path: Path
    content: mmap.mmap

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    """First byte of each tensor in the file, in order, and the one after its last."""

    def read(self, tensor: ExternalTensor) -> memoryview:
        """The bytes of a tensor; CheckpointError unless they lie within one tensor of the file."""
        index = bisect_right(self.begins, tensor.offset) - 1
        end = tensor.offset + tensor.length
        if index < 0 or not self.begins[index] <= tensor.offset <= end <= self.ends[index]:
            raise CheckpointError(
                f"{printable_name(self.path)}: the graph next to it needs the bytes {tensor.offset} to {end}, which "
                "are no tensor of this file; graph and weights belong to different models"
            )
        return memoryview(self.content)[tensor.offset : end]

    def array(self, tensor: ExternalTensor) -> NDArray[np.generic]:
        """The values of a tensor, not copied; CheckpointError where shape and bytes disagree."""
        code = NUMBERS.get(tensor.data_type)
        if code is None or prod(tensor.shape) * np.dtype(code).itemsize != tensor.length:
            raise CheckpointError(
                f"{printable_name(self.path)}: the graph next to it needs {tensor.length} bytes as a tensor of shape "
                f"{tensor.shape} in number format {tensor.data_type}, which do not agree"
            )
        values = np.frombuffer(self.read(tensor), np.dtype(code)).reshape(tensor.shape)
        return values if values.flags.aligned else values.copy()

    def release(self) -> None:
        """Take the file's pages out of this process's memory; the system brings back those that are used again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.content.madvise(mmap.MADV_DONTNEED)


def open_session(path: Path, threads: int = 1) -> Session:
    """A CPU session over the graph at `path`; CheckpointError if it, or a file of weights, is missing or corrupt.

    Weights must be tensors of safetensors files that lie next to the graph, possibly as links to regular files.
    One thread by default: steps are small, and threads that wait for each other cost more than they bring. Threads do
    not spin between calls, so that an idle synthesizer leaves the processor alone.
    """
    if not path.exists():
        raise CheckpointError(f"{printable_name(path)}: expected an ONNX graph here; the model folder is incomplete")
    content = read_regular_file(path, MAX_GRAPH_BYTES, CheckpointError)
    with graph_errors(path):
        check_loops(content)
        tensors = external_tensors(content)
    files = {name: open_weights(path, name) for name in sorted({tensor.location for tensor in tensors})}
    if not all(tensor.in_main_graph for tensor in tensors):
        with graph_errors(path):
            content = embed_inner(content, lambda tensor: files[tensor.location].read(tensor))
    named = {tensor.name: files[tensor.location].array(tensor) for tensor in tensors if tensor.in_main_graph}
    session = start_session(path, content, named, threads)
    for weights in files.values():
        weights.release()
    return session


@contextmanager
def graph_errors(path: Path) -> Iterator[None]:
    """Name the graph in errors of the body."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{printable_name(path)}: {error}") from error


def open_weights(graph: Path, name: str) -> Weights:
    """The safetensors file of this name next to a graph; CheckpointError where it is anything else.

    Graphs are untrusted and must not choose what is read: the name has no folder in it, and a file that is no
    safetensors file (for example a link to a private file) is refused.
    """
    if not is_plain_name(name):
        raise CheckpointError(
            f"{printable_name(graph)}: this ONNX graph reads weights from {printable_name(name)!r}; expected the name "
            "of a file next to it, so do not use this model"
        )
    path = graph.parent / name
    try:
        file = open_regular(path, MAX_WEIGHTS_BYTES, CheckpointError)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; expected the weights of {graph.name} here, the folder is incomplete"
        ) from error
    with file:
        size = os.fstat(file.fileno()).st_size
        header_size = int.from_bytes(file.read(8), "little")
        if not 2 <= header_size <= min(MAX_HEADER_BYTES, size - 8):
            raise not_safetensors(path)
        try:
            spans = read_spans(file.read(header_size), 8 + header_size, size)
        except (CheckpointError, KeyError, TypeError, ValueError) as error:
            raise not_safetensors(path) from error
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return Weights(path, content, tuple(begin for begin, _ in spans), tuple(end for _, end in spans))


def is_plain_name(name: str) -> bool:
    """Return True where a name is that of a file in the same folder, on every system."""
    return name.isprintable() and name not in ("", ".", "..") and not set(name) & set('/\\:*?"<>|')


@lru_cache(maxsize=16)  # several graphs share a file
def read_spans(header: bytes, start: int, size: int) -> tuple[tuple[int, int], ...]:
    """First and last byte of every tensor that a header lists, in order; ValueError where it is no such header."""
    entries = parse_object(header.decode("utf-8"), "header", CheckpointError)
    entries.pop("__metadata__", None)
    offsets = sorted(tuple(entry["data_offsets"]) for entry in entries.values())
    edges = [start, *(start + edge for begin, end in offsets for edge in (begin, end)), size]
    if not all(type(edge) is int for edge in edges) or edges != sorted(edges) or edges[::2] != edges[1::2]:
        raise ValueError("expected one tensor after another, up to the end of the file")
    return tuple(zip(edges[1:-1:2], edges[2:-1:2], strict=True))


def not_safetensors(path: Path) -> CheckpointError:
    """The error for a file that does not contain weights."""
    return CheckpointError(
        f"{printable_name(path)}: expected weights as a safetensors file, but this is none, or corrupt or cut short"
    )


@lru_cache(maxsize=1)
def memory_is_bounded() -> bool:
    """Give all sessions of the process one arena of at most half of the machine's memory; False if there is another.

    A foreign graph may ask for any amount, and the system kills a process that uses what it was promised.
    """
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        machine = DEFAULT_MEMORY_BYTES
    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    try:
        onnxruntime.create_and_register_allocator(place, onnxruntime.OrtArenaCfg({"max_mem": machine // 2}))
    except Exception:  # of onnxruntime's own class: the program that uses this package has registered one
        return False
    return True


def start_session(path: Path, content: bytes, named: dict[str, NDArray[np.generic]], threads: int) -> Session:
    """The runtime's session over a graph and the values of its main initializers by name."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors become sentences
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")
    if memory_is_bounded():
        options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in named.values()]
        if values:
            options.add_external_initializers(list(named), values)
        session = Session(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises unrelated classes for every kind of corruption
        reason = printable_text(str(error).splitlines()[0], 300) if str(error) else type(error).__name__
        raise CheckpointError(f"{printable_name(path)}: this ONNX graph cannot be loaded ({reason})") from error
    session.weights = values
    session.forget_graph()
    return session
