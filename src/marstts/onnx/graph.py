"""Untrusted ONNX graphs: parsed, checked, and written again with nothing but what was checked.

Upstream: the bytes of a `.onnx` file, which are untrusted.  Downstream: `onnx.session`.
A graph may name any file of its user as its weights, or run for ever. ONNX Runtime therefore never gets the bytes of a
file, which it could read in another way than this module, but a message of `SCHEMA`, serialized again. The schema is
the part of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) that exporters use: a graph with any
other field (functions, sparse tensors, training) is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from marstts.errors import CheckpointError

MAX_ROUNDS = 1000
"""Rounds of all loops together; ours has one of seven, the positions of a patch."""

MAX_NODES = 50_000
"""Nodes of a graph and those within it: the runtime needs a kilobyte and more for each, a file twenty bytes."""

MAX_AXES = 16
MAX_AXIS = 2**40
"""Axes of a tensor, and numbers along one of them."""

INLINE_FIELDS = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
"""Fields that hold the values of a tensor; one with a place in a file has none of them."""

EXTERNAL = 1
"""TensorProto.DataLocation."""

INT64 = 7
"""TensorProto.DataType."""

SCHEMA = """
Model: 1 ir_version int64, 2 producer_name string, 3 producer_version string, 4 domain string, 5 model_version int64,
 6 doc_string string, 7 graph Graph, 8 opset_import Opset*, 14 metadata_props Entry*
Opset: 1 domain string, 2 version int64
Entry: 1 key string, 2 value string
Graph: 1 node Node*, 2 name string, 5 initializer Tensor*, 10 doc_string string, 11 input Value*, 12 output Value*,
 13 value_info Value*, 16 metadata_props Entry*
Node: 1 input string*, 2 output string*, 3 name string, 4 op_type string, 5 attribute Attribute*, 6 doc_string string,
 7 domain string, 9 metadata_props Entry*
Attribute: 1 name string, 2 f float, 3 i int64, 4 s bytes, 5 t Tensor, 6 g Graph, 7 floats float*, 8 ints int64*,
 9 strings bytes*, 13 doc_string string, 20 type int32
Tensor: 1 dims int64*, 2 data_type int32, 4 float_data float*, 5 int32_data int32*, 6 string_data bytes*,
 7 int64_data int64*, 8 name string, 9 raw_data bytes, 10 double_data double*, 11 uint64_data uint64*,
 12 doc_string string, 13 external_data Entry*, 14 data_location int32
Value: 1 name string, 2 type Type, 3 doc_string string, 4 metadata_props Entry*
Type: 1 tensor_type TensorType, 6 denotation string
TensorType: 1 elem_type int32, 2 shape Shape
Shape: 1 dim Dimension*
Dimension: 1 dim_value int64, 2 dim_param string, 3 denotation string
"""
"""Messages with the numbers, names and types of their fields; * is any number of values."""


def _model_class() -> Any:
    """The class of the message Model of `SCHEMA`."""
    field_class = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="marstts/onnx.proto", package="marstts.onnx")
    for line in SCHEMA.replace("\n ", " ").strip().splitlines():
        name, fields = line.split(": ")
        message = file.message_type.add(name=name)
        for number, field, kind in (entry.split() for entry in fields.split(", ")):
            label = field_class.LABEL_REPEATED if kind.endswith("*") else field_class.LABEL_OPTIONAL
            added = message.field.add(name=field, number=int(number), label=label)
            if kind[0].isupper():
                added.type_name = f".marstts.onnx.{kind.rstrip('*')}"
                added.type = field_class.TYPE_MESSAGE
            else:
                added.type = field_class.Type.Value(f"TYPE_{kind.rstrip('*').upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("marstts.onnx.Model"))


Model = _model_class()


@dataclass(frozen=True)
class BytePlace:
    """Where the bytes of a tensor lie."""

    file: str
    """Name of a file next to the graph."""

    offset: int
    length: int
    """Number of bytes."""


def parse_model(content: bytes) -> Any:
    """The Model of these bytes; CheckpointError where they are none, or have anything that `SCHEMA` has not."""
    try:
        model = Model.FromString(content)
        size = model.ByteSize()
        model.DiscardUnknownFields()
        known = model.ByteSize() == size
    except (DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError("this ONNX graph is corrupt or cut short") from error
    if not known:
        raise CheckpointError("this ONNX graph has parts that no graph of ours has; do not use this model")
    return model


def tensors_elsewhere(graph: Any) -> Iterator[tuple[Any, BytePlace, bool]]:
    """Every tensor whose bytes lie in another file, its place, and whether it belongs to the main graph.

    Raises CheckpointError where any tensor is unusual, or the graph may repeat itself for longer than ours do.
    """
    if _num_nodes(graph) > MAX_NODES:
        raise CheckpointError(f"this ONNX graph has more than {MAX_NODES} nodes; do not use this model")
    yield from _tensors_of(graph, is_main=True)
    rounds = sum(_num_rounds(graph, node) for node in graph.node)
    if rounds > MAX_ROUNDS:
        raise _endless()


def _num_nodes(graph: Any) -> int:
    """Nodes of a graph and of all graphs within it; of many, those of the graph itself."""
    if len(graph.node) > MAX_NODES:
        return len(graph.node)
    inner = (each.g for node in graph.node for each in node.attribute if each.HasField("g"))
    return len(graph.node) + sum(map(_num_nodes, inner))


def _tensors_of(graph: Any, *, is_main: bool) -> Iterator[tuple[Any, BytePlace, bool]]:
    names = [tensor.name for tensor in graph.initializer]
    if not are_text(names):
        raise CheckpointError("this ONNX graph has a name that is no UTF-8 text")
    if len(names) != len(set(names)):
        raise CheckpointError("this ONNX graph defines a tensor twice; do not use this model")
    for tensor in graph.initializer:
        _check_shape(tensor)
        if tensor.external_data or tensor.data_location:
            yield tensor, _place(tensor), is_main
    for node in graph.node:
        for attribute in node.attribute:
            _check_shape(attribute.t)
            if attribute.t.external_data or attribute.t.data_location:
                raise CheckpointError("this ONNX graph names a file in an attribute; do not use this model")
            if attribute.HasField("g"):
                if node.op_type != "If" and not (is_main and node.op_type == "Loop"):  # no loop within another
                    raise _endless()
                yield from _tensors_of(attribute.g, is_main=False)


def _check_shape(tensor: Any) -> None:
    """CheckpointError where a tensor has too many axes, or an impossible one."""
    if len(tensor.dims) > MAX_AXES or any(not 0 <= size <= MAX_AXIS for size in tensor.dims):
        shown = str(list(tensor.dims[: MAX_AXES + 1]))[:200]
        raise CheckpointError(f"this ONNX graph has a tensor of the impossible shape {shown}; do not use this model")


def _place(tensor: Any) -> BytePlace:
    if tensor.data_location != EXTERNAL or any(getattr(tensor, field) for field in INLINE_FIELDS):
        raise CheckpointError(
            "this ONNX graph has parts that no graph of ours has: a tensor with values of its own and of a file"
        )
    values = {entry.key: entry.value for entry in tensor.external_data}
    is_usual = len(values) == len(tensor.external_data) and values.keys() == {"location", "offset", "length"}
    if not is_usual or not are_text(values.values()):
        raise CheckpointError(
            "this ONNX graph names a file in an unusual way; expected location, offset and length, each once"
        )
    if not is_plain_name(values["location"]):
        raise CheckpointError(
            f"this ONNX graph reads weights from {values['location'][:200]!a}; expected the name of a file next to it, "
            "so do not use this model"
        )
    for text in (values["offset"], values["length"]):
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise CheckpointError(f"this ONNX graph places weights at {text[:40]!a}; expected a whole number of bytes")
    return BytePlace(values["location"], int(values["offset"]), int(values["length"]))


def are_text(values: Iterable[Any]) -> bool:
    """Return True where all values of string fields are text: protobuf gives bytes for what is no UTF-8."""
    return all(isinstance(value, str) for value in values)


def is_plain_name(name: str) -> bool:
    """Return True where a name is that of a file in the same folder, on every system."""
    return name.isprintable() and name not in ("", ".", "..") and not set(name) & set('/\\:*?"<>|')


def _num_rounds(graph: Any, node: Any) -> int:
    """How often a node of the main graph runs its inner graph; CheckpointError where that is not known.

    It is known for a condition, and for a loop over a number that the graph itself states.
    """
    if node.op_type != "Loop":
        return 0
    name = node.input[0] if node.input else ""
    counts = [tensor for tensor in graph.initializer if name and tensor.name == name]
    is_computed = any(name in other.output for other in graph.node) or any(name == each.name for each in graph.input)
    if len(counts) != 1 or is_computed:
        raise _endless()
    [count] = counts
    is_elsewhere = count.external_data or count.data_location
    if count.data_type != INT64 or is_elsewhere or any(size != 1 for size in count.dims):
        raise _endless()
    values = [*count.int64_data]
    if count.raw_data:
        values.append(int.from_bytes(count.raw_data, "little", signed=True) if len(count.raw_data) == 8 else -1)
    if len(values) != 1 or not 0 <= values[0] <= MAX_ROUNDS:
        raise _endless()
    return int(values[0])


def _endless() -> CheckpointError:
    return CheckpointError(
        f"this ONNX graph has a loop that is not known to end within {MAX_ROUNDS} rounds; do not use this model"
    )
