"""Opening an ONNX graph for the CPU, with thread settings for speech synthesis.

Upstream: graphs written by `onnx.export`.  Downstream: the mini codec, the speaker encoders, the ONNX engine.
A graph keeps its weights in a safetensors file next to it. ONNX Runtime gets graph and weights from memory and opens no
file itself: it refuses the links of package managers and hub caches. The weights are mapped, not copied; only those of
inner graphs are taken into the graph, for the runtime supports no other way.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from marstts.errors import CheckpointError
from marstts.io.reading import open_regular, printable_name, printable_text, read_regular_file, show_bytes
from marstts.io.stored_tensors import MAX_WEIGHTS_BYTES, stored_tensors
from marstts.onnx.graph import BytePlace, parse_model, tensors_elsewhere

MAX_GRAPH_BYTES = 256 * 2**20

MAX_INNER_BYTES = 256 * 2**20
"""Weights of inner graphs, which are copied for each mention."""

MAX_MENTIONS = 4
"""How often the bytes of weights may be used by one graph, on average."""

DEFAULT_MEMORY_BYTES = 16 * 2**30
"""Memory of a machine that does not tell."""

NUMBERS = {1: "f4", 2: "u1", 3: "i1", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8"}
"""NumPy's names for the number formats of TensorProto.DataType."""


class Session(onnxruntime.InferenceSession):
    """A session that keeps the mapped weights it computes with."""

    weights: Sequence[onnxruntime.OrtValue] = ()


class MappedWeights:
    """A safetensors file next to a graph, mapped into memory."""

    def __init__(self, graph: Path, name: str) -> None:
        self.path = graph.parent / name
        try:
            with open_regular(self.path, MAX_WEIGHTS_BYTES, CheckpointError) as file:
                found = stored_tensors(self.path).values()
                self.tensors = sorted((each.offset, each.offset + each.length) for each in found if each.length)
                self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; expected the weights of {printable_name(graph.name)} here") from error

    def read(self, place: BytePlace) -> memoryview:
        """The bytes at a place; CheckpointError unless they lie within one tensor of the file."""
        end = place.offset + place.length
        number = bisect_right(self.tensors, place.offset, key=lambda bounds: bounds[0]) - 1
        if number < 0 or end > self.tensors[number][1]:
            raise CheckpointError(
                f"{printable_name(self.path)}: the graph next to it needs the bytes {place.offset} to {end}, which "
                "are no tensor of this file; graph and weights belong to different models"
            )
        return memoryview(self.content)[place.offset : end]

    def array(self, tensor: Any, place: BytePlace) -> NDArray[np.generic]:
        """The values of a tensor, not copied; CheckpointError where shape and bytes disagree."""
        code = NUMBERS.get(tensor.data_type)
        if code is None or place.length == 0 or prod(tensor.dims) * np.dtype(code).itemsize != place.length:
            raise CheckpointError(
                f"{printable_name(self.path)}: the graph next to it needs {place.length} bytes as a tensor of shape "
                f"{list(tensor.dims)} in number format {tensor.data_type}, which do not agree"
            )
        values = np.frombuffer(self.read(place), np.dtype(code)).reshape(tensor.dims)
        return values if values.flags.aligned else values.copy()


def open_session(path: Path, threads: int = 1) -> Session:
    """A CPU session over the graph at `path`; CheckpointError if it, or a file of weights, is missing or corrupt.

    Weights must be tensors of safetensors files that lie next to the graph, possibly as links to regular files.
    One thread by default: steps are small, and threads that wait for each other cost more than they bring. Threads do
    not spin between calls, so that an idle synthesizer leaves the processor alone.
    """
    if not path.exists():
        raise CheckpointError(f"{printable_name(path)}: expected an ONNX graph here; the model folder is incomplete")
    content = read_regular_file(path, MAX_GRAPH_BYTES, CheckpointError)
    try:
        model = parse_model(content)
        elsewhere = list(tensors_elsewhere(model.graph))
    except CheckpointError as error:
        raise CheckpointError(f"{printable_name(path)}: {error}") from error
    files = {name: MappedWeights(path, name) for name in sorted({place.file for _, place, _ in elsewhere})}
    for _, place, _ in elsewhere:
        files[place.file].read(place)  # which checks that it is there
    check_mentions(path, [(place.length, is_main) for _, place, is_main in elsewhere], list(files.values()))
    named = {}
    for tensor, place, is_main in elsewhere:
        if is_main:
            named[tensor.name] = files[place.file].array(tensor, place)
        else:
            tensor.raw_data = files[place.file].array(tensor, place).tobytes()
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
    session = start_session(path, model.SerializeToString(), named, threads)
    if hasattr(mmap, "MADV_DONTNEED"):
        for weights in files.values():  # most were copied; the system brings back the pages that are used again
            weights.content.madvise(mmap.MADV_DONTNEED)
    return session


def check_mentions(path: Path, lengths: Sequence[tuple[int, bool]], files: Sequence[MappedWeights]) -> None:
    """CheckpointError where weights unfold to much more than the files have: each mention of them may be a copy.

    lengths: bytes of each mention, and whether it is in the main graph.
    """
    inner = sum(length for length, is_main in lengths if not is_main)
    total, stored = sum(length for length, _ in lengths), sum(len(file.content) for file in files)
    if inner > MAX_INNER_BYTES or total > MAX_MENTIONS * stored:
        raise CheckpointError(
            f"{printable_name(path)}: this ONNX graph uses its weights so often that they take {show_bytes(total)}, "
            f"{show_bytes(inner)} of them in loops and conditions; do not use this model"
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


def start_session(path: Path, content: bytes, named: Mapping[str, NDArray[np.generic]], threads: int) -> Session:
    """The runtime's session over a checked graph and the values of its main initializers by name."""
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
        session = Session(content, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # onnxruntime raises unrelated classes for every kind of corruption
        reason = printable_text(str(error).splitlines()[0], 300) if str(error) else type(error).__name__
        raise CheckpointError(f"{printable_name(path)}: this ONNX graph cannot be loaded ({reason})") from error
    session.weights = values
    session._model_bytes = None  # the runtime keeps the graph for execution providers that are chosen later
    return session


# An ONNX graph whose inputs and outputs are checked: files are untrusted, and may not fit one another.
# A configuration specifies the shapes of a graph. A graph with others is refused when it is opened, one that computes
# others when it is run, and failures of ONNX Runtime become one sentence.

Shape = tuple[int | None, ...]
"""Sizes of the axes; None is any size."""


class CheckedGraph:
    """A session over the graph at `path` with these inputs and outputs by name; CheckpointError where it has others."""

    def __init__(self, path: Path, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape], threads: int = 1) -> None:
        self.path = path
        self._session = open_session(path, threads)
        check_signature(path, "input", self._session.get_inputs(), inputs)
        check_signature(path, "output", self._session.get_outputs(), outputs)
        self._names = list(outputs)

    def run(self, feeds: Mapping[str, NDArray[Any]], shapes: Sequence[tuple[int, ...]]) -> list[NDArray[Any]]:
        """The outputs in the order of the constructor, of exactly these shapes; CheckpointError where they are not."""
        try:
            found = [np.asarray(value) for value in self._session.run(self._names, dict(feeds))]
        except Exception as error:  # onnxruntime's classes of exceptions are unrelated
            reason = printable_name(str(error).splitlines()[0]) if str(error) else type(error).__name__
            raise CheckpointError(f"{printable_name(self.path)}: this ONNX graph cannot be run ({reason})") from error
        for name, value, shape in zip(self._names, found, shapes, strict=True):
            if value.shape != shape:
                raise CheckpointError(
                    f"{printable_name(self.path)}: expected {name} of shape {shape}, but the graph computed "
                    f"{value.shape}; it does not fit its configuration"
                )
        return found


def check_signature(path: Path, kind: str, found: Sequence[Any], expected: Mapping[str, Shape]) -> None:
    """Raise CheckpointError unless a graph declares these inputs or outputs."""
    declared = {value.name: list(value.shape) for value in found}
    if declared.keys() == expected.keys() and all(fits(declared[name], shape) for name, shape in expected.items()):
        return
    raise CheckpointError(
        f"{printable_name(path)}: expected {kind}s {describe(expected)}, but this graph has {describe(declared)}; it "
        "does not fit its configuration"
    )


def fits(declared: Sequence[Any], expected: Shape) -> bool:
    """Whether a declared shape, whose names and None are any size, may be the expected one."""
    return len(declared) == len(expected) and all(
        size is None or not isinstance(axis, int) or axis == size for axis, size in zip(declared, expected, strict=True)
    )


def describe(values: Mapping[str, Sequence[Any]]) -> str:
    """Names and shapes for a message."""
    shown = [f"{name} {['*' if axis is None else axis for axis in shape]}" for name, shape in values.items()]
    return printable_name(", ".join(shown).replace("'", "") or "none")
