"""Attention against PyTorch's own, and caches against full passes."""

import torch
from torch import nn

from marstts.nn.attention import Attention, KVCache, ScaledSinusoids, attend_eager, attend_sdpa, sinusoids
from marstts.nn.transformer import CrossLayer, SelfLayer, initialize

B, T, S, D, H = 3, 5, 4, 12, 2


def stock_twin(attention: Attention) -> nn.MultiheadAttention:
    twin = nn.MultiheadAttention(D, H, batch_first=True)
    twin.in_proj_weight.data = torch.cat((attention.query.weight, attention.key_value.weight)).detach()
    twin.in_proj_bias.data = torch.cat((attention.query.bias, attention.key_value.bias)).detach()
    twin.out_proj.load_state_dict(attention.output.state_dict())
    return twin


def test_attention_equals_stock_multihead_attention_under_a_mask():
    torch.manual_seed(0)
    attention, x, memory = Attention(D, H), torch.randn(B, T, D), torch.randn(B, S, D)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    expected, weights = stock_twin(attention)(x, memory, memory, key_padding_mask=~mask, average_attn_weights=False)
    got = attention(x, attention.project_kv(memory), mask[:, None, None])
    torch.testing.assert_close(got, expected)
    shown, probabilities = attention.with_probabilities(x, attention.project_kv(memory), mask[:, None, None])
    torch.testing.assert_close(shown, expected)
    torch.testing.assert_close(probabilities, weights)


def test_eager_and_sdpa_attention_are_the_same_function():
    torch.manual_seed(6)
    queries, memory = torch.randn(B, H, T, 6), KVCache(torch.randn(B, H, T, 6), torch.randn(B, H, T, 6))
    mask = torch.rand(B, 1, 1, T) > 0.4
    mask[..., 0] = True
    for mask_, causal in ((None, False), (None, True), (mask, False)):
        torch.testing.assert_close(
            attend_eager(queries, memory, mask_, causal), attend_sdpa(queries, memory, mask_, causal)
        )


def test_self_layer_equals_the_stock_pre_norm_layer():
    torch.manual_seed(1)
    layer = SelfLayer(D, H, 2 * D)
    stock = nn.TransformerEncoderLayer(D, H, 2 * D, 0.0, nn.functional.mish, batch_first=True, norm_first=True)
    stock.self_attn = stock_twin(layer.attention)
    for mine, theirs in (
        (layer.attention_norm, stock.norm1),
        (layer.feed_forward_norm, stock.norm2),
        (layer.feed_forward.inner, stock.linear1),
        (layer.feed_forward.output, stock.linear2),
    ):
        theirs.load_state_dict(mine.state_dict())
    x = torch.randn(B, T, D)
    got, _ = layer(x, causal=True)
    torch.testing.assert_close(got, stock(x, src_mask=nn.Transformer.generate_square_subsequent_mask(T)))


def test_a_cross_layer_with_a_kv_cache_equals_one_causal_pass():
    torch.manual_seed(2)
    layer, x = CrossLayer(D, H, 2 * D), torch.randn(B, T, D)
    memory = layer.cross_attention.project_kv(torch.randn(B, S, D))
    full, _, _ = layer(x, memory, causal=True)
    past, steps = None, []
    for t in range(T):
        out, past, _ = layer(x[:, t : t + 1], memory, past=past)
        steps.append(out)
    torch.testing.assert_close(torch.cat(steps, dim=1), full)


def test_returning_attention_changes_no_output():
    torch.manual_seed(3)
    layer, x = CrossLayer(D, H, 2 * D), torch.randn(B, T, D)
    memory = layer.cross_attention.project_kv(torch.randn(B, S, D))
    plain, shown = layer(x, memory, causal=True), layer(x, memory, causal=True, show_attention=True)
    torch.testing.assert_close(plain.x, shown.x)
    assert plain.cross_attention is None
    torch.testing.assert_close(shown.cross_attention.sum(dim=-1), torch.ones(B, H, T))


def test_caches_are_values():
    past = KVCache(torch.randn(B, H, S, 6), torch.randn(B, H, S, 6))
    before = past.keys.clone()
    longer = past.extended(KVCache(torch.randn(B, H, 1, 6), torch.randn(B, H, 1, 6)))
    rows = longer.select(torch.tensor([2, 0]))
    assert longer.keys.shape == (B, H, S + 1, 6) and rows.values.shape == (2, H, S + 1, 6)
    torch.testing.assert_close(past.keys, before)
    torch.testing.assert_close(rows.values[1], longer.values[0])


def test_dropout_acts_in_training_only():
    torch.manual_seed(4)
    layer, x = SelfLayer(D, H, 2 * D, dropout=0.5), torch.randn(B, T, D)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    torch.testing.assert_close(layer(x)[0], layer(x)[0])


def test_sinusoids_follow_the_formula_for_even_and_odd_widths():
    for width in (6, 7):
        table = sinusoids(torch.arange(20), width)
        assert table.shape == (20, width)
        for p in (0, 1, 19):
            for column in range(width):
                angle = torch.tensor(p * 10_000 ** (-2 * (column // 2) / width))
                expected = angle.sin() if column % 2 == 0 else angle.cos()
                torch.testing.assert_close(table[p, column], expected, atol=1e-5, rtol=0)


def test_alpha_scales_positions_and_gets_gradients():
    positions, x = ScaledSinusoids(), torch.zeros(2, 3, 8)
    positions.alpha.data.fill_(0.25)
    out = positions(x, torch.arange(3))
    torch.testing.assert_close(out[1], 0.25 * sinusoids(torch.arange(3), 8))
    out.sum().backward()
    assert positions.alpha.grad.abs() > 0


def test_initialize_zeroes_biases_and_scales_residual_branches():
    torch.manual_seed(5)
    layers = nn.ModuleList(CrossLayer(D, H, 2 * D) for _ in range(3))
    before = layers[0].feed_forward.output.weight.clone()
    initialize(layers)
    torch.testing.assert_close(layers[0].feed_forward.output.weight, before / 3)
    assert all(not p.any() for name, p in layers.named_parameters() if name.endswith("bias"))
