"""Corrupt files: each reader returns a value or one sentence, without a traceback, a hang or access to other files.

A hundred inputs per reader by default; `MARSTTS_FUZZ=20000 pytest tests/test_fuzz_files.py` tries so many of each.
Inputs follow from their number and from `MARSTTS_FUZZ_SEED` alone; a failure names the number.
`MARSTTS_FUZZ_COUNTS=FILE` appends the counts to a file.
"""

from __future__ import annotations

import io
import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soundfile
from safetensors.numpy import save

from marstts import audio
from marstts.errors import ConfigError, MarsError
from marstts.io.config import Config
from marstts.io.jsonl import Torn, append_rows, read_rows, write_rows
from marstts.io.provenance import PROVENANCE_FILE, begin_or_resume, extend_provenance
from marstts.io.reading import parse_json, read_json, read_text
from marstts.onnx.session import open_session

INPUTS = int(os.environ.get("MARSTTS_FUZZ", "100"))
SLOWEST_SECONDS = 20.0
"""Far above what any of these inputs takes, so that a busy machine is no failure."""

SPLINTERS = [
    *(
        b"[",
        b"{",
        b"}",
        b'"',
        b"\\",
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"NaN",
        b"-",
        b"1e999",
    ),
    *(
        b"9" * 5_000,
        b"[" * 300,
        b'{"a":' * 2_000,
        b"null",
        b"true",
        b"../../etc/passwd",
        b"/dev/zero",
        b"%s%n",
        b"\x1b[2J",
    ),
    *(
        number.to_bytes(size, order)
        for number in (0, 1, 2**31 - 1, 2**31)
        for size in (4, 8)
        for order in ("little", "big")
    ),
    *((2**63).to_bytes(8, order) for order in ("little", "big")),
]


class Item(Config):
    id: str
    seconds: float
    levels: tuple[int, ...] = ()


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Content with one to six wounds: changed, lost, doubled or foreign bytes, or its end cut off."""
    corrupt = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        place, length = rng.randrange(len(corrupt) + 1), rng.choice([0, 1, 1, 2, 4, 8, rng.randrange(200)])
        piece = bytes(corrupt[place : place + length])
        kind = rng.randrange(6)
        if kind == 0:
            corrupt[place : place + length] = bytes(rng.randrange(256) for _ in range(len(piece)))
        elif kind == 1:
            del corrupt[place : place + length]
        elif kind == 2:
            corrupt[place:place] = piece * rng.randint(1, 20)
        elif kind == 3 and corrupt:
            corrupt[place % len(corrupt)] ^= 1 << rng.randrange(8)
        elif kind == 4:
            corrupt[place : place + length] = rng.choice(SPLINTERS)
        elif rng.random() < 0.3:
            del corrupt[place:]
    return bytes(corrupt)


def input_rng(case: str) -> random.Random:
    """The randomness of one input; another seed gives other inputs."""
    return random.Random(os.environ.get("MARSTTS_FUZZ_SEED", "") + case)


def count_inputs(name: str, inputs: int, **more: int) -> None:
    """Append how many inputs of an attack passed to the file that MARSTTS_FUZZ_COUNTS names."""
    if path := os.environ.get("MARSTTS_FUZZ_COUNTS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"attack": name, "inputs": inputs, **more}) + "\n")


def attack(seeds: list[bytes], read: Callable[[bytes], Any], name: str, inputs: int = INPUTS) -> None:
    """Every reader's answer to every input is a value or one sentence, soon."""
    for number in range(inputs):
        rng = input_rng(f"{name} {number}")
        content = mutated(rng.choice(seeds), rng)
        started = time.monotonic()
        try:
            read(content)
        except MarsError as error:
            error_text = str(error)
            assert error_text and "\n" not in error_text and "\x1b" not in error_text, (
                f"{name}, input {number}: {error_text!r}"
            )
            error_text.encode("utf-8")
        except Exception as error:
            raise AssertionError(f"{name}, input {number}: {type(error).__name__}: {error}") from error
        assert time.monotonic() - started < SLOWEST_SECONDS, f"{name}, input {number} took too long"
    count_inputs(name, inputs)


JSON_SEEDS = [
    json.dumps({"id": "a", "seconds": 1.5, "levels": [1, 2, 3]}).encode(),
    json.dumps({"deep": [[[{"x": [None, True, -2.5e-3]}]]], "text": 'ü " \\ 😀'}).encode(),
    json.dumps({"deep": "é\u2028"}, ensure_ascii=False).encode(),
]
ROWS = b"".join(json.dumps({"id": f"n{n}", "seconds": n + 0.5, "levels": [n] * n}).encode() + b"\n" for n in range(5))


def test_json(tmp_path):
    path = tmp_path / "a.json"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        value = read_json(path, 50_000)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")  # whatever came can be written
        assert parse_json(read_text(path, 50_000), "x") == value

    attack(JSON_SEEDS, read, "json")


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        rows = read_rows(Item, path, torn=Torn.DROP, unique=["id"])
        append_rows(path, [Item(id="appended", seconds=1.0)])
        assert [row.id for row in read_rows(Item, path)] == [*(row.id for row in rows), "appended"]
        write_rows(path, rows)
        assert read_rows(Item, path) == rows

    attack([ROWS], read, "json lines")


def test_provenance(tmp_path):
    record = Item(id="a", seconds=1.5)

    def read(content: bytes) -> None:
        (tmp_path / PROVENANCE_FILE).write_bytes(content)
        try:
            begin_or_resume(tmp_path, record, {"id": "model", "seconds": "configuration"})
        except ConfigError:
            assert (tmp_path / PROVENANCE_FILE).read_bytes() == content  # nothing lost
            raise
        extend_provenance(tmp_path, {"levels": []})

    attack([record.model_dump_json().encode(), *JSON_SEEDS], read, "provenance")


@pytest.mark.slow
def test_graphs_and_the_headers_of_their_weights(tmp_path):
    onnx = pytest.importorskip("onnx")
    header = save({"w": np.ones((4, 3), np.float32)})
    start = 8 + int.from_bytes(header[:8], "little")
    tensor = onnx.TensorProto(name="w", dims=[4, 3], data_type=1, data_location=1)
    for key, value in (("location", "weights"), ("offset", str(start)), ("length", "48")):
        tensor.external_data.add(key=key, value=value)
    helper = onnx.helper
    value = helper.make_tensor_value_info
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    made = helper.make_graph([node], "g", [value("x", 1, ["n", 4])], [value("y", 1, None)], [tensor])
    graph = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
    path, weights = tmp_path / "graph.onnx", tmp_path / "weights"

    def read_graph(content: bytes) -> None:
        path.write_bytes(content)
        open_session(path)

    def read_weights(content: bytes) -> None:
        weights.write_bytes(content)
        open_session(path)

    weights.write_bytes(header)
    attack([graph], read_graph, "graph")
    path.write_bytes(graph)
    open_session(path)
    attack([header, header[:start]], read_weights, "weights")


RECORDINGS = {
    "WAV": "PCM_16",
    "WAVEX": "PCM_24",
    "RF64": "PCM_16",
    "W64": "FLOAT",
    "AIFF": "PCM_16",
    "AU": "PCM_16",
    "CAF": "PCM_16",
    "FLAC": "PCM_16",
    "OGG": "VORBIS",
    "MP3": "MPEG_LAYER_III",
}


def sound_files() -> list[bytes]:
    samples = np.random.default_rng(0).normal(scale=0.1, size=3_000).astype(np.float32)
    files = []
    for container, encoding in RECORDINGS.items():
        buffer = io.BytesIO()
        soundfile.write(buffer, samples, 16_000, format=container, subtype=encoding)
        files.append(buffer.getvalue())
    return files


@pytest.mark.slow
def test_recordings(tmp_path):
    path = tmp_path / "recording"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        waveform = audio.read(path, max_seconds=60.0)
        assert np.isfinite(waveform.samples).all() and len(waveform.samples)
        audio.read_span(path, 0.0, waveform.seconds / 2)
        resampled = sum(len(block.samples) for block in audio.read_blocks(path, sample_rate=8_000, max_seconds=60.0))
        assert abs(resampled / 8_000 - waveform.seconds) < 0.01

    attack(sound_files(), read, "recordings")
