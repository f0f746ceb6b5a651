"""The device that a training runs on.

Upstream: the key `device` of a configuration, the option `--device`.  Downstream: every training task.
"""

from __future__ import annotations

import torch

from marstts.errors import ConfigError


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the first GPU, or the CPU without one. ConfigError for other names."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device: expected `auto`, `cpu`, `cuda` or `cuda:N`, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: {name} needs a GPU that PyTorch can use, and there is none; choose `cpu`")
    return device
