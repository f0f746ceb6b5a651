"""SNAC as ONNX graphs over folded weights: the published codec without PyTorch, and faster.

Upstream: the weights of `snac.SnacCodec`.  Downstream: `snac.SnacOnnx`, which runs the folder written by `export_snac`.
SNAC (arXiv:2410.14411). Weight norm is worked out, weights are stored in half precision, and a sine costs a polynomial:
with r the distance of a·x/π from the nearest integer, sin²(a·x) = sin²(π·r), a polynomial of r² between 0 and 1/4.
Shapes: T patches · K_l codes of level l per patch · C channels · N latents or samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts.codec.snac import SnacConfig
from marstts.onnx_build import GraphBuilder, stored_tensors

Weights = dict[str, NDArray[np.float32]]

SINE_TERMS = 4
"""Of the polynomial; a snake's output then has 99 dB of signal over its error."""

NORM_EPSILON = 1e-12
"""As in PyTorch's normalize."""


def fold(tensors: Mapping[str, NDArray[np.float32]]) -> Weights:
    """Weights and directions of weight norm -> plain weights: magnitude · direction / its norm per output."""
    direction, magnitude = ".parametrizations.weight.original1", ".parametrizations.weight.original0"
    folded = {}
    for name, value in tensors.items():
        if name.endswith(direction):
            stem = name.removesuffix(direction)
            norm = np.sqrt(np.sum(np.square(value, dtype=np.float64), axis=tuple(range(1, value.ndim)), keepdims=True))
            folded[f"{stem}.weight"] = (tensors[f"{stem}{magnitude}"] * value / norm).astype(np.float32)
        elif not name.endswith(magnitude):
            folded[name] = value
    return folded


def write_graphs(config: SnacConfig, folder: Path, weights_file: str) -> None:
    """Write `encoder.onnx` and `decoder.onnx` beside the folded weights in `folder`."""
    for name, build in (("encoder", encoder_graph), ("decoder", decoder_graph)):
        g = GraphBuilder(stored_tensors(folder / weights_file), weights_file)
        build(g, config)
        g.save(folder / f"{name}.onnx")


def decoder_graph(g: GraphBuilder, config: SnacConfig) -> None:
    """codes.l (1, T · K_l) per level, and noise.i (1, 1, N) for each block of the decoder -> samples (1, 1, N)."""
    latents = None
    for level, stride in enumerate(config.vq_strides):
        codes = g.input(f"codes.{level}", "INT64", [1, f"codes_{level}"])
        part = stretch(g, decode_level(g, codes, f"quantizer.quantizers.{level}"), stride)
        latents = part if latents is None else g.op("Add", latents, part)
    assert latents is not None
    layers = iter(f"decoder.model.{index}" for index in range(99))
    x = latents
    if config.depthwise:
        x = convolve(g, x, next(layers), padding=3, groups=config.latent_width)
    x = convolve(g, x, next(layers), padding=0 if config.depthwise else 3)
    for index, rate in enumerate(config.decoder_rates):
        block, channels = f"{next(layers)}.block", config.decoder_dim // 2 ** (index + 1)
        x = snake(g, x, f"{block}.0")
        x = g.op(
            "ConvTranspose", x, g.wide(f"{block}.1.weight"), g.wide(f"{block}.1.bias"), strides=[rate],
            pads=[-(-rate // 2)] * 2, output_padding=[rate % 2],
        )  # fmt: skip
        if config.noise:
            noise = g.input(f"noise.{index}", "FLOAT", [1, 1, f"samples_{index}"])
            x = g.op("Add", x, g.op("Mul", noise, convolve(g, x, f"{block}.2.linear")))
        for unit, dilation in enumerate((1, 3, 9), start=3 if config.noise else 2):
            x = residual_unit(g, x, f"{block}.{unit}.block", dilation, channels if config.depthwise else 1)
    x = snake(g, x, next(layers))
    g.output(g.op("Tanh", convolve(g, x, next(layers), padding=3)), "samples", "FLOAT")


def encoder_graph(g: GraphBuilder, config: SnacConfig) -> None:
    """samples (1, 1, N), whole patches -> codes.l (1, T · K_l) per level."""
    layers = iter(f"encoder.block.{index}" for index in range(99))
    x = convolve(g, g.input("samples", "FLOAT", [1, 1, "samples"]), next(layers), padding=3)
    channels = config.encoder_dim
    for rate in config.encoder_rates:
        block, groups = f"{next(layers)}.block", channels if config.depthwise else 1
        for unit, dilation in enumerate((1, 3, 9)):
            x = residual_unit(g, x, f"{block}.{unit}.block", dilation, groups)
        x = convolve(g, snake(g, x, f"{block}.3"), f"{block}.4", padding=-(-rate // 2), stride=rate)
        channels *= 2
    residual = convolve(g, x, next(layers), padding=3, groups=channels if config.depthwise else 1)
    for level, stride in enumerate(config.vq_strides):
        name = f"quantizer.quantizers.{level}"
        pooled = g.op("AveragePool", residual, kernel_shape=[stride], strides=[stride]) if stride > 1 else residual
        codes = nearest(g, convolve(g, pooled, f"{name}.in_proj"), f"{name}.codebook.weight")
        g.output(codes, f"codes.{level}", "INT64")
        residual = g.op("Sub", residual, stretch(g, decode_level(g, codes, name), stride))


def nearest(g: GraphBuilder, latents: str, codebook: str) -> str:
    """latents (1, c, N) -> (1, N) entries of the codebook (K, c) that point most nearly the same way."""
    entries = g.wide(codebook)
    length = g.op("Sqrt", g.op("ReduceSum", g.op("Mul", entries, entries), [1]))
    unit = g.op("Div", entries, g.op("Max", length, np.float32(NORM_EPSILON)))
    return g.op("ArgMax", g.op("MatMul", unit, latents), axis=1, keepdims=0)


def decode_level(g: GraphBuilder, codes: str, name: str) -> str:
    """codes (1, N) -> latents (1, C, N)."""
    chosen = g.op("Transpose", g.op("Gather", g.wide(f"{name}.codebook.weight"), codes), perm=[0, 2, 1])
    return convolve(g, chosen, f"{name}.out_proj")


def stretch(g: GraphBuilder, x: str, times: int) -> str:
    """(1, C, N) -> (1, C, N · times), each repeated."""
    if times == 1:
        return x
    return g.op("Reshape", g.op("Tile", g.op("Unsqueeze", x, [3]), [1, 1, 1, times]), [0, 0, -1])


def residual_unit(g: GraphBuilder, x: str, name: str, dilation: int, groups: int) -> str:
    """x + a dilated and a pointwise convolution of it, each after a snake."""
    y = convolve(g, snake(g, x, f"{name}.0"), f"{name}.1", padding=3 * dilation, dilation=dilation, groups=groups)
    return g.op("Add", x, convolve(g, snake(g, y, f"{name}.2"), f"{name}.3"))


def convolve(
    g: GraphBuilder, x: str, name: str, *, padding: int = 0, dilation: int = 1, groups: int = 1, stride: int = 1
) -> str:
    """A convolution over time, with its bias if it has one."""
    bias = [g.wide(f"{name}.bias")] if f"{name}.bias" in g.weights else []
    return g.op(
        "Conv", x, g.wide(f"{name}.weight"), *bias, pads=[padding] * 2, dilations=[dilation], group=groups,
        strides=[stride],
    )  # fmt: skip


def snake(g: GraphBuilder, x: str, name: str) -> str:
    """x (1, C, N) + sin²(a · x) / a, with a (C,) learnt."""
    alpha = g.wide(f"{name}.alpha")
    turns = g.op("Mul", x, g.prepare("Mul", alpha, np.float32(1 / np.pi)))
    rest = g.op("Sub", turns, g.op("Round", turns))
    squared = g.op("Mul", rest, rest)
    *lower, sine = sine_coefficients()
    value: str | np.float32 = sine
    for coefficient in reversed(lower):
        value = g.op("Add", g.op("Mul", squared, value), coefficient)
    inverse = g.prepare("Reciprocal", g.prepare("Add", alpha, np.float32(1e-9)))
    return g.op("Add", x, g.op("Mul", g.op("Mul", squared, value), inverse))


def sine_coefficients() -> list[np.float32]:
    """Of the polynomial p, lowest first, with sin²(π · r) = t · p(t), t = r² up to 1/4."""
    t = np.linspace(1e-9, 0.25, 2000)
    wanted = np.square(np.sin(np.pi * np.sqrt(t))) / t
    fitted = np.polynomial.chebyshev.Chebyshev.fit(t, wanted, SINE_TERMS - 1)
    return list(fitted.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32))
