"""Two choices of number format, each an enum: what training computes in, and how a bundle stores its weights.

Upstream: configurations and the command line.  Downstream: training, export.
They are two because no value serves both: bfloat16 is never stored, float16 and int8 are never trained in, and a
function that takes one should not be given the other. Weights in training are float32 always.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum

from marstts.errors import require


class Precision(str, Enum):
    """Number format of matrix products in training."""

    BF16 = "bf16"
    """Mixed precision: products in bfloat16, weights and optimizer in float32. A processor without instructions for
    bfloat16, on which such products take some fifty times as long, computes as with `FP32`."""

    FP32 = "fp32"


class WeightFormat(str, Enum):
    """Format of the weights in a bundle's safetensors file."""

    FLOAT16 = "float16"
    """Rounded, half the size; graphs and PyTorch compute in float32."""

    FLOAT32 = "float32"
    """No conversion."""

    INT8 = "int8"
    """Decoder weights stored in integers, in which ONNX Runtime computes, too; PyTorch computes in float32."""


def supported(device_type: str, precision: Precision) -> Precision:
    """The precision that a type of device ("cpu", "cuda") computes in where `precision` is asked for."""
    torch = require("torch", "train")
    if device_type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return Precision.FP32
    return precision


def autocast(device_type: str, precision: Precision) -> AbstractContextManager[None]:
    """PyTorch's mixed precision on a type of device ("cpu", "cuda") where the precision asks for it, and it has it."""
    torch = require("torch", "train")
    return torch.autocast(device_type, torch.bfloat16, enabled=supported(device_type, precision) is Precision.BF16)
