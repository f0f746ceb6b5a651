"""`generation.sampling` as ONNX nodes, so that one run of ONNX Runtime generates a whole patch.

Upstream: logits of one position, and the `generation.engine.SamplingInputs` of the rows as graph inputs.
Downstream: the loop of `decoder_graphs.patch_graph`.
MARS6 (arXiv:2501.05787), Sec. IV-B1.  Deviations: none from `generation.sampling`, whose ids come out for the same
numbers but where rounding decides: logits are single precision, what is summed is double.

Sorting all ids would take longer than the model. The nucleus of a confident model has few ids: if the
`TOP_K` most probable ids contain it in every row, only these are sorted. Otherwise weights are summed in bins by their
logit, only the bin in which the nucleus ends is sorted, and an id is drawn by first choosing among groups.
Shapes: B rows · V ids · K recent ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from marstts.generation.sampling import NO_ID
from marstts.onnx.build import GraphBuilder

TOP_K = 32
"""Most probable ids among which the nucleus is looked for first."""

BINS = 1024
"""Bins of the nucleus search: so many that one bin has few ids."""

MAX_LOGIT_GAP = 24.0
"""Logits further than this below the best share the last bin: together they weigh less than 1e-6 of it."""

GROUP = 64
"""Ids per group in drawing, about the root of their number."""


class Sampler(NamedTuple):
    """Value names of the rows' inputs, and of what is computed once for all positions."""

    first_uniforms: str
    """(P, B, 1) double, a random number for each pick."""

    second_uniforms: str
    """(P, B, 1) double, one for each pick that is sampled again."""

    top_p: str
    """(B, 1) double."""

    keep_all: str
    """(B, 1) bool."""

    max_ratio: str
    """(B, 1) double."""

    empty_bins: str
    """(B, BINS) double, zeros."""

    end_mask: str
    """(B, V) float: minus infinity for the last id where a row may not end, else zero."""


def sampler_inputs(g: GraphBuilder, num_ids: int, num_positions: int) -> Sampler:
    """Give the graph the inputs uniforms (B, P, 2), top_p (B,), may_end (B,), recent (B, K) and max_ratio (B,)."""
    uniforms = g.op("Transpose", g.input("uniforms", "DOUBLE", ["batch", num_positions, 2]), perm=[1, 0, 2])
    first, second = g.ops("Split", uniforms, outputs=2, axis=2, num_outputs=2)
    g.input("recent", "INT64", ["batch", "window"])
    top_p, max_ratio = (g.op("Unsqueeze", g.input(name, "DOUBLE", ["batch"]), [1]) for name in ("top_p", "max_ratio"))
    may_end = g.op("Unsqueeze", g.input("may_end", "BOOL", ["batch"]), [1])
    rows = g.op("Shape", top_p, end=1)
    codes = g.op("Expand", np.float32(0), g.op("Concat", rows, [num_ids - 1], axis=0))
    end = g.op("Where", may_end, np.float32(0), np.float32(-np.inf))
    return Sampler(
        first_uniforms=first,
        second_uniforms=second,
        top_p=top_p,
        keep_all=g.op("GreaterOrEqual", top_p, np.float64(1)),
        max_ratio=max_ratio,
        empty_bins=g.op("Expand", np.float64(0), g.op("Concat", rows, [BINS], axis=0)),
        end_mask=g.op("Concat", codes, end, axis=1),
    )


def sample(
    g: GraphBuilder, sampler: Sampler, logits: str, position: str, recent: str, is_coarsest: str, ids: int
) -> str:
    """logits (B, V) of `position` (), recent (B, K) -> ids (B, 1); repetition-aware where `is_coarsest` () is true."""
    logits = g.op("Add", logits, sampler.end_mask)
    excess = g.op("Sub", logits, g.op("ReduceMax", logits, [1]))
    weights = g.cast(g.op("Exp", excess), "DOUBLE")
    first = g.op("Gather", sampler.first_uniforms, position)
    most_probable = top_k(g, sampler, excess, weights, min(TOP_K, ids))
    pick = if_else(
        g,
        most_probable.contain_nucleus,
        lambda inner: draw_from_top_k(inner, most_probable, first),
        lambda inner: draw(inner, nucleus(inner, sampler, excess, weights), first, ids),
    )

    def redraw_if_repetitive(inner: GraphBuilder) -> str:
        repetitive = is_repetitive(inner, sampler, recent, pick)
        any_repetitive = inner.cast(inner.op("ReduceMax", inner.cast(repetitive, "INT32"), keepdims=0), "BOOL")

        def redraw(innermost: GraphBuilder) -> str:
            second = innermost.op("Gather", sampler.second_uniforms, position)
            return innermost.op("Where", repetitive, draw(innermost, weights, second, ids), pick)

        return if_else(inner, any_repetitive, redraw, lambda innermost: innermost.op("Identity", pick))

    return if_else(g, is_coarsest, redraw_if_repetitive, lambda inner: inner.op("Identity", pick))


class TopK(NamedTuple):
    """The k most probable ids of every row, most probable first."""

    size: int
    """k."""

    ids: str
    """(B, k)."""

    weights: str
    """(B, k) double."""

    outside: str
    """(B, k) bool: outside the nucleus, if they contain it."""

    contain_nucleus: str
    """() bool: in every row, the nucleus has less ids than these."""


def top_k(g: GraphBuilder, sampler: Sampler, excess: str, weights: str, count: int) -> TopK:
    """excess (B, V) over the best logit, weights (B, V) -> the `count` most probable ids of every row."""
    best, ids = g.ops("TopK", excess, np.array([count], np.int64), outputs=2, axis=1)
    best_weights = g.cast(g.op("Exp", best), "DOUBLE")
    reached = g.op("CumSum", best_weights, np.int64(1))
    limit = g.op("Mul", sampler.top_p, g.op("ReduceSum", weights, [1]))
    outside = g.op("Greater", g.op("Sub", reached, best_weights), limit)  # more probable ones alone exceed it
    contains = g.op("Greater", g.op("Gather", reached, [count - 1], axis=1), limit)
    in_all = g.cast(g.op("ReduceMin", g.cast(contains, "INT32"), keepdims=0), "BOOL")
    return TopK(count, ids, best_weights, outside, in_all)


def draw_from_top_k(g: GraphBuilder, candidates: TopK, uniforms: str) -> str:
    """uniforms (B, 1) -> ids (B, 1): as `draw` of the nucleus, which the candidates must contain."""
    kept = g.op("Where", candidates.outside, np.float64(0), candidates.weights)
    ids, order = g.ops("TopK", candidates.ids, [candidates.size], outputs=2, axis=1, largest=0)  # sums go by id
    reached = g.op("CumSum", g.op("GatherElements", kept, order, axis=1), np.int64(1))
    last = np.array([candidates.size - 1], np.int64)
    limit = g.op("Mul", uniforms, g.op("Gather", reached, last, axis=1))
    below = g.op("ReduceSum", g.cast(g.op("LessOrEqual", reached, limit), "INT64"), [1])
    return g.op("GatherElements", ids, g.op("Min", below, last), axis=1)


def nucleus(g: GraphBuilder, sampler: Sampler, excess: str, weights: str) -> str:
    """excess (B, V) over the best logit, weights (B, V) -> weights, zero outside `sampling.keep_nucleus`."""
    depth = g.op("Min", g.op("Neg", excess), np.float32(MAX_LOGIT_GAP))
    per_logit = g.op("Div", np.float32(BINS - 1), g.op("Add", g.op("ReduceMax", depth, [1]), np.float32(1e-6)))
    bins = g.cast(g.op("Mul", depth, per_logit), "INT64")
    mass = g.op("ScatterElements", sampler.empty_bins, bins, weights, axis=1, reduction="add")
    reached = g.op("CumSum", mass, np.int64(1))
    limit = g.op("Mul", sampler.top_p, g.op("Gather", reached, [BINS - 1], axis=1))
    last = searchsorted(g, reached, limit, BINS)
    before = g.op("Sub", g.op("GatherElements", reached, last, axis=1), g.op("GatherElements", mass, last, axis=1))
    inside = g.op("Equal", bins, last)
    most = g.op("ReduceMax", g.op("ReduceSum", g.cast(inside, "INT64"), [1]), [0])
    count = g.op("Max", most, np.int64(1))  # rows that keep all may look into an empty bin
    candidates = g.op("Where", inside, excess, np.float32(-np.inf))
    best, _ = g.ops("TopK", candidates, g.op("Reshape", count, [1]), outputs=2, axis=1)
    inside_mass = g.op("CumSum", g.cast(g.op("Exp", best), "DOUBLE"), np.int64(1))
    steps = g.op("LessOrEqual", g.op("Add", before, inside_mass), limit)
    crossing = g.op("Min", g.op("ReduceSum", g.cast(steps, "INT64"), [1]), g.op("Sub", count, np.int64(1)))
    lowest = g.op("GatherElements", best, crossing, axis=1)
    kept = g.op("Or", g.op("GreaterOrEqual", excess, lowest), sampler.keep_all)
    return g.op("Where", kept, weights, np.float64(0))


def draw(g: GraphBuilder, weights: str, uniforms: str, ids: int) -> str:
    """weights (B, V), uniforms (B, 1) -> ids (B, 1): the first whose cumulative weight exceeds uniform times sum."""
    groups = -(-ids // GROUP)
    padded = g.op("Pad", weights, [0, 0, 0, groups * GROUP - ids])
    grouped = g.op("Reshape", padded, [0, groups, GROUP])
    sums = g.op("ReduceSum", grouped, [2], keepdims=0)
    reached = g.op("CumSum", sums, np.int64(1))
    limit = g.op("Mul", uniforms, g.op("Gather", reached, [groups - 1], axis=1))
    group = searchsorted(g, reached, limit, groups)
    before = g.op("Sub", g.op("GatherElements", reached, group, axis=1), g.op("GatherElements", sums, group, axis=1))
    members = g.op("GatherND", grouped, group, batch_dims=1)
    member = searchsorted(g, g.op("Add", before, g.op("CumSum", members, np.int64(1))), limit, GROUP)
    return g.op("Add", g.op("Mul", group, np.int64(GROUP)), member)


def searchsorted(g: GraphBuilder, rising: str, limit: str, length: int) -> str:
    """rising (B, length) never falls, limit (B, 1) -> (B, 1) int64: the first index above the limit, else the last."""
    below = g.op("ReduceSum", g.cast(g.op("LessOrEqual", rising, limit), "INT64"), [1])
    return g.op("Min", below, np.int64(length - 1))


def is_repetitive(g: GraphBuilder, sampler: Sampler, recent: str, pick: str) -> str:
    """recent (B, K), pick (B, 1) -> (B, 1) bool: is the pick's `sampling.repetition_ratio` too large?"""
    equal = g.op("ReduceSum", g.cast(g.op("Equal", recent, pick), "DOUBLE"), [1])
    is_known = g.op("Not", g.op("Equal", recent, np.int64(NO_ID)))
    known = g.op("Max", g.op("ReduceSum", g.cast(is_known, "DOUBLE"), [1]), np.float64(1))
    percent = g.op("Round", g.op("Mul", g.op("Div", equal, known), np.float64(100)))
    return g.op("Greater", g.op("Div", percent, np.float64(100)), sampler.max_ratio)


Branch = Callable[[GraphBuilder], str]


def if_else(g: GraphBuilder, condition: str, then: Branch, otherwise: Branch, dtype: str = "INT64") -> str:
    """The value of one of two inner graphs, chosen by a condition."""
    graphs = []
    for branch in (then, otherwise):
        inner = g.body()
        value = branch(inner)
        inner.outputs.append(inner.value(value, dtype))
        graphs.append(inner.graph(g.new_name("branch")))
    return g.op("If", condition, then_branch=graphs[0], else_branch=graphs[1])
