import pytest
import torch
from torch.nn import functional as F

from marstts.nn import mish
from marstts.nn.mish import FusedMish, Mish, sigmoid_mish


def value_and_slope(function, x):
    x = x.detach().requires_grad_()
    y = function(x)
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y))
    return y.detach(), x.grad


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
def test_fused_mish_equals_the_stock_one_in_value_and_derivative(dtype, tolerance, monkeypatch):
    monkeypatch.setattr(mish, "CHUNK", 100)  # several pieces, the last one shorter
    x = torch.cat((torch.linspace(-40, 40, 998), torch.tensor([-1e4, 0.0, 1e4]))).to(dtype).view(7, 143)
    for got, expected in zip(value_and_slope(FusedMish.apply, x), value_and_slope(F.mish, x), strict=True):
        assert got.dtype == dtype and got.shape == x.shape
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def test_fused_mish_leaves_its_input_untouched_and_takes_any_layout():
    x = torch.randn(6, 5, 4).transpose(0, 2)
    kept = x.clone()
    got, slope = value_and_slope(FusedMish.apply, x)
    assert torch.equal(x, kept)
    torch.testing.assert_close(got, F.mish(x))
    torch.testing.assert_close(slope, value_and_slope(F.mish, x)[1])


def test_mish_is_fused_in_training_only():
    x = torch.randn(3, requires_grad=True)
    module = Mish()
    assert "FusedMish" in type(module.train()(x).grad_fn).__name__
    assert "FusedMish" not in type(module.eval()(x).grad_fn).__name__


def test_exported_graphs_have_mish_by_a_sigmoid():
    x = torch.cat((torch.linspace(-40, 40, 999), torch.tensor([-1e4, 0.0, 1e4])))
    torch.testing.assert_close(sigmoid_mish(x), F.mish(x), rtol=2e-6, atol=1e-6)
    exported = torch.export.export(Mish().eval(), (x,))
    operators = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert any("sigmoid" in name for name in operators) and not any("mish" in name for name in operators)
