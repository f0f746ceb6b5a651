import pytest
import torch
from torch.nn import functional as F

from marstts.nn import cross_entropy as module
from marstts.nn.cross_entropy import cross_entropy


def example(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(23, 11, generator=generator)).to(dtype).requires_grad_()
    return logits, torch.randint(0, 11, (23,), generator=generator)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-3)])
def test_chunked_loss_and_gradient_equal_the_stock_ones(dtype, tolerance, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 5)  # several chunks, the last one shorter
    logits, classes = example(dtype)
    loss, _ = cross_entropy(logits, classes)
    assert "Chunked" in type(loss.grad_fn).__name__
    (got,) = torch.autograd.grad(3 * loss, logits)
    expected = F.cross_entropy(logits.float(), classes)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got, torch.autograd.grad(3 * expected, logits)[0], rtol=tolerance, atol=tolerance)


def test_accuracy_is_the_same_with_and_without_gradients():
    logits, classes = example()
    right = float((logits.argmax(dim=1) == classes).sum()) / 23
    assert 0 < right < 1
    assert float(cross_entropy(logits, classes)[1]) == pytest.approx(right)
    assert float(cross_entropy(logits.detach(), classes)[1]) == pytest.approx(right)
    assert not cross_entropy(logits, classes)[1].requires_grad
    torch.testing.assert_close(cross_entropy(logits, classes)[0], cross_entropy(logits.detach(), classes)[0])


def test_the_logits_stay_untouched():
    logits, classes = example()
    kept = logits.detach().clone()
    cross_entropy(logits, classes)[0].backward()
    assert torch.equal(logits.detach(), kept)
