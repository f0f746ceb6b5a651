"""Graphs get their weights from safetensors files next to them, which may be links, and from nowhere else."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import save_file

from marstts.errors import CheckpointError
from marstts.onnx.session import open_session

onnx = pytest.importorskip("onnx")

pytestmark = pytest.mark.slow

helper, TensorProto = onnx.helper, onnx.TensorProto
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

WEIGHTS = {"outer": np.arange(12, dtype=np.float32).reshape(4, 3), "inner": np.arange(9.0, 18.0, dtype=np.float32)}
posix = pytest.mark.skipif(os.name != "posix", reason="links, pipes and devices of POSIX")


def external(name: str, shape: tuple[int, ...], entries: dict[str, Any], data_type: int = FLOAT) -> Any:
    tensor = TensorProto(name=name, dims=list(shape), data_type=data_type, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def places(path: Path) -> dict[str, dict[str, Any]]:
    """The external data of every tensor of a safetensors file."""
    import json

    content = path.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    return {
        name: {
            "location": path.name,
            "offset": start + entry["data_offsets"][0],
            "length": np.diff(entry["data_offsets"])[0],
        }
        for name, entry in json.loads(content[8:start]).items()
    }


def loop_body(tensor: Any) -> Any:
    """Add a tensor of 9 values, reshaped to (3, 3), to what goes round."""
    shape = helper.make_tensor("shape", INT64, [2], [3, 3])
    nodes = [
        helper.make_node("Reshape", [tensor.name, "shape"], ["square"]),
        helper.make_node("MatMul", ["before", "square"], ["after"]),
        helper.make_node("Identity", ["go"], ["go_on"]),
    ]
    value = helper.make_tensor_value_info
    inputs = [value("turn", INT64, []), value("go", BOOL, []), value("before", FLOAT, None)]
    outputs = [value("go_on", BOOL, []), value("after", FLOAT, None)]
    return helper.make_graph(nodes, "body", inputs, outputs, [tensor, shape])


def make_model(outer: Any, inner: Any) -> Any:
    """x (N, 4) -> x @ outer (4, 3) @ inner (3, 3) @ inner, the latter in a loop of two turns."""
    nodes = [
        helper.make_node("MatMul", ["x", outer.name], ["first"]),
        helper.make_node("Loop", ["turns", "", "first"], ["y"], body=loop_body(inner)),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "graph", [value("x", FLOAT, ["n", 4])], [value("y", FLOAT, None)],
        [outer, helper.make_tensor("turns", INT64, [], [2])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def write_model(folder: Path, outer: dict[str, Any] | None = None, inner: dict[str, Any] | None = None) -> Path:
    """A graph and its weights; `outer` and `inner` replace entries of the external data."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(WEIGHTS, folder / "weights.safetensors")
    found = places(folder / "weights.safetensors")
    model = make_model(
        external("outer", (4, 3), {**found["outer"], **(outer or {})}),
        external("inner", (9,), {**found["inner"], **(inner or {})}),
    )
    (folder / "graph.onnx").write_bytes(model.SerializeToString())
    return folder / "graph.onnx"


def check_computes(path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    square = WEIGHTS["inner"].reshape(3, 3)
    expected = x @ WEIGHTS["outer"] @ square @ square
    np.testing.assert_allclose(open_session(path).run(None, {"x": x})[0], expected, rtol=1e-4)


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_session(path)
    error_text = str(caught.value)
    assert "\n" not in error_text and len(error_text) < 900
    return error_text


def test_weights_come_from_the_file_next_to_the_graph(tmp_path):
    check_computes(write_model(tmp_path))


@posix
def test_symbolic_links_of_hub_caches_are_read(tmp_path):
    source = write_model(tmp_path / "made").parent
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots" / "main").mkdir(parents=True)
    for number, file in enumerate(source.iterdir()):
        file.rename(tmp_path / "blobs" / f"{number:064x}")
        (tmp_path / "snapshots" / "main" / file.name).symlink_to(f"../../blobs/{number:064x}")
    check_computes(tmp_path / "snapshots" / "main" / "graph.onnx")


LOCATIONS = [
    "../weights.safetensors",
    "../../../../../../etc/passwd",
    "/etc/passwd",
    "./weights.safetensors",
    "folder/weights.safetensors",
    "C:\\windows\\win.ini",
    "..\\weights.safetensors",
    "\\\\server\\share\\weights",
    "file:///etc/passwd",
    "*/_ORT_MEM_ADDR_/*",
    "..",
    ".",
    "",
    "weights.safetensors\0",
    "weights\nsafetensors",
]


@pytest.mark.parametrize("which", ["outer", "inner"])
@pytest.mark.parametrize("location", LOCATIONS)
def test_a_location_that_is_no_plain_name_is_refused(tmp_path, which, location):
    write_model(tmp_path)  # so that a file is there
    path = write_model(tmp_path / "folder", **{which: {"location": location}})
    assert "expected the name of a file next to it" in refusal(path)


@posix
@pytest.mark.parametrize("which", ["outer", "inner"])
def test_a_link_to_a_file_that_holds_no_weights_is_refused(tmp_path, which):
    (tmp_path / "secret").write_text("root:x:0:0:" * 1000)
    for name, make in (("soft", Path.symlink_to), ("hard", Path.hardlink_to)):
        path = write_model(tmp_path / name, **{which: {"location": "stolen", "offset": 0, "length": 48}})
        make(path.parent / "stolen", tmp_path / "secret")
        assert "expected weights as a safetensors file" in refusal(path)


@posix
def test_weights_that_are_no_regular_file_are_refused(tmp_path):
    path = write_model(tmp_path)
    weights = tmp_path / "weights.safetensors"

    def refused_as(make: Any) -> str:
        weights.unlink() if not weights.is_dir() else weights.rmdir()
        make()
        return refusal(path)

    assert "no such file" in refused_as(lambda: None)
    weights.touch()
    assert "device or a pipe" in refused_as(lambda: weights.symlink_to("/dev/zero"))
    assert "device or a pipe" in refused_as(lambda: os.mkfifo(weights))
    assert "symbolic links" in refused_as(lambda: weights.symlink_to(weights.name))
    assert "this is a folder" in refused_as(weights.mkdir)


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({"offset": 0}, "are no tensor of this file"),  # the header
        ({"offset": 10**17}, "are no tensor of this file"),
        ({"length": 10**17}, "are no tensor of this file|do not agree"),
        ({"length": 4}, "do not agree|cannot be loaded"),
        ({"offset": -1}, "expected a whole number"),
        ({"offset": "9" * 40}, "expected a whole number"),
        ({"offset": "٣"}, "expected a whole number"),
        ({"checksum": "abc"}, "in an unusual way"),
    ],
)
@pytest.mark.parametrize("which", ["outer", "inner"])
def test_weights_must_be_tensors_of_their_file(tmp_path, which, entries, complaint):
    assert re.search(complaint, refusal(write_model(tmp_path, **{which: entries})))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{}" + b"more",
        struct.pack("<Q", 4) + b'{"a"',
        struct.pack("<Q", 40) + b'{"a":{"data_offsets":[0,99999999999999]}}'[:40],
        struct.pack("<Q", 35) + b'{"a":{"data_offsets":[0,%d]}}      ' % 9,
        struct.pack("<Q", 29) + b'{"a":{"data_offsets":[true]}}',
        struct.pack("<Q", 32) + b'{"a":{"data_offsets":["x","yy"]}}'[:32],
        struct.pack("<Q", 200) + b"[" * 200,
    ],
)
def test_files_that_are_no_safetensors_are_refused(tmp_path, content):
    path = write_model(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(content)
    assert "expected weights as a safetensors file" in refusal(path)


def everywhere(tensor: Any) -> dict[str, Any]:
    """A model for every place where a tensor can be."""
    value = helper.make_tensor_value_info
    node = helper.make_node("Identity", ["x"], ["y"])
    output = value("y", FLOAT, [1])

    def model(nodes: list[Any], initializers: list[Any] = (), **more: Any) -> Any:
        graph = helper.make_graph(nodes, "g", [value("x", FLOAT, [1])], [output], list(initializers))
        return helper.make_model(graph, **more)

    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    listed = helper.make_node("Custom", [], ["c"], domain="d", tensors=[tensor])
    inner = helper.make_graph([constant], "inner", [], [output])
    sparse = onnx.SparseTensorProto(dims=[1])
    sparse.values.CopyFrom(tensor)
    with_sparse = model([node])
    with_sparse.graph.sparse_initializer.append(sparse)
    function = helper.make_function("d", "f", ["x"], ["y"], [constant, node], [helper.make_opsetid("", 18)])
    default = helper.make_function("d", "f", ["x"], ["y"], [node], [helper.make_opsetid("", 18)])
    default.attribute_proto.append(helper.make_attribute("a", tensor))
    training = model([node])
    training.training_info.add().initialization.initializer.append(tensor)
    unused = model([node], [tensor])
    unused.graph.initializer[0].data_location = TensorProto.DEFAULT
    return {
        "initializer": model([node], [tensor]),
        "marked as unused": unused,
        "attribute": model([constant, node]),
        "list of tensors": model([listed, node]),
        "subgraph": model([helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)]),
        "list of graphs": model([helper.make_node("Custom", [], ["c"], domain="d", graphs=[inner]), node]),
        "sparse initializer": with_sparse,
        "sparse attribute": model([helper.make_node("Constant", [], ["c"], sparse_value=sparse), node]),
        "function": model([node], functions=[function]),
        "function's default": model([node], functions=[default]),
        "training": training,
    }


PLACES = tuple(everywhere(external("t", (1,), {"location": "w", "offset": 0, "length": 4})))


@pytest.mark.parametrize("location", ["/etc/passwd", "other.safetensors", "../other.safetensors"])
@pytest.mark.parametrize("place", PLACES)
def test_a_file_is_refused_wherever_a_model_names_it(tmp_path, place, location):
    evil = external("t", (1,), {"location": location, "offset": 0, "length": 4})
    (tmp_path / "graph.onnx").write_bytes(everywhere(evil)[place].SerializeToString())
    (tmp_path / "other.safetensors").write_bytes(b"secret" * 9)
    reasons = "name of a file next to it|a safetensors file|has parts that no|in an attribute|not known to end"
    assert re.search(reasons, refusal(tmp_path / "graph.onnx"))


def field(number: int, message: bytes) -> bytes:
    """A field of protobuf with a message or text."""
    encoded = bytearray()
    for value in (number << 3 | 2, len(message)):
        while value > 127:
            encoded.append(value & 127 | 128)
            value >>= 7
        encoded.append(value)
    return bytes(encoded) + message


def test_inner_weights_are_taken_into_the_graph(tmp_path):
    path = write_model(tmp_path)
    check_computes(path)
    copy = onnx.load(str(path))  # with its weights
    x = np.ones((1, 4), np.float32)
    expected = onnxruntime.InferenceSession(copy.SerializeToString()).run(None, {"x": x})[0]
    assert np.array_equal(open_session(path).run(None, {"x": x})[0], expected)


def loop_over(rounds: Any, *more: Any, **options: Any) -> bytes:
    """A graph with a loop whose number of rounds is this tensor."""
    body = loop_body(helper.make_tensor("inner", FLOAT, [9], [1.0] * 9))
    node = helper.make_node("Loop", [rounds.name, "", "x"], ["y"], body=body)
    value = helper.make_tensor_value_info
    inputs = [value("x", FLOAT, ["n", 3]), *options.get("inputs", [])]
    nodes = [node] * options.get("copies", 1)
    graph = helper.make_graph(nodes, "g", inputs, [value("y", FLOAT, None)], [rounds, *more])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


def hidden_rounds(folder: Path, field: str) -> bytes:
    """Rounds with a small number in a field of their own, and a large one in the file."""
    save_file({"m": np.array([2**60])}, folder / "weights.safetensors")
    tensor = external("turns", (), places(folder / "weights.safetensors")["m"], INT64)
    if field == "raw_data":
        tensor.raw_data = struct.pack("<q", 5)
    elif field:
        getattr(tensor, field).append(5)
    return loop_over(tensor)


@pytest.mark.parametrize("field", ["int64_data", "raw_data", "int32_data", "uint64_data", "float_data", ""])
def test_a_loop_over_a_number_of_a_file_is_refused(tmp_path, field):
    (tmp_path / "graph.onnx").write_bytes(hidden_rounds(tmp_path, field))
    assert re.search("values of its own and of a file|not known to end", refusal(tmp_path / "graph.onnx"))


def test_loops_of_unknown_or_many_rounds_are_refused(tmp_path):
    def turns(dims: list[int], *values: int) -> Any:
        return helper.make_tensor("turns", INT64, dims, list(values))

    value = helper.make_tensor_value_info("turns", INT64, [])
    graphs = [
        loop_over(turns([], 5), inputs=[value]),  # a caller may give another number
        loop_over(turns([], 300), copies=4),
        loop_over(turns([2], 5, 2**40)),
        loop_over(helper.make_tensor("turns", INT64, [2], struct.pack("<qq", 5, 0), raw=True)),
        loop_over(turns([], -1)),
    ]
    for content in graphs:
        (tmp_path / "graph.onnx").write_bytes(content)
        assert "not known to end" in refusal(tmp_path / "graph.onnx")
    (tmp_path / "graph.onnx").write_bytes(loop_over(turns([], 5)))
    open_session(tmp_path / "graph.onnx")


@pytest.mark.parametrize(
    "shape", [(-2, -20), (-1, -1, 12), (1,) * 70 + (12,), (12, 0), (2**62, 2**62, 12), (12, -1, -1)]
)
@pytest.mark.parametrize("name", ["outer", "inner"])
def test_impossible_shapes_are_refused(tmp_path, name, shape):
    path = write_model(tmp_path)
    model = onnx.load(str(path), load_external_data=False)
    body = model.graph.node[1].attribute[0].g
    [tensor] = [each for each in [*model.graph.initializer, *body.initializer] if each.name == name]
    tensor.dims[:] = shape
    path.write_bytes(model.SerializeToString())
    assert re.search("impossible shape|do not agree", refusal(path))


def test_an_inline_tensor_of_an_impossible_shape_is_refused(tmp_path):
    constant = TensorProto(name="c", dims=[-1, -4], data_type=FLOAT, float_data=[1.0] * 4)
    (tmp_path / "graph.onnx").write_bytes(everywhere(constant)["attribute"].SerializeToString())
    assert "impossible shape" in refusal(tmp_path / "graph.onnx")


@pytest.mark.parametrize("is_inner", [True, False])
def test_weights_that_are_used_so_often_that_they_fill_the_memory_are_refused_at_once(tmp_path, is_inner):
    save_file({"w": np.zeros(2**20, np.float32)}, tmp_path / "weights.safetensors")
    place = places(tmp_path / "weights.safetensors")["w"]
    tensors = [external(f"w{number}", (2**20,), place) for number in range(100)]
    constant = helper.make_tensor("c", FLOAT, [1], [1.0])
    content = everywhere(constant)["subgraph" if is_inner else "initializer"]
    target = content.graph.node[0].attribute[0].g if is_inner else content.graph
    del target.initializer[:]
    target.initializer.extend(tensors)
    (tmp_path / "graph.onnx").write_bytes(content.SerializeToString())
    assert "uses its weights so often" in refusal(tmp_path / "graph.onnx")


def test_a_header_that_states_a_tensor_twice_is_refused(tmp_path):
    path = write_model(tmp_path)
    entry = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    header = f"{{{entry},{entry}}}".encode()
    (tmp_path / "weights.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert "expected weights as a safetensors file" in refusal(path)


def test_deep_nesting_is_refused(tmp_path):
    graph = field(5, external("t", (1,), {"location": "w", "offset": 0, "length": 4}).SerializeToString())
    for _ in range(40):
        graph = field(1, field(5, field(6, graph)))  # a node, its attribute, a graph
    (tmp_path / "graph.onnx").write_bytes(field(7, graph))
    assert "corrupt or cut short" in refusal(tmp_path / "graph.onnx")


def test_the_runtime_stores_and_sends_no_telemetry(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    environment.pop("XDG_CACHE_HOME", None)
    script = "import marstts.onnx.session, onnxruntime, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    command = [sys.executable, "-c", script]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "1" and not list(tmp_path.iterdir())
    chosen = subprocess.run(command, env={**environment, "ORT_DISABLE_TELEMETRY": "0"}, check=True, capture_output=True)
    assert chosen.stdout.strip() == b"0", "the user's own choice is overwritten"
