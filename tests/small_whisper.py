"""A Whisper encoder of random weights, as the file that faster-whisper loads."""

from __future__ import annotations

import struct

import numpy as np

WIDTH, LAYERS, POSITIONS = 64, 2, 100


def small_whisper(positions: int = POSITIONS) -> dict[str, np.ndarray]:
    """Random weights of the encoder of a small Whisper, by CTranslate2's names."""
    rng = np.random.default_rng(0)
    shapes = {
        "conv1/weight": (WIDTH, 80, 3), "conv1/bias": (WIDTH,),
        "conv2/weight": (WIDTH, WIDTH, 3), "conv2/bias": (WIDTH,),
        "position_encodings/encodings": (positions, WIDTH), "layer_norm/gamma": (WIDTH,), "layer_norm/beta": (WIDTH,),
    }  # fmt: skip
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("self_attention/linear_0", 3 * WIDTH, WIDTH), ("self_attention/linear_1", WIDTH, WIDTH),
            ("ffn/linear_0", 4 * WIDTH, WIDTH), ("ffn/linear_1", WIDTH, 4 * WIDTH),
        ):  # fmt: skip
            shapes |= {f"layer_{layer}/{name}/weight": (rows, columns), f"layer_{layer}/{name}/bias": (rows,)}
        for name in ("self_attention/layer_norm", "ffn/layer_norm"):
            shapes |= {f"layer_{layer}/{name}/gamma": (WIDTH,), f"layer_{layer}/{name}/beta": (WIDTH,)}
    return {name: (0.2 * rng.standard_normal(shape)).astype(np.float16) for name, shape in shapes.items()}


def as_file(arrays: dict[str, np.ndarray], dtype: int = 4) -> bytes:
    """CTranslate2's binary format."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    body = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(arrays))
    for name, array in arrays.items():
        shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        body += text(f"encoder/{name}") + shape + struct.pack("<BI", dtype, array.nbytes) + array.tobytes()
    return body + struct.pack("<I", 0)
