"""Mixed precision where the processor has instructions for it."""

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from marstts.io.precision import Precision, autocast, supported  # noqa: E402


def test_products_are_bfloat16_only_where_the_processor_has_instructions_for_it():
    has_instructions = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    with autocast("cpu", Precision.BF16):
        product = torch.ones(3, 5) @ torch.ones(5, 2)
    assert product.dtype is (torch.bfloat16 if has_instructions else torch.float32)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_full_precision_stays_full_precision(device: str):
    assert supported(device, Precision.FP32) is Precision.FP32


def test_mixed_precision_stays_on_gpus():
    assert supported("cuda", Precision.BF16) is Precision.BF16
