"""Number formats are named as configurations spell them, and mixed precision computes in the named format."""

from __future__ import annotations

import pytest

from marstts.io.precision import Precision, WeightFormat, autocast


def test_formats_are_spelled_as_in_configurations():
    assert [Precision("bf16"), Precision("fp32")] == list(Precision)
    assert [WeightFormat("float16"), WeightFormat("float32"), WeightFormat("int8")] == list(WeightFormat)


@pytest.mark.parametrize(("precision", "expected"), [(Precision.BF16, "bfloat16"), (Precision.FP32, "float32")])
def test_products_are_computed_in_the_precision_and_weights_are_not(precision, expected):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(3, 2)
    with autocast("cpu", precision):
        output = layer(torch.ones(1, 3))
    assert output.dtype == getattr(torch, expected) and layer.weight.dtype == torch.float32
