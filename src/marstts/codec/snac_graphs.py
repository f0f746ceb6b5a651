"""SNAC as ONNX graphs over folded weights: the published codec without PyTorch, and faster.

Upstream: the weights that `snac.SnacCodec` opens.  Downstream: `snac_onnx.SnacOnnx`, which runs the folder written by
`export_snac`.
SNAC (arXiv:2410.14411). Worked out beforehand are weight norm and the factors around every snake, x + sin²(a·x)/a, so
that what is left of it is u + sin²(π·u)/π. With r the distance of u from the nearest integer, sin²(π·u) = sin²(π·r), a
polynomial of r² between 0 and 1/4; ONNX Runtime takes longer for a sine than for ten such products. Convolutions of one
channel each are given to it as pictures one row high, for which alone it has a fast way.
Shapes: T patches · K_l codes of level l per patch · C channels · N latents or samples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts.codec.snac import WEIGHT_FILES, SnacConfig, SnacFolder, read_snac_config
from marstts.config import write_config
from marstts.errors import require
from marstts.onnx_build import GraphBuilder, stored_tensors
from marstts.pretrained import EXTRA, find_file, find_weights, fingerprint, load_strictly, read_tensors, short_name

Weights = dict[str, NDArray[np.float32]]

CONFIG_FILE, WEIGHTS_FILE = "config.json", "snac.safetensors"

SINE_TERMS = 4
"""Of the polynomial, whose largest error is then 6e-5; with three it would be 2e-3."""

SMALLEST_ALPHA = 1e-4
"""Snakes hardly bend below this; their factors are divided by it."""

NORM_EPSILON = 1e-12
"""As in PyTorch's normalize."""


def export_snac(source: Path | str, folder: Path, sha256: str | None = None) -> None:
    """Write the SNAC of `source` (a file, a folder or a name on the hub) to `folder`, in single precision, as graphs.

    Raises MissingExtraError without the packages, CheckpointError where the weights are missing or do not fit.
    """
    snac, torch = require("snac", EXTRA), require("torch", EXTRA)
    from safetensors.numpy import save_file

    config = read_snac_config(find_file(source, [CONFIG_FILE]))
    weights = find_weights(source, WEIGHT_FILES)
    name = short_name("snac", fingerprint(weights, sha256))
    with torch.random.fork_rng(devices=[]):  # the random start is overwritten
        model = snac.SNAC(**config.model_dump()).eval()
    load_strictly(model, read_tensors(weights), weights)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(fold({key: value.numpy() for key, value in model.state_dict().items()}), folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors writes for the owner's eyes only
    write_config(SnacFolder(name=name, model=config), folder / CONFIG_FILE)
    for graph, build in (("encoder", encoder_graph), ("decoder", decoder_graph)):
        g = GraphBuilder(stored_tensors(folder / WEIGHTS_FILE), WEIGHTS_FILE)
        build(g, config)
        g.save(folder / f"{graph}.onnx")


def fold(tensors: Mapping[str, NDArray[np.float32]]) -> Weights:
    """A model's tensors -> plain weights, snakes' factors in the convolutions around them; `turns` (C, 1) = a / π."""
    folded = without_norm(tensors)
    for name in [name for name in folded if name.endswith(".alpha")]:
        match = re.fullmatch(r"(.*)\.(\d+)\.alpha", name)
        assert match is not None, name
        stem, place = match[1], int(match[2])
        alpha = folded.pop(name).reshape(-1)
        turns = np.copysign(np.maximum(np.abs(alpha), SMALLEST_ALPHA), alpha).astype(np.float32) / np.float32(np.pi)
        after, before = f"{stem}.{place + 1}.weight", f"{stem}.{place - 1}"
        scale_axis(folded, after, 1 if folded[after].shape[1] == len(turns) else 0, np.reciprocal(turns))
        if f"{before}.weight" in folded:  # nothing else hears that convolution
            scale_axis(folded, f"{before}.weight", 0, turns)
            scale_axis(folded, f"{before}.bias", 0, turns)
        else:
            folded[f"{stem}.{place}.turns"] = turns[:, None]
    return {name: np.ascontiguousarray(value, np.float32) for name, value in folded.items()}


def without_norm(tensors: Mapping[str, NDArray[np.float32]]) -> Weights:
    """Magnitudes and directions of weight norm -> magnitude · direction / its norm per output; the rest as it is."""
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
    """codes.l (1, T · K_l) per level; spans (2 · blocks,), first and last sample that counts of what each block's
    upsampling gives; and noise.i (1, 1, N) for the samples that count -> samples (1, 1, N) of the last span.
    """
    latents = None
    for level, stride in enumerate(config.vq_strides):
        codes = g.input(f"codes.{level}", "INT64", [1, f"codes_{level}"])
        part = stretch(g, decode_level(g, codes, f"quantizer.quantizers.{level}"), stride)
        latents = part if latents is None else g.op("Add", latents, part)
    assert latents is not None
    blocks = len(config.decoder_rates)
    edges = g.ops("Split", g.input("spans", "INT64", [2 * blocks]), outputs=2 * blocks, axis=0, num_outputs=2 * blocks)
    layers = iter(f"decoder.model.{index}" for index in range(99))
    x = latents
    if config.depthwise:
        x = convolve_each(g, x, next(layers))
    x = convolve(g, x, next(layers), padding=0 if config.depthwise else 3)
    for index, rate in enumerate(config.decoder_rates):
        block = f"{next(layers)}.block"
        x = g.op(
            "ConvTranspose", snake(g, x, f"{block}.0"), g.wide(f"{block}.1.weight"), g.wide(f"{block}.1.bias"),
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
    residual = convolve_each(g, x, last) if config.depthwise else convolve(g, x, last, padding=3)
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


def residual_unit(g: GraphBuilder, x: str, name: str, dilation: int, config: SnacConfig) -> str:
    """x + a dilated and a pointwise convolution of it, each after a snake."""
    y = snake(g, x, f"{name}.0")
    if config.depthwise:
        y = convolve_each(g, y, f"{name}.1", dilation)
    else:
        y = convolve(g, y, f"{name}.1", padding=3 * dilation, dilation=dilation)
    return g.op("Add", x, convolve(g, wave(g, y), f"{name}.3"))


def convolve(g: GraphBuilder, x: str, name: str, *, padding: int = 0, dilation: int = 1, stride: int = 1) -> str:
    """A convolution over time, with its bias if it has one."""
    bias = [g.wide(f"{name}.bias")] if f"{name}.bias" in g.weights else []
    weight = g.wide(f"{name}.weight")
    return g.op("Conv", x, weight, *bias, pads=[padding] * 2, dilations=[dilation], strides=[stride])


def convolve_each(g: GraphBuilder, x: str, name: str, dilation: int = 1) -> str:
    """A convolution of width 7 of every channel by itself, with its bias."""
    weight = g.prepare("Unsqueeze", g.wide(f"{name}.weight"), [2])
    y = g.op(
        "Conv", g.op("Unsqueeze", x, [2]), weight, g.wide(f"{name}.bias"), pads=[0, 3 * dilation] * 2,
        dilations=[1, dilation], group=g.weights[f"{name}.weight"].shape[0],
    )  # fmt: skip
    return g.op("Squeeze", y, [2])


def snake(g: GraphBuilder, x: str, name: str) -> str:
    """x (1, C, N) -> `wave` of x in turns."""
    return wave(g, g.op("Mul", x, g.wide(f"{name}.turns")))


def wave(g: GraphBuilder, u: str) -> str:
    """u + sin²(π · u) / π."""
    rest = g.op("Sub", u, g.op("Round", u))
    squared = g.op("Mul", rest, rest)
    *lower, value = sine_coefficients()
    sine: str | np.float32 = value
    for coefficient in reversed(lower):
        sine = g.op("Add", g.op("Mul", squared, sine), coefficient)
    return g.op("Add", u, g.op("Mul", squared, sine))


def sine_coefficients() -> list[np.float32]:
    """Of the polynomial p, lowest first, with sin²(π · r) / π = t · p(t), t = r² up to 1/4."""
    t = np.linspace(1e-9, 0.25, 2000)
    wanted = np.square(np.sin(np.pi * np.sqrt(t))) / (np.pi * t)
    fitted = np.polynomial.polynomial.polyfit(t, wanted, SINE_TERMS - 1, w=t**0.75)
    return list(fitted.astype(np.float32))
