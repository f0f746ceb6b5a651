"""Model growth: the weights of a smaller MARS6 as initial weights of one with more layers or wider feed-forward layers.

Upstream: a trained model, the configuration of a larger one.  Downstream: `run_folder.init_from`.
The larger model computes the same function at first (T. Chen et al., "Net2Net", arXiv:1511.05641): new layers follow
the others, and their output projections are zero, so that each adds nothing to the residual. New feed-forward units
have zero weights in the output projection. Their other weights are random, so gradients differ between them.
Not in the paper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

STACKS = ("encoder", "global_decoder", "local_decoder")

OUTPUTS = ("attention.output", "cross_attention.output", "feed_forward.output")
"""Modules of a layer that write to the residual."""

INNER = ("feed_forward.inner.weight", "feed_forward.inner.bias", "feed_forward.output.weight")
"""Tensors that are wider where feed-forward layers are."""

_LAYER = re.compile(rf"({'|'.join(STACKS)})\.layers\.(\d+)\.(.+)")


def grow_state(state: Mapping[str, Tensor], larger: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights `state` in the shapes of `larger`, the newly initialized state of a larger model.

    Only new layers and feed-forward units are filled in. All other tensors are those of `state`, whatever their shapes.
    """
    grown = dict(state)
    for name, tensor in larger.items():
        layer = _LAYER.fullmatch(name)
        if layer is None:
            continue
        part = layer[3]
        if name not in state:
            if layer_exists(state, layer[1]):
                is_output = part.rpartition(".")[0] in OUTPUTS
                grown[name] = tensor.new_zeros(tensor.shape) if is_output else tensor.clone()
        elif part in INNER and is_wider(tensor, state[name]):
            grown[name] = widen(state[name], tensor, is_output=part == "feed_forward.output.weight")
    return grown


def layer_exists(state: Mapping[str, Tensor], stack: str) -> bool:
    """Return True where the smaller model has at least one layer of this stack."""
    return any(name.startswith(f"{stack}.layers.") for name in state)


def is_wider(larger: Tensor, smaller: Tensor) -> bool:
    """Return True where one tensor holds the other with more units."""
    return larger.shape != smaller.shape and all(a >= b for a, b in zip(larger.shape, smaller.shape, strict=True))


def widen(smaller: Tensor, larger: Tensor, is_output: bool) -> Tensor:
    """The tensor `larger` with the values of `smaller` at its beginning; zeros beyond them in output projections."""
    grown = larger.new_zeros(larger.shape) if is_output else larger.clone()
    grown[tuple(slice(size) for size in smaller.shape)] = smaller
    return grown
