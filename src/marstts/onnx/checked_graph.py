"""An ONNX graph whose inputs and outputs are checked: files are untrusted, and may not fit one another.

Upstream: `onnx.session`.  Downstream: the codecs and speaker encoders that run as graphs.
A configuration specifies the shapes of a graph. A graph with others is refused when it is opened, one that computes
others when it is run, and failures of ONNX Runtime become one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.errors import CheckpointError
from marstts.io.file_errors import printable_name
from marstts.onnx.session import open_session

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
