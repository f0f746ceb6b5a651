"""SNAC as ONNX graphs over folded weights: the published codec without PyTorch, and faster.

Upstream: the weights that `snac.SnacCodec` opens.  Downstream: `snac_onnx.SnacOnnx`, which runs the folder written by
`export_snac`.
SNAC (arXiv:2410.14411). Weight norm and the factors of every snake activation, x + sin²(a·x)/a, are folded into the
weights, so that u + sin²(π·u)/π remains. With r the distance of u from the nearest integer, sin²(π·u) = sin²(π·r), a
polynomial of r² between 0 and 1/4; in ONNX Runtime a sine takes longer than ten such products. Depthwise convolutions
are written as two-dimensional ones of height 1, for which alone ONNX Runtime has a fast kernel.
Shapes: T patches · K_l codes of level l per patch · C channels · N latents or samples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts.codec.snac import WEIGHT_FILES, SnacConfig, SnacFolder, read_snac_config
from marstts.errors import require
from marstts.io.config import write_config
from marstts.onnx.build import GraphBuilder, stored_tensors
from marstts.weights.pretrained import (
    EXTRA,
    find_file,
    find_weights,
    fingerprint,
    load_strictly,
    read_tensors,
    short_name,
)

Weights = dict[str, NDArray[np.float32]]

CONFIG_FILE, WEIGHTS_FILE = "config.json", "snac.safetensors"

SINE_TERMS = 4
"""Terms of the polynomial; its largest error is 6e-5, with three terms 2e-3."""

MIN_ALPHA = 1e-4
"""Smallest factor of a snake, which is divided by it; below, a snake is almost linear."""

NORM_EPSILON = 1e-12
"""Epsilon of PyTorch's `normalize`."""


def export_snac(source: Path | str, folder: Path, sha256: str | None = None) -> None:
    """Write the SNAC of `source` (a file, a folder or a name on the hub) to `folder`, in single precision, as graphs.

    Raises MissingExtraError without the packages, CheckpointError where the weights are missing or do not fit.
    """
    snac, torch = require("snac", EXTRA), require("torch", EXTRA)
    from safetensors.numpy import save_file

    config = read_snac_config(find_file(source, [CONFIG_FILE]))
    weights = find_weights(source, WEIGHT_FILES)
    name = short_name("snac", fingerprint(weights, sha256))
    with torch.random.fork_rng(devices=[]):  # the random initialization is overwritten
        model = snac.SNAC(**config.model_dump()).eval()
    load_strictly(model, read_tensors(weights), weights)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(fold({key: value.numpy() for key, value in model.state_dict().items()}), folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors makes files that only their owner can read
    write_config(SnacFolder(name=name, model=config), folder / CONFIG_FILE)
    for graph, build in (("encoder", encoder_graph), ("decoder", decoder_graph)):
        g = GraphBuilder(stored_tensors(folder / WEIGHTS_FILE), WEIGHTS_FILE)
        build(g, config)
        g.save(folder / f"{graph}.onnx")


def fold(tensors: Mapping[str, NDArray[np.float32]]) -> Weights:
    """A model's tensors -> weights without weight norm, snakes folded into convolutions; `turns` (C, 1) = a / π."""
    folded = without_norm(tensors)
    for name in [name for name in folded if name.endswith(".alpha")]:
        match = re.fullmatch(r"(.*)\.(\d+)\.alpha", name)
        assert match is not None, name
        stem, index = match[1], int(match[2])
        alpha = folded.pop(name).reshape(-1)
        turns = np.copysign(np.maximum(np.abs(alpha), MIN_ALPHA), alpha).astype(np.float32) / np.float32(np.pi)
        after, before = f"{stem}.{index + 1}.weight", f"{stem}.{index - 1}"
        scale_axis(folded, after, 1 if folded[after].shape[1] == len(turns) else 0, np.reciprocal(turns))
        if f"{before}.weight" in folded:  # only the snake uses that convolution's output
            scale_axis(folded, f"{before}.weight", 0, turns)
            scale_axis(folded, f"{before}.bias", 0, turns)
        else:
            folded[f"{stem}.{index}.turns"] = turns[:, None]
    return {name: np.ascontiguousarray(value, np.float32) for name, value in folded.items()}


def without_norm(tensors: Mapping[str, NDArray[np.float32]]) -> Weights:
    """Magnitudes and directions of weight norm -> magnitude · direction / norm per output; other tensors unchanged."""
    direction, magnitude = ".parametrizations.weight.original1", ".parametrizations.weight.original0"
    plain = {}
    for name, value in tensors.items():
        if name.endswith(direction):
            stem = name.removesuffix(direction)
            norm = np.sqrt(np.sum(np.square(value, dtype=np.float64), axis=tuple(range(1, value.ndim)), keepdims=True))
            plain[f"{stem}.weight"] = (tensors[f"{stem}{magnitude}"] * value / norm).astype(np.float32)
        elif not name.endswith(magnitude):
            plain[name] = value
    return plain


def scale_axis(weights: Weights, name: str, axis: int, factors: NDArray[np.float32]) -> None:
    """Multiply the slices of a weight along an axis."""
    shape = [1] * weights[name].ndim
    shape[axis] = -1
    weights[name] = weights[name] * factors.reshape(shape)


def decoder_graph(g: GraphBuilder, config: SnacConfig) -> None:
    """Codes, spans and noise -> samples (1, 1, N) of the last span.

    codes.l (1, T · K_l) per level; spans (2 · blocks,), the first and last sample that is kept of each block's
    upsampling; noise.i (1, 1, N) for the kept samples of block i.
    """
    latents = None
    for level, stride in enumerate(config.vq_strides):
        codes = g.input(f"codes.{level}", "INT64", [1, f"codes_{level}"])
        part = upsample(g, decode_level(g, codes, f"quantizer.quantizers.{level}"), stride)
        latents = part if latents is None else g.op("Add", latents, part)
    assert latents is not None
    blocks = len(config.decoder_rates)
    edges = g.ops("Split", g.input("spans", "INT64", [2 * blocks]), outputs=2 * blocks, axis=0, num_outputs=2 * blocks)
    layers = iter(f"decoder.model.{index}" for index in range(99))
    x = latents
    if config.depthwise:
        x = convolve_depthwise(g, x, next(layers))
    x = convolve(g, x, next(layers), padding=0 if config.depthwise else 3)
    for index, rate in enumerate(config.decoder_rates):
        block = f"{next(layers)}.block"
        x = g.op(
            "ConvTranspose", snake(g, x, f"{block}.0"),
            g.as_float32(f"{block}.1.weight"), g.as_float32(f"{block}.1.bias"),
            strides=[rate], pads=[-(-rate // 2)] * 2, output_padding=[rate % 2],
        )  # fmt: skip
        x = g.op("Slice", x, edges[2 * index], edges[2 * index + 1], [2])
        if config.noise:
            noise = g.input(f"noise.{index}", "FLOAT", [1, 1, f"samples_{index}"])
            x = g.op("Add", x, g.op("Mul", noise, convolve(g, x, f"{block}.2.linear")))
        for unit, dilation in enumerate((1, 3, 9), start=3 if config.noise else 2):
            x = residual_unit(g, x, f"{block}.{unit}.block", dilation, config)
    x = snake(g, x, next(layers))
    g.output(g.op("Tanh", convolve(g, x, next(layers), padding=3)), "samples", "FLOAT")


def encoder_graph(g: GraphBuilder, config: SnacConfig) -> None:
    """samples (1, 1, N), whole patches -> codes.l (1, T · K_l) per level."""
    layers = iter(f"encoder.block.{index}" for index in range(99))
    x = convolve(g, g.input("samples", "FLOAT", [1, 1, "samples"]), next(layers), padding=3)
    for rate in config.encoder_rates:
        block = f"{next(layers)}.block"
        for unit, dilation in enumerate((1, 3, 9)):
            x = residual_unit(g, x, f"{block}.{unit}.block", dilation, config)
        x = convolve(g, snake(g, x, f"{block}.3"), f"{block}.4", padding=-(-rate // 2), stride=rate)
    last = next(layers)
    residual = convolve_depthwise(g, x, last) if config.depthwise else convolve(g, x, last, padding=3)
    for level, stride in enumerate(config.vq_strides):
        name = f"quantizer.quantizers.{level}"
        pooled = g.op("AveragePool", residual, kernel_shape=[stride], strides=[stride]) if stride > 1 else residual
        codes = nearest(g, convolve(g, pooled, f"{name}.in_proj"), f"{name}.codebook.weight")
        g.output(codes, f"codes.{level}", "INT64")
        residual = g.op("Sub", residual, upsample(g, decode_level(g, codes, name), stride))


def nearest(g: GraphBuilder, latents: str, codebook: str) -> str:
    """latents (1, c, N) -> (1, N) entries of the codebook (K, c) with the largest cosine similarity."""
    entries = g.as_float32(codebook)
    length = g.op("Sqrt", g.op("ReduceSum", g.op("Mul", entries, entries), [1]))
    unit = g.op("Div", entries, g.op("Max", length, np.float32(NORM_EPSILON)))
    return g.op("ArgMax", g.op("MatMul", unit, latents), axis=1, keepdims=0)


def decode_level(g: GraphBuilder, codes: str, name: str) -> str:
    """codes (1, N) -> latents (1, C, N)."""
    chosen = g.op("Transpose", g.op("Gather", g.as_float32(f"{name}.codebook.weight"), codes), perm=[0, 2, 1])
    return convolve(g, chosen, f"{name}.out_proj")


def upsample(g: GraphBuilder, x: str, times: int) -> str:
    """(1, C, N) -> (1, C, N · times), each value repeated."""
    if times == 1:
        return x
    return g.op("Reshape", g.op("Tile", g.op("Unsqueeze", x, [3]), [1, 1, 1, times]), [0, 0, -1])


def residual_unit(g: GraphBuilder, x: str, name: str, dilation: int, config: SnacConfig) -> str:
    """x plus a dilated and a pointwise convolution of it, each after a snake."""
    y = snake(g, x, f"{name}.0")
    if config.depthwise:
        y = convolve_depthwise(g, y, f"{name}.1", dilation)
    else:
        y = convolve(g, y, f"{name}.1", padding=3 * dilation, dilation=dilation)
    return g.op("Add", x, convolve(g, scaled_snake(g, y), f"{name}.3"))


def convolve(g: GraphBuilder, x: str, name: str, *, padding: int = 0, dilation: int = 1, stride: int = 1) -> str:
    """A convolution over time, with its bias if there is one."""
    bias = [g.as_float32(f"{name}.bias")] if f"{name}.bias" in g.weights else []
    weight = g.as_float32(f"{name}.weight")
    return g.op("Conv", x, weight, *bias, pads=[padding] * 2, dilations=[dilation], strides=[stride])


def convolve_depthwise(g: GraphBuilder, x: str, name: str, dilation: int = 1) -> str:
    """A depthwise convolution of width 7 with its bias."""
    weight = g.prepare("Unsqueeze", g.as_float32(f"{name}.weight"), [2])
    y = g.op(
        "Conv", g.op("Unsqueeze", x, [2]), weight, g.as_float32(f"{name}.bias"), pads=[0, 3 * dilation] * 2,
        dilations=[1, dilation], group=g.weights[f"{name}.weight"].shape[0],
    )  # fmt: skip
    return g.op("Squeeze", y, [2])


def snake(g: GraphBuilder, x: str, name: str) -> str:
    """x (1, C, N) -> `scaled_snake` of x in turns."""
    return scaled_snake(g, g.op("Mul", x, g.as_float32(f"{name}.turns")))


def scaled_snake(g: GraphBuilder, u: str) -> str:
    """u + sin²(π · u) / π."""
    rest = g.op("Sub", u, g.op("Round", u))
    squared = g.op("Mul", rest, rest)
    *lower, value = sine_coefficients()
    sine: str | np.float32 = value
    for coefficient in reversed(lower):
        sine = g.op("Add", g.op("Mul", squared, sine), coefficient)
    return g.op("Add", u, g.op("Mul", squared, sine))


def sine_coefficients() -> list[np.float32]:
    """Coefficients of the polynomial p, lowest first, with sin²(π · r) / π = t · p(t), t = r² up to 1/4."""
    t = np.linspace(1e-9, 0.25, 2000)
    target = np.square(np.sin(np.pi * np.sqrt(t))) / (np.pi * t)
    fitted = np.polynomial.polynomial.polyfit(t, target, SINE_TERMS - 1, w=t**0.75)
    return list(fitted.astype(np.float32))
