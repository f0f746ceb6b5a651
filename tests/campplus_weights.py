"""CAM++ of random weights, with the names and shapes of the published ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from marstts_lab.training.speaker.campplus import BLOCKS


def published(blocks: Sequence[tuple[int, int]] = BLOCKS) -> dict[str, Tensor]:
    """Random tensors with the names and shapes of the published ones; `blocks`: layers of each, and their dilation."""
    found: dict[str, Tensor] = {}

    def convolution(name: str, *shape: int, bias: bool = False) -> None:
        found[f"{name}.weight"] = torch.randn(shape) / np.sqrt(np.prod(shape[1:]))
        if bias:
            found[f"{name}.bias"] = 0.1 * torch.randn(shape[0])

    def norm(name: str, width: int, affine: bool = True) -> None:
        if affine:
            found[f"{name}.weight"], found[f"{name}.bias"] = 1 + 0.1 * torch.randn(width), 0.1 * torch.randn(width)
        found[f"{name}.running_mean"], found[f"{name}.running_var"] = torch.randn(width) / 9, 0.5 + torch.rand(width)
        found[f"{name}.num_batches_tracked"] = torch.tensor(7)

    for name, channels in (("conv1", 1), ("conv2", 32)):
        convolution(f"head.{name}", 32, channels, 3, 3)
    norm("head.bn1", 32), norm("head.bn2", 32)
    for layer in (1, 2):
        for block in (0, 1):
            for part in (1, 2):
                convolution(f"head.layer{layer}.{block}.conv{part}", 32, 32, 3, 3)
                norm(f"head.layer{layer}.{block}.bn{part}", 32)
        convolution(f"head.layer{layer}.0.shortcut.0", 32, 32, 1, 1), norm(f"head.layer{layer}.0.shortcut.1", 32)
    convolution("xvector.tdnn.linear", 128, 320, 5), norm("xvector.tdnn.nonlinear.batchnorm", 128)
    width = 128
    for block, (layers, _) in enumerate(blocks, 1):
        for layer in range(1, layers + 1):
            name = f"xvector.block{block}.tdnnd{layer}"
            norm(f"{name}.nonlinear1.batchnorm", width), norm(f"{name}.nonlinear2.batchnorm", 128)
            convolution(f"{name}.linear1", 128, width, 1)
            convolution(f"{name}.cam_layer.linear_local", 32, 128, 3)
            convolution(f"{name}.cam_layer.linear1", 64, 128, 1, bias=True)
            convolution(f"{name}.cam_layer.linear2", 32, 64, 1, bias=True)
            width += 32
        norm(f"xvector.transit{block}.nonlinear.batchnorm", width)
        convolution(f"xvector.transit{block}.linear", width // 2, width, 1)
        width //= 2
    norm("xvector.out_nonlinear.batchnorm", width)
    convolution("xvector.dense.linear", 192, 2 * width, 1)
    norm("xvector.dense.nonlinear.batchnorm", 192, affine=False)
    return found
