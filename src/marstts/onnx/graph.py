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
"""Rounds of a loop; ours has seven, the positions of a patch."""

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


def tensors_elsewhere(graph: Any, is_main: bool = True) -> Iterator[tuple[Any, BytePlace, bool]]:
    """Every tensor whose bytes lie in another file, its place, and whether it belongs to the main graph.

    Raises CheckpointError where such a tensor is unusual, or the graph may repeat itself for longer than ours do.
    """
    names = [tensor.name for tensor in graph.initializer]
    if not are_text(names):
        raise CheckpointError("this ONNX graph has a name that is no UTF-8 text")
    if len(names) != len(set(names)):
        raise CheckpointError("this ONNX graph defines a tensor twice; do not use this model")
    for tensor in graph.initializer:
        if tensor.external_data or tensor.data_location:
            yield tensor, _place(tensor), is_main
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.t.external_data or attribute.t.data_location:
                raise CheckpointError("this ONNX graph names a file in an attribute; do not use this model")
            if attribute.HasField("g"):
                _check_rounds(graph, node, is_main)
                yield from tensors_elsewhere(attribute.g, False)


def _place(tensor: Any) -> BytePlace:
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


def _check_rounds(graph: Any, node: Any, is_main: bool) -> None:
    """CheckpointError unless a node runs its inner graph a known, small number of times.

    That is a condition, or a loop of the main graph (no loop within another) over a constant number of rounds.
    """
    if node.op_type == "If":
        return
    rounds = [tensor for tensor in graph.initializer if is_main and list(node.input[:1]) == [tensor.name]]
    if node.op_type == "Loop" and len(rounds) == 1 and rounds[0].name and rounds[0].data_type == INT64:
        values = [*rounds[0].int64_data]
        if rounds[0].raw_data:
            values.append(int.from_bytes(rounds[0].raw_data, "little", signed=True))
        computed = any(rounds[0].name in other.output for other in graph.node)
        if len(values) == 1 and 0 <= values[0] <= MAX_ROUNDS and not computed:
            return
    raise CheckpointError(
        f"this ONNX graph has a loop that is not known to end within {MAX_ROUNDS} rounds; do not use this model"
    )
