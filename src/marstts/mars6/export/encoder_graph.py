"""The encoder of MARS6 as an ONNX graph: once per sentence, all that the global decoder keeps of text and speaker.

Upstream: the weights file that `graphs.export_mars6` or `quantize` wrote.  Downstream: `engines.onnx`.
MARS6 (arXiv:2501.05787), Sec. III-A.  The architecture is defined in `encoder` and `nn`; tests compare both.
Shapes: B batch · S text tokens · M = slots + S memory positions · D width · L, H, d layers, heads and head width of the
global decoder · N = B · M.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from marstts.mars6.config import NUM_SLOTS, Conditioning, Mars6Config
from marstts.mars6.export.decoder_graphs import (
    GLOBAL,
    feed_forward,
    linear,
    merge_heads,
    norm,
    queries_keys_values,
    scores_of,
    sinusoids,
    thirds,
    write_decoder_graphs,
)
from marstts.onnx.build import GraphBuilder, Stored, stored_tensors

ENCODER = "encoder"


def write_graphs(config: Mars6Config, folder: Path, weights_file: str) -> None:
    """Write `encoder.onnx` and the decoders' graphs next to the weights in `folder`; int8 where they are."""
    encoder_graph(config, stored_tensors(folder / weights_file), weights_file).save(folder / f"{ENCODER}.onnx")
    write_decoder_graphs(config, folder, weights_file)


def encoder_graph(config: Mars6Config, weights: Mapping[str, Stored], weights_file: str) -> GraphBuilder:
    """Inputs of `Mars6.encode`, in the first language -> memory_keys, memory_values (L, B, H, M, d), memory_mask."""
    g = GraphBuilder(weights, weights_file)
    text_ids = g.input("text_ids", "INT64", ["batch", "text"])
    lengths = g.input("text_lengths", "INT64", ["batch"])
    identity = g.input("identity", "FLOAT", ["batch", config.identity_size])
    style = g.input("style", "FLOAT", ["batch", config.style_size])
    sequence = g.op("Concat", *slots(g, config, identity, style), embed_text(g, config, text_ids), axis=1)  # (B, M, D)
    by_head = g.op("Concat", g.op("Shape", sequence, end=2), [config.heads, config.width // config.heads], axis=0)
    size = g.op("Squeeze", g.op("Shape", sequence, start=1, end=2))
    places = g.op("Range", np.int64(0), size, np.int64(1))
    mask = g.op("Less", g.op("Unsqueeze", places, [0]), g.op("Unsqueeze", g.op("Add", lengths, [NUM_SLOTS]), [1]))
    bias = g.op("Unsqueeze", g.op("Where", mask, np.float32(0), np.float32(-np.inf)), [1, 2])
    x = g.op("Reshape", sequence, [-1, config.width])  # (N, D)
    for index in range(config.encoder_layers):
        layer = f"{ENCODER}.layers.{index}"
        normed = norm(g, x, f"{layer}.attention_norm")
        parts = thirds(g, queries_keys_values(g, normed, f"{layer}.attention", config.heads, config.width))
        query, key, value = (split_heads(g, part, by_head) for part in parts)
        probs = g.op("Softmax", g.op("Add", scores_of(g, query, key), bias), axis=3)
        mixed = merge_heads(g, g.op("MatMul", probs, value), config.width)
        x = g.op("Add", x, linear(g, mixed, f"{layer}.attention.output"))
        x = feed_forward(g, x, layer)
    if config.conditioning is Conditioning.FUSED:
        x = add_language(g, x, sequence, config)
    kept = [linear(g, x, f"{GLOBAL}.layers.{index}.cross_attention.key_value") for index in range(config.global_layers)]
    halves = [g.ops("Split", both, outputs=2, axis=1, num_outputs=2) for both in kept]
    for name, layers in zip(("memory_keys", "memory_values"), zip(*halves, strict=True), strict=True):
        stacked = [g.op("Unsqueeze", split_heads(g, part, by_head), [0]) for part in layers]
        g.output(g.op("Concat", *stacked, axis=0), name, "FLOAT")
    g.output(mask, "memory_mask", "BOOL")
    return g


def split_heads(g: GraphBuilder, x: str, by_head: str) -> str:
    """x (N, D), by_head: B, M, H and d -> (B, H, M, d)."""
    return g.op("Transpose", g.op("Reshape", x, by_head), perm=[0, 2, 1, 3])


def embed_text(g: GraphBuilder, config: Mars6Config, text_ids: str) -> str:
    """text_ids (B, S) -> (B, S, D), with positions."""
    embedded = g.cast(g.op("Gather", g.weight(f"{ENCODER}.text_embedding.weight"), text_ids), "FLOAT")
    size = g.op("Squeeze", g.op("Shape", text_ids, start=1, end=2))
    places = g.op("Unsqueeze", g.cast(g.op("Range", np.int64(0), size, np.int64(1)), "FLOAT"), [0, 1])
    waves = g.op("Squeeze", sinusoids(g, places, config.width), [0])  # (1, S, D)
    return g.op("Add", embedded, g.op("Mul", waves, g.as_float32(f"{ENCODER}.positions.alpha")))


def slots(g: GraphBuilder, config: Mars6Config, identity: str, style: str) -> list[str]:
    """identity (B, E1), style (B, E2) -> two slots (B, 1, D)."""
    first, second = project(g, identity, "identity"), project(g, style, "style")
    if config.conditioning is Conditioning.FUSED:
        second = linear(g, g.op("Concat", first, second, axis=1), f"{ENCODER}.slots.joiner")
        first = g.op("Expand", g.as_float32(f"{ENCODER}.slots.language.weight", (0, 1)), g.op("Shape", second))
    return [g.op("Unsqueeze", slot, [1]) for slot in (first, second)]


def project(g: GraphBuilder, vector: str, role: str) -> str:
    """`encoder.GatedProjection`: (B, E) -> (B, D)."""
    name = f"{ENCODER}.slots.{role}"
    hidden = linear(g, vector, f"{name}.input")
    gate = linear(g, hidden, f"{name}.gate")
    return g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), linear(g, hidden, f"{name}.value"))


def add_language(g: GraphBuilder, x: str, sequence: str, config: Mars6Config) -> str:
    """x (N, D), sequence (B, M, D) for its sizes -> (N, D): the second language embedding is added to slot 0."""
    memory = g.op("Reshape", x, g.op("Shape", sequence))
    first, rest = (g.op("Slice", memory, [start], [end], [1]) for start, end in ((0, 1), (1, np.iinfo(np.int64).max)))
    first = g.op("Add", first, g.as_float32(f"{ENCODER}.slots.memory_language.weight", (0, 1)))
    return g.op("Reshape", g.op("Concat", first, rest, axis=1), [-1, config.width])
