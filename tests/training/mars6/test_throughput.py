"""Operations by formula, against PyTorch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from marstts.io.precision import Precision
from marstts.mars6.config import Mars6Config
from marstts.mars6.model import Mars6
from marstts.training.mars6.throughput import TRAINING_PASSES, forward_flops, measured_peak


@pytest.mark.parametrize("conditioning", ["two_slots", "fused"])
def test_operations_by_formula_are_those_that_pytorch_counts(conditioning):
    config = Mars6Config(
        text_vocab_size=13, codebook_size=9, width=42, encoder_layers=2, global_layers=3, local_layers=1, heads=2,
        local_heads=3, identity_size=5, style_size=7, conditioning=conditioning,
    )  # fmt: skip
    model, text, patches = Mars6(config), torch.tensor([6, 6]), torch.tensor([11, 11])
    inputs = (torch.ones(2, 6, dtype=torch.long), text, torch.ones(2, 5), torch.ones(2, 7))
    with FlopCounterMode(display=False) as counter:
        output = model(*inputs, torch.zeros(2, 11, 7, dtype=torch.long), patches)
        forward = counter.get_total_flops()
        sum(logits.sum() for logits in output.logits).backward()
    assert forward_flops(config, text, patches) == pytest.approx(forward, rel=1e-6)
    assert counter.get_total_flops() / forward == pytest.approx(TRAINING_PASSES, rel=0.05)


def test_the_peak_of_a_device_is_measured():
    assert measured_peak(torch.device("cpu"), Precision.FP32) > 1e6
