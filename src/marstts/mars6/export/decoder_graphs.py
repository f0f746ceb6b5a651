"""The two decoders of MARS6 as ONNX graphs made for speed: two runs per patch, whatever its history.

Upstream: the weights file that `graphs.export_mars6` or `quantize` wrote.  Downstream: `engines.onnx`.
MARS6 (arXiv:2501.05787), Sec. III-C and IV-B1.  The architecture is defined in `decoders` and `nn`; this is the same
arithmetic in the order that ONNX Runtime does fastest, and tests compare both.

- `global.onnx`, once for the prefix and then once per patch: patches -> one vector per patch. Caches come in as they
  lie in the engine's buffers, and the outputs are only the new entries: nothing is copied.
- `patch.onnx`, once per patch: that vector -> seven tokens, sampled inside, by a loop over positions. A loop rather
  than seven copies of its body, for ONNX Runtime packs the weights of every copy again, and what does not fit into the
  processor's cache takes three times as long.
- `local.onnx`, one position of the local decoder, for callers that need the logits.

Queries, keys and values are one matrix product. Queries are scaled by their weights. Keys lie position by position like
values: a new position is then one stretch of memory, and the rows of a batch are read in memory order. In
int8, weights share a scale per block, and activations one per block and row, so that a row's numbers do not depend on
the other rows of the batch.

Shapes: B batch · T positions of the global decoder, position 0 being the start vector and position n + 1 patch n · N
positions in the cache (its capacity) · M memory positions · P positions of a patch · L, H, d layers, heads and head
width of the decoder concerned · D width · C codes per level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from marstts.mars6.config import Mars6Config
from marstts.mars6.export.sampling_graph import Sampler, if_else, sample, sampler_inputs
from marstts.onnx.build import GraphBuilder, Stored, stored_tensors

GLOBAL, LOCAL = "global_decoder", "local_decoder"

ROUND_TO_INT8 = 4
"""`MatMulNBits`' word for rounding activations, too, so that products are made of integers."""

LANES = 16
"""Numbers that a processor may compute at once. ONNX Runtime rounds sines of what remains differently: if the sines of
a row were no multiple of this, they would depend on its place among the rows.
"""


def write_decoder_graphs(config: Mars6Config, folder: Path, weights_file: str) -> None:
    """Write `global.onnx`, `patch.onnx` and `local.onnx` next to the weights in `folder`; int8 where they are."""
    weights = stored_tensors(folder / weights_file)
    for name, build in (("global", global_graph), ("patch", patch_graph), ("local", local_graph)):
        build(config, weights, weights_file).save(folder / f"{name}.onnx")


def global_graph(config: Mars6Config, weights: Mapping[str, Stored], weights_file: str) -> GraphBuilder:
    """Some positions of the global decoder, after those in the cache.

    Inputs: patches (B, T, P) beginning at position first (B,), where position 0 may hold anything; seen_bias (B, N),
    zero for positions that are attended to and minus infinity for others; per layer seen_keys.l and seen_values.l
    (B, H, N, d), memory_keys.l and memory_values.l (B, H, M, d); memory_bias (B, M).
    Outputs: vectors (B, T, D), the local decoder's first input; cache (2, L, B, H, T, d), keys and values; where heads
    are aligned, attention (B, T, M), their mean.
    """
    g = GraphBuilder(weights, weights_file)
    heads, width = config.heads, config.width
    patches, first = (
        g.input("patches", "INT64", ["batch", "places", config.patch_size]),
        g.input("first", "INT64", ["batch"]),
    )
    sizes = g.op("Shape", patches, end=2)
    by_head = g.op("Concat", sizes, [heads, width // heads], axis=0)
    three_by_head = g.op("Concat", sizes, [3 * heads, width // heads], axis=0)
    bias, parts = attention_bias(g, sizes)
    memory_bias = g.op("Unsqueeze", g.input("memory_bias", "FLOAT", ["batch", "memory"]), [1, 2])
    x = g.op("Reshape", embed_patches(g, config, patches, first), [-1, width])
    keys, values, aligned = [], [], []
    for index in range(config.global_layers):
        layer = f"{GLOBAL}.layers.{index}"
        seen = cache_inputs(g, f"seen_{{}}.{index}", config, "capacity")
        memory = cache_inputs(g, f"memory_{{}}.{index}", config, "memory")
        normed = norm(g, x, f"{layer}.attention_norm")
        together = g.op("Reshape", queries_keys_values(g, normed, f"{layer}.attention", heads, width), three_by_head)
        query, key, value = thirds(g, g.op("Transpose", together, perm=[0, 2, 1, 3]))
        scores = g.op("Concat", scores_of(g, query, seen[0]), scores_of(g, query, key), axis=3)
        probs = g.op("Softmax", g.op("Add", scores, bias), axis=3)
        before, now = g.ops("Split", probs, parts, outputs=2, axis=3)
        mixed = g.op("Add", g.op("MatMul", before, seen[1]), g.op("MatMul", now, value))
        x = g.op("Add", x, linear(g, merge_heads(g, mixed, width), f"{layer}.attention.output"))
        attended, cross_probs = cross_attention(g, x, layer, memory, memory_bias, by_head, config)
        aligned += aligned_heads(g, config, index, cross_probs)
        x = g.op("Add", x, attended)
        x = feed_forward(g, x, layer)
        keys.append(key)
        values.append(value)
    vectors = linear(g, x, f"{LOCAL}.input")
    g.output(g.op("Reshape", vectors, g.op("Concat", sizes, [width], axis=0)), "vectors", "FLOAT")
    cache_shape = g.op("Concat", np.array([2, config.global_layers], np.int64), g.op("Shape", keys[0]), axis=0)
    together = g.op("Concat", *keys, *values, axis=0)  # (2 · L · B, H, T, d)
    g.output(g.op("Reshape", together, cache_shape), "cache", "FLOAT")
    if aligned:
        g.output(g.op("ReduceMean", g.op("Concat", *aligned, axis=1), [1], keepdims=0), "attention", "FLOAT")
    return g


def aligned_heads(g: GraphBuilder, config: Mars6Config, layer: int, probs: str) -> list[str]:
    """probs (B, H, T, M) of a layer -> those of its aligned heads (B, heads, T, M), if it has any."""
    heads = [head for aligned, head in config.aligned_heads if aligned == layer]
    return [g.op("Gather", probs, np.array(heads, np.int64), axis=1)] if heads else []


def attention_bias(g: GraphBuilder, sizes: str) -> tuple[str, str]:
    """sizes: B and T -> what is added to the scores (B, 1, T, N + T), and the numbers N and T."""
    seen = g.input("seen_bias", "FLOAT", ["batch", "capacity"])
    batch, length = g.ops("Split", sizes, outputs=2, axis=0, num_outputs=2)
    capacity = g.op("Shape", seen, start=1, end=2)
    one = np.array([1], np.int64)
    before = g.op("Expand", g.op("Unsqueeze", seen, [1, 2]), g.op("Concat", batch, one, length, capacity, axis=0))
    square = g.op("Expand", np.float32(-np.inf), g.op("Concat", batch, one, length, length, axis=0))
    later = g.op("Trilu", square, np.int64(1), upper=1)
    return g.op("Concat", before, later, axis=3), g.op("Concat", capacity, length, axis=0)


def embed_patches(g: GraphBuilder, config: Mars6Config, patches: str, first: str) -> str:
    """`decoders.PatchEmbedding`, and the start vector at position 0: (B, T, P) -> (B, T, D)."""
    name, width, size = f"{GLOBAL}.patch_embedding", config.patch_token_width, config.patch_size
    offset = g.op(
        "Unsqueeze",
        g.op("Range", np.int64(0), g.op("Squeeze", g.op("Shape", patches, start=1, end=2)), np.int64(1)),
        [0],
    )
    patch_positions = g.op("Unsqueeze", g.op("Add", g.op("Unsqueeze", first, [1]), offset), [2])  # (B, T, 1)
    tokens = g.op("Where", g.op("Less", patches, np.int64(0)), np.int64(config.eos), patches)
    embedded = g.cast(g.op("Gather", g.weight(f"{name}.tokens.weight"), tokens), "FLOAT")
    within = np.arange(size, dtype=np.int64) - size  # patch n is at position n + 1
    positions = g.cast(g.op("Add", g.op("Mul", patch_positions, np.int64(size)), within), "FLOAT")
    waves = sinusoids(g, positions, width)
    x = g.op("Add", embedded, g.op("Mul", waves, g.as_float32(f"{name}.positions.alpha")))
    mixed = linear(g, g.op("Reshape", x, [-1, size * width]), f"{name}.output")
    shape = g.op("Concat", g.op("Shape", patches, end=2), [config.width], axis=0)
    is_start = g.op("Equal", patch_positions, np.int64(0))
    return g.op("Where", is_start, g.as_float32(f"{GLOBAL}.start"), g.op("Reshape", mixed, shape))


def sinusoids(g: GraphBuilder, positions: str, width: int) -> str:
    """`nn.positions.sinusoids`: positions (A, B, C) -> (A, B, C, width)."""
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequencies = np.exp(np.float32(-math.log(10_000.0)) * exponents)
    frequencies = np.pad(frequencies, (0, -len(frequencies) % LANES))
    angles = g.op("Mul", g.op("Unsqueeze", positions, [3]), frequencies)
    waves = [g.op("Unsqueeze", g.op(wave, angles), [4]) for wave in ("Sin", "Cos")]
    waves_in_turn = g.op("Reshape", g.op("Concat", *waves, axis=4), [0, 0, 0, -1])
    if width % (2 * LANES):
        return g.op("Slice", waves_in_turn, [0], [width], [3])
    return waves_in_turn


def cross_attention(
    g: GraphBuilder, x: str, layer: str, memory: tuple[str, str], bias: str, by_head: str, config: Mars6Config
) -> tuple[str, str]:
    """The cross-attention's part of a layer: x (B · T, D) -> (B · T, D), and its probabilities (B, H, T, M)."""
    name = f"{layer}.cross_attention"
    scale = (config.width // config.heads) ** -0.5
    query = linear(g, norm(g, x, f"{layer}.cross_norm"), f"{name}.query", scales=[scale])
    query = g.op("Transpose", g.op("Reshape", query, by_head), perm=[0, 2, 1, 3])
    probs = g.op("Softmax", g.op("Add", scores_of(g, query, memory[0]), bias), axis=3)
    mixed = merge_heads(g, g.op("MatMul", probs, memory[1]), config.width)
    return linear(g, mixed, f"{name}.output"), probs


def cache_inputs(g: GraphBuilder, name: str, config: Mars6Config, length: str) -> tuple[str, str]:
    """Keys and values (B, H, length, d) of one layer, as inputs."""
    shape: list[int | str] = ["batch", config.heads, length, config.width // config.heads]
    return g.input(name.format("keys"), "FLOAT", shape), g.input(name.format("values"), "FLOAT", shape)


def scores_of(g: GraphBuilder, query: str, keys: str) -> str:
    """query (B, H, T, d), keys (B, H, N, d) -> (B, H, T, N)."""
    return g.op("FusedMatMul", query, keys, domain="com.microsoft", transB=1)


def patch_graph(config: Mars6Config, weights: Mapping[str, Stored], weights_file: str) -> GraphBuilder:
    """A whole patch: vectors (B, D) from the global graph and the inputs of `sampling_graph.sampler_inputs` ->
    tokens (p, B, 1), where p < P if all rows have ended. After end of speech, the rest of a row is end of speech too.
    """
    g = GraphBuilder(weights, weights_file)
    vectors = g.input("vectors", "FLOAT", ["batch", config.width])
    sampler = sampler_inputs(g, config.codebook_size + 1, config.patch_size)
    ended = g.op("Less", sampler.top_p, np.float64(-1))  # none
    shape = g.op(
        "Concat", g.op("Shape", vectors, end=1), [config.local_heads, 0, config.width // config.local_heads], axis=0
    )
    nothing = g.op("Expand", np.float32(0), shape)
    caches = [nothing] * (2 * config.local_layers)
    body = g.body()
    states = {"input": "FLOAT", "was_ended": "BOOL"} | {f"past.{index}": "FLOAT" for index in range(len(caches))}
    if is_recent_again := config.patch_layout[0] > 1:  # else no code of this patch is compared with another one
        states["recent_codes"] = "INT64"
    position, _ = body.input("position", "INT64", []), body.input("go_on", "BOOL", [])
    step_input, was_ended, *past = (body.input(*pair, shape=None) for pair in states.items())
    recent_codes = past.pop() if is_recent_again else "recent"
    x, grown = local_step(body, config, body.op("Add", step_input, local_position(body, position)), past)
    level = body.op("Gather", np.array(config.position_levels), position)
    logits = level_logits(body, config, x, level)
    token, is_ended = choose_token(body, config, sampler, logits, level, position, was_ended, recent_codes)
    embedded = body.cast(
        body.op("Gather", body.weight(f"{LOCAL}.tokens.weight"), body.op("Reshape", token, [-1])), "FLOAT"
    )
    go_on = body.op("Equal", body.op("ReduceMin", body.cast(is_ended, "INT32"), keepdims=0), np.int32(0))
    results = [go_on, embedded, is_ended, *grown]
    if is_recent_again:
        results.append(
            body.op("Concat", body.op("Slice", recent_codes, [1], [np.iinfo(np.int64).max], [1]), token, axis=1)
        )
    results.append(body.op("Identity", token))
    body.outputs = [body.value(*pair) for pair in zip(results, ["BOOL", *states.values(), "INT64"], strict=True)]
    carried = [vectors, ended, *caches, *(["recent"] if is_recent_again else [])]
    loop = g.ops("Loop", np.int64(config.patch_size), "", *carried, outputs=len(results) - 1,
                 body=body.graph("position"))  # fmt: skip
    g.output(loop[-1], "tokens", "INT64")
    return g


def choose_token(
    g: GraphBuilder, config: Mars6Config, sampler: Sampler, logits: str, level: str, position: str, was_ended: str,
    recent: str,
) -> tuple[str, str]:  # fmt: skip
    """logits (B, C + 1) of a position, recent (B, K) codes -> token (B, 1), and rows that have ended (B, 1)."""
    is_coarsest = g.op("Equal", level, np.int64(0))
    pick = sample(g, sampler, logits, position, recent, is_coarsest, config.codebook_size + 1)
    is_ended = g.op("Or", was_ended, g.op("Equal", pick, np.int64(config.codebook_size)))
    moved = g.op("Add", pick, g.op("Mul", level, np.int64(config.codebook_size)))
    return g.op("Where", is_ended, np.int64(config.eos), moved), is_ended


def local_graph(config: Mars6Config, weights: Mapping[str, Stored], weights_file: str) -> GraphBuilder:
    """One position of the local decoder, after those in the cache.

    Inputs: position (); vectors (B, D) from the global graph, the input at position 0; tokens (B,) chosen last, the
    input at the others; per layer past.l (B, H, p, d), keys then values.
    Outputs: logits (B, C + 1) over the position's level, last column end of speech; grown.l (B, H, p + 1, d).
    """
    g = GraphBuilder(weights, weights_file)
    vectors, tokens = g.input("vectors", "FLOAT", ["batch", config.width]), g.input("tokens", "INT64", ["batch"])
    position = g.input("position", "INT64", [])
    cache: list[int | str] = ["batch", config.local_heads, "positions", config.width // config.local_heads]
    past = [g.input(f"past.{index}", "FLOAT", cache) for index in range(2 * config.local_layers)]
    embedded = g.cast(g.op("Gather", g.weight(f"{LOCAL}.tokens.weight"), tokens), "FLOAT")
    step_input = g.op("Where", g.op("Equal", position, np.int64(0)), vectors, embedded)
    x, grown = local_step(g, config, g.op("Add", step_input, local_position(g, position)), past)
    g.output(level_logits(g, config, x, g.op("Gather", np.array(config.position_levels), position)), "logits", "FLOAT")
    for index, longer in enumerate(grown):
        g.output(longer, f"grown.{index}", "FLOAT")
    return g


def local_position(g: GraphBuilder, position: str) -> str:
    """(D,) the embedding of a position of the patch."""
    return g.op("Gather", g.as_float32(f"{LOCAL}.positions.weight"), position)


def local_step(g: GraphBuilder, config: Mars6Config, x: str, past: Sequence[str]) -> tuple[str, list[str]]:
    """x (B, D) of one position, past: keys and values (B, H, p, d) of each layer in turn -> (B, D), longer caches."""
    heads, grown = config.local_heads, []
    for index in range(config.local_layers):
        layer = f"{LOCAL}.layers.{index}"
        normed = norm(g, x, f"{layer}.attention_norm")
        together = queries_keys_values(g, normed, f"{layer}.attention", heads, config.width)
        query, *new = thirds(g, g.op("Reshape", together, [0, 3 * heads, 1, config.width // heads]))
        keys, values = (
            g.op("Concat", cache, part, axis=2)
            for cache, part in zip(past[2 * index : 2 * index + 2], new, strict=True)
        )
        mixed = g.op("MatMul", g.op("Softmax", scores_of(g, query, keys), axis=3), values)
        x = g.op("Add", x, linear(g, g.op("Reshape", mixed, [-1, config.width]), f"{layer}.attention.output"))
        x = feed_forward(g, x, layer)
        grown += [keys, values]
    return x, grown


def level_logits(g: GraphBuilder, config: Mars6Config, x: str, level: str, num_tried: int = 0) -> str:
    """x (B, D) -> (B, C + 1): logits over the codes of `level` (), and end of speech.

    Levels of many positions are tried first; `num_tried` of them it is not.
    """
    candidates = sorted(range(len(config.patch_layout)), key=lambda each: -config.patch_layout[each])
    candidate = candidates[num_tried]
    if num_tried == len(candidates) - 1:
        return logits_of(g, config, x, candidate)
    return if_else(
        g,
        g.op("Equal", level, np.int64(candidate)),
        lambda inner: logits_of(inner, config, x, candidate),
        lambda inner: level_logits(inner, config, x, level, num_tried + 1),
        "FLOAT",
    )


def logits_of(g: GraphBuilder, config: Mars6Config, x: str, level: int) -> str:
    """x (B, D) -> (B, C + 1): logits over the codes of one level, and end of speech."""
    name, size = f"{LOCAL}.output", config.codebook_size
    if f"{name}.{level}.weight" in g.weights:
        return linear(g, x, f"{name}.{level}")
    rows = [(level * size, (level + 1) * size), (config.eos, config.eos + 1)]
    weight = g.joined([g.as_float32(f"{name}.weight", pair) for pair in rows], axis=0)
    return g.op("Gemm", x, weight, transB=1)


def norm(g: GraphBuilder, x: str, name: str) -> str:
    """Layer norm."""
    return g.op(
        "LayerNormalization", x, g.as_float32(f"{name}.weight"), g.as_float32(f"{name}.bias"), axis=-1, epsilon=1e-5
    )


def feed_forward(g: GraphBuilder, x: str, layer: str) -> str:
    """x (N, D) and what the feed-forward layer adds to it.

    Mish is x (1 - v²) / (1 + v²) with v = sigmoid(-x): ONNX Runtime has fast sigmoids.
    """
    inner = linear(g, norm(g, x, f"{layer}.feed_forward_norm"), f"{layer}.feed_forward.inner")
    v = g.op("Sigmoid", g.op("Neg", inner))
    squared, one = g.op("Mul", v, v), np.float32(1)
    ratio = g.op("Div", g.op("Sub", one, squared), g.op("Add", one, squared))
    return g.op("Add", x, linear(g, g.op("Mul", inner, ratio), f"{layer}.feed_forward.output"))


def queries_keys_values(g: GraphBuilder, x: str, name: str, heads: int, width: int) -> str:
    """x (N, D) -> (N, 3 · D): scaled queries, keys and values, heads side by side."""
    return linear(g, x, f"{name}.query", f"{name}.key_value", scales=[(width // heads) ** -0.5, 1.0])


def thirds(g: GraphBuilder, together: str) -> list[str]:
    """Queries, keys and values along the second axis -> each of them."""
    return g.ops("Split", together, outputs=3, axis=1, num_outputs=3)


def merge_heads(g: GraphBuilder, x: str, width: int) -> str:
    """(B, H, T, d) -> (B · T, D)."""
    return g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1, 3]), [-1, width])


def linear(g: GraphBuilder, x: str, *names: str, scales: Sequence[float] = ()) -> str:
    """x (N, any) through the linear maps of these names, side by side -> (N, sum of their outputs).

    `scales` multiply their outputs, by scaling their weights.
    """
    scales = scales or [1.0] * len(names)
    weights = [g.weights[f"{name}.weight"] for name in names]
    parts = [
        scaled_weight(g, f"{name}.bias", s)
        for name, s in zip(names, scales, strict=True)
        if f"{name}.bias" in g.weights
    ]
    bias = g.joined(parts, 0) if parts else None
    if weights[0].dtype != "U8":
        weight = g.joined([scaled_weight(g, f"{name}.weight", s) for name, s in zip(names, scales, strict=True)], 0)
        return g.op("Gemm", x, weight, *([bias] if bias else []), transB=1)
    codes = g.joined([g.weight(f"{name}.weight") for name in names], 0)
    steps = g.joined([scaled_weight(g, f"{name}.weight.scale", s) for name, s in zip(names, scales, strict=True)], 0)
    _, blocks, block_size = weights[0].shape
    return g.op(
        "MatMulNBits", x, codes, steps, None, None, bias, domain="com.microsoft", bits=8, accuracy_level=ROUND_TO_INT8,
        K=blocks * block_size, N=sum(weight.shape[0] for weight in weights), block_size=block_size,
    )  # fmt: skip


def scaled_weight(g: GraphBuilder, name: str, scale: float) -> str:
    """A weight in single precision, times a number."""
    return g.as_float32(name) if scale == 1.0 else g.prepare("Mul", g.as_float32(name), np.float32(scale))
