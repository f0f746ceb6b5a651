"""The weights that an ONNX graph keeps in other files: found, checked, and put where they are safe.

Upstream: the bytes of a `.onnx` file, which are untrusted.  Downstream: `onnx.session`.
A graph may name any file of its user as its weights, and versions of ONNX Runtime differ in which they refuse. So this
module reads the part of the protobuf that names files (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) before
the runtime sees it, and takes the weights of loop bodies into the graph, where the runtime supports no other way.
Only what can hold a tensor is walked; a message without the key `location` cannot name a file and is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from marstts.errors import CheckpointError

MAX_DEPTH = 64
"""Messages within messages."""

MAX_ROUNDS = 1000
"""Rounds of a loop; ours has seven, the positions of a patch."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_CHILDREN = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""Fields of messages that can hold a tensor, at any depth; numbers are those of onnx.proto."""

_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 8, 9, 13, 14
"""Fields of a TensorProto."""

_GRAPH_OF_MODEL, _FUNCTION_OF_MODEL = 7, 25
"""Fields of a ModelProto."""

_INT64, _INT64_DATA, _LOOP = 7, 7, b"Loop"
"""TensorProto.DataType, a field of a TensorProto, and an operation."""

_EXTERNAL_KEYS = ("location", "offset", "length")
_KEY = b"location"

Piece: TypeAlias = "bytes | memoryview"

Read = Callable[["ExternalTensor"], Piece]
"""The bytes of a tensor, for a graph that takes them in."""


@dataclass(frozen=True)
class ExternalTensor:
    """A tensor whose bytes lie in another file."""

    name: str

    location: str
    """The location as the graph gives it: anything but a plain file name is refused by the reader."""

    offset: int
    length: int
    """Length in bytes."""

    data_type: int
    """TensorProto.DataType."""

    shape: tuple[int, ...]

    in_main_graph: bool
    """True for an initializer of the main graph: the runtime takes those from memory."""


def external_tensors(content: bytes) -> list[ExternalTensor]:
    """Every tensor of an ONNX model, at any depth, whose bytes lie in another file; CheckpointError on malformed ones.

    A tensor that names a file is one of these even if the model declares it unused.
    """
    return list(_walk(content, 0, len(content), "model", ("model",)))


def check_loops(content: bytes) -> None:
    """CheckpointError where a graph may repeat itself for longer than any of ours does.

    The number of rounds must be a constant of at most MAX_ROUNDS, and no loop may be within another: a foreign graph
    could run for ever.
    """
    if _LOOP in content:
        for number, wire, _, first, last in _fields(content, 0, len(content)):
            if wire == _BYTES and number in (_GRAPH_OF_MODEL, _FUNCTION_OF_MODEL):
                _check_loops(content, first, last, {}, number == _FUNCTION_OF_MODEL, 0)


def _check_loops(
    content: bytes, start: int, end: int, known: Mapping[str, tuple[int, ...]], is_function: bool, depth: int
) -> None:
    """The loops of a graph or function; `known` are the constants around it."""
    if depth > MAX_DEPTH:
        raise CheckpointError(f"this ONNX graph is nested deeper than {MAX_DEPTH} levels")
    fields = [field for field in _fields(content, start, end) if field[1] == _BYTES]
    if not is_function:
        all_constants = (_constant(content, first, last) for number, _, _, first, last in fields if number == 5)
        constants = [(name, values) for name, values in all_constants if values]
        names = [name for name, _ in constants]
        known = {**known, **{name: values for name, values in constants if name and names.count(name) == 1}}
    for number, _, _, first, last in fields:
        if number != (7 if is_function else 1) or content.find(_LOOP, first, last) < 0:
            continue
        node = [field for field in _fields(content, first, last) if field[1] == _BYTES]
        inputs = [_text(content, begin, stop) for field, _, _, begin, stop in node if field == 1]
        is_loop = any(field == 4 and content[begin:stop] == _LOOP for field, _, _, begin, stop in node)
        rounds = known.get(inputs[0] if inputs else "", ())
        if is_loop and (known.get("") or len(rounds) != 1 or not 0 <= rounds[0] <= MAX_ROUNDS):
            raise CheckpointError(
                f"this ONNX graph has a loop that is not known to end within {MAX_ROUNDS} rounds; do not use this model"
            )
        for field, _, _, begin, stop in node:
            for inner, wire, _, low, high in _fields(content, begin, stop) if field == 5 else ():
                if inner in (6, 11) and wire == _BYTES:
                    _check_loops(content, low, high, {**known, "": (1,)} if is_loop else known, False, depth + 1)


def _constant(content: bytes, start: int, end: int) -> tuple[str, tuple[int, ...]]:
    """The name of an initializer, and its values if they are few and of type int64."""
    name, data_type, values = "", 0, []
    for number, wire, _, first, last in _fields(content, start, end):
        if number == _NAME and wire == _BYTES:
            name = _text(content, first, last)
        elif number == _DATA_TYPE and wire == _VARINT:
            data_type = _read_varint(content, first, last)[0]
        elif number == _INT64_DATA and last - first <= 80:
            values += _varints(content, first, last)
        elif number == _RAW_DATA and wire == _BYTES and last - first == 8:
            values.append(int.from_bytes(content[first:last], "little", signed=True))
    return name, tuple(values) if data_type == _INT64 else ()


def embed_inner(content: bytes, read: Read) -> bytes:
    """The same model with the bytes of all external tensors that are not the main graph's taken in."""
    return b"".join(_rewrite(content, 0, len(content), "model", ("model",), read))


def _walk(content: bytes, start: int, end: int, kind: str, path: tuple[str, ...]) -> Iterator[ExternalTensor]:
    if len(path) > MAX_DEPTH:
        raise CheckpointError(f"this ONNX graph is nested deeper than {MAX_DEPTH} levels")
    if kind == "tensor":
        tensor = _read_tensor(content, start, end, path == ("model", "graph", "tensor"))
        if tensor is not None:
            yield tensor
        return
    children = _CHILDREN[kind]
    for number, wire, _, first, last in _fields(content, start, end):
        child = children.get(number)
        if child is not None and wire == _BYTES and content.find(_KEY, first, last) >= 0:
            yield from _walk(content, first, last, child, (*path, child))


def _rewrite(content: bytes, start: int, end: int, kind: str, path: tuple[str, ...], read: Read) -> list[Piece]:
    """The pieces of a message, tensors of inner graphs with their bytes; only `join` copies weights."""
    if kind == "tensor":
        tensor = _read_tensor(content, start, end, path == ("model", "graph", "tensor"))
        if tensor is None or tensor.in_main_graph:
            return [content[start:end]]
        return _embedded(content, start, end, read(tensor))
    pieces: list[Piece] = []
    copied = start
    children = _CHILDREN[kind]
    for number, wire, field, first, last in _fields(content, start, end):
        child = children.get(number)
        if child is not None and wire == _BYTES and content.find(_KEY, first, last) >= 0:
            message = _rewrite(content, first, last, child, (*path, child), read)
            pieces += [content[copied:field], _varint(number << 3 | _BYTES), _varint(sum(map(len, message))), *message]
            copied = last
    return [*pieces, content[copied:end]]


def _embedded(content: bytes, start: int, end: int, values: Piece) -> list[Piece]:
    """A tensor's message with its bytes inside rather than outside."""
    dropped = (_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION)
    kept = [content[field:last] for number, _, field, _, last in _fields(content, start, end) if number not in dropped]
    return [*kept, _varint(_RAW_DATA << 3 | _BYTES), _varint(len(values)), values]


def _read_tensor(content: bytes, start: int, end: int, in_main_graph: bool) -> ExternalTensor | None:
    """The external file of a tensor; None where it has none."""
    name, data_type, entries = "", 0, []
    shape: list[int] = []
    for number, wire, _, first, last in _fields(content, start, end):
        if number == _DIMS:
            shape += _varints(content, first, last)
        elif number == _DATA_TYPE and wire == _VARINT:
            data_type = _read_varint(content, first, last)[0]
        elif number == _NAME and wire == _BYTES:
            name = _text(content, first, last)
        elif number == _EXTERNAL_DATA and wire == _BYTES:
            entries.append(_read_entry(content, first, last))
    if not entries:
        return None
    values = dict(entries)
    if len(values) != len(entries) or set(values) != set(_EXTERNAL_KEYS):
        raise CheckpointError(
            "this ONNX graph names a file in an unusual way; expected location, offset and length, each once"
        )
    span = _number(values["offset"]), _number(values["length"])
    return ExternalTensor(name, values["location"], *span, data_type, tuple(shape), in_main_graph)


def _read_entry(content: bytes, start: int, end: int) -> tuple[str, str]:
    """A StringStringEntryProto: key and value, each exactly once, in this order."""
    fields = _fields(content, start, end)
    if [(number, wire) for number, wire, *_ in fields] != [(1, _BYTES), (2, _BYTES)]:
        raise CheckpointError("this ONNX graph names a file in an unusual way; expected one key and one value")
    (*_, first, last), (*_, begin, stop) = fields
    return _text(content, first, last), _text(content, begin, stop)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise CheckpointError(f"this ONNX graph places weights at {text[:40]!r}; expected a whole number of bytes")
    return int(text)


def _text(content: bytes, first: int, last: int) -> str:
    try:
        return content[first:last].decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError("this ONNX graph has a name that is no UTF-8 text") from error


def _fields(content: bytes, start: int, end: int) -> list[tuple[int, int, int, int, int]]:
    """Fields of a message: number, wire type, offset, and begin and end of the value."""
    fields = []
    offset = start
    while offset < end:
        field = offset
        key, first = content[offset], offset + 1
        if key >= 0x80:
            key, first = _read_varint(content, offset, end)
        wire, number = key & 7, key >> 3
        if wire == _BYTES:
            length, first = _read_varint(content, first, end)
            offset = first + length
        elif wire == _VARINT:
            _, offset = _read_varint(content, first, end)
        elif wire in (_FIXED64, _FIXED32):
            offset = first + (8 if wire == _FIXED64 else 4)
        else:  # groups, which onnx.proto does not have
            raise _corrupt()
        if offset > end or number == 0:
            raise _corrupt()
        fields.append((number, wire, field, first, offset))
    return fields


def _read_varint(content: bytes, offset: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, least first, and where it ends."""
    if offset < end and content[offset] < 0x80:  # by far the most
        return content[offset], offset + 1
    value = 0
    for shift in range(0, 70, 7):
        if offset >= end:
            break
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise _corrupt()


def _varints(content: bytes, first: int, last: int) -> list[int]:
    """Numbers one after another: a packed field, or one that is not."""
    values = []
    while first < last:
        value, first = _read_varint(content, first, last)
        values.append(value)
    return values


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _corrupt() -> CheckpointError:
    return CheckpointError("this ONNX graph is corrupt or cut short")
