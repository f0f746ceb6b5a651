"""CodecLM: causality, the window, caches, batches, the speaker."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor

from mars5_small import CODES, LEVELS, ar, codes, models
from marstts.mars5.ar import CodecLM, join_states, rotate
from marstts.mars5.config import CodecLMConfig
from marstts.mars5.engine import TokenEngine, numbers_of


def tokens(batch: int, length: int, seed: int = 5) -> Tensor:
    return torch.randint(0, 288, (batch, length), generator=torch.Generator().manual_seed(seed))


def speaker(model: CodecLM, batch: int = 1) -> Tensor:
    return model.encode_speaker(torch.from_numpy(codes(7))[None]).expand(batch, -1)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.slow
def test_the_defaults_have_the_published_size() -> None:
    with torch.device("meta"):
        model = CodecLM(CodecLMConfig(text_vocab_size=1, speech_vocab_size=1))
    names = model.state_dict()
    assert len(names) == 9 * 26 + 14 * 2 + 15  # key and query-value projections apart: two more per speaker layer
    assert sum(parameter.numel() for parameter in model.parameters()) - 2 * 2 * 1536 == pytest.approx(737.8e6, rel=1e-4)


def test_later_tokens_and_farther_ones_than_the_window_cannot_influence_logits() -> None:
    model = ar(window=3, layers=1)
    x = model.embed(tokens(1, 11), None).detach().requires_grad_()
    positions = torch.arange(11)[None]
    output, _ = model.decode(x, positions, positions, None)
    output[0, 6].sum().backward()
    assert x.grad is not None
    assert [place for place in range(11) if x.grad[0, place].abs().sum() > 0] == [3, 4, 5, 6]


@pytest.mark.parametrize("window", [2, 4, 40])
@torch.inference_mode()
def test_cached_logits_match_the_full_pass_beyond_the_window_too(window: int) -> None:
    model = ar(window=window)
    ids, voice = tokens(1, 15), speaker(model)
    full = model(ids, voice)
    state = model.begin(ids[:, :5], torch.tensor([5]), voice)
    for place in range(5, 15):
        close(state.logits, full[:, place - 1])
        state = model.advance(state, ids[:, place])
        assert state.key_positions.shape[1] <= window + 1
    close(state.logits, full[:, -1])


@torch.inference_mode()
def test_a_slow_pass_with_explicit_rotations_gives_the_same_logits() -> None:
    model = ar(window=3)
    ids = tokens(1, 8)
    x = model.embedding(ids)[0]
    for block in model.layers:
        normed, attention = block.attention_norm(x), block.attention
        split = [part(normed).view(8, 3, 4) for part in (attention.query, attention.key, attention.value)]
        mixed = torch.zeros(8, 3, 4)
        for place in range(8):
            seen = range(max(0, place - 3), place + 1)
            for head in range(3):
                query = turn(split[0][place, head], place)
                scores = torch.stack([query @ turn(split[1][other, head], other) / 2 for other in seen])
                mixed[place, head] = scores.softmax(dim=0) @ split[2][list(seen), head]
        x = x + attention.output(mixed.flatten(start_dim=1))
        x = x + block.feed_forward(block.feed_forward_norm(x))
    close(model.output(model.norm(x))[None], model(ids, None))


def turn(vector: Tensor, position: int) -> Tensor:
    """Each pair as a complex number, turned by position · 10000^(-2i/d)."""
    pairs = torch.view_as_complex(vector.view(-1, 2))
    angles = torch.tensor([position * 10_000.0 ** (-2 * i / len(vector)) for i in range(len(pairs))])
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten()


def test_rotations_depend_on_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 1, 6, generator=torch.Generator().manual_seed(0))
    products = [
        (rotate(query, torch.tensor([[start]])) * rotate(key, torch.tensor([[start + 4]]))).sum() for start in (0, 9)
    ]
    close(products[0], products[1])


@torch.inference_mode()
def test_rows_of_a_batch_do_not_influence_each_other() -> None:
    model = ar(window=6)
    lengths, ids = torch.tensor([4, 9, 1]), tokens(3, 9)
    voices = torch.stack([model.encode_speaker(torch.from_numpy(codes(3 + row, row))[None])[0] for row in range(3)])
    following = tokens(3, 8, seed=6)
    together = model.begin(ids, lengths, voices)
    alone = [model.begin(ids[r : r + 1, : lengths[r]], lengths[r : r + 1], voices[r : r + 1]) for r in range(3)]
    for step in range(8):
        close(together.logits, torch.cat([state.logits for state in alone]))
        together = model.advance(together, following[:, step])
        alone = [model.advance(state, following[r : r + 1, step]) for r, state in enumerate(alone)]
    close(together.logits, torch.cat([state.logits for state in alone]))


@torch.inference_mode()
def test_states_are_values_that_can_be_cut_and_joined() -> None:
    model = ar()
    ids, voices = tokens(3, 6), speaker(ar(), 3)
    state = model.begin(ids, torch.tensor([6, 2, 4]), voices)
    before = [layer.keys.clone() for layer in state.seen]
    expected = model.advance(state, ids[:, 0]).logits
    joined = join_states([state.select(torch.tensor([1])), model.begin(ids[2:, :4], torch.tensor([4]), voices[2:])])
    close(model.advance(joined, ids[1:, 0]).logits, expected[1:])
    assert all(torch.equal(layer.keys, keys) for layer, keys in zip(state.seen, before, strict=True))


@torch.inference_mode()
def test_padding_of_the_reference_does_not_count() -> None:
    model, reference = ar(), torch.from_numpy(codes(6))[None]
    padding = torch.full((1, 4, LEVELS), CODES)
    expected = model.encode_speaker(reference)
    close(model.encode_speaker(torch.cat((reference, padding), dim=1)), expected)
    close(model.encode_speaker(torch.cat((reference, reference), dim=1), torch.tensor([6])), expected)
    other = reference.clone()
    other[0, 5, 2] = (other[0, 5, 2] + 1) % CODES
    assert (model.encode_speaker(other) - expected).abs().max() > 1e-3


def test_odd_sizes_are_refused() -> None:
    sizes = {"text_vocab_size": 5, "speech_vocab_size": 5, "width": 8, "speaker_heads": 2, "levels": 2}
    CodecLMConfig(**sizes)
    for change in (
        {"speaker_heads": 3},
        {"levels": 3},
        {"head_size": 5},
        {"width": 9, "speaker_heads": 3, "levels": 3},
    ):
        with pytest.raises(ValueError, match="must"):
            CodecLMConfig(**sizes | change)


@torch.inference_mode()
def test_half_precision_stays_half_precision() -> None:
    model = ar().to(torch.bfloat16)
    state = model.begin(tokens(1, 5), torch.tensor([5]), speaker(model))
    assert state.logits.dtype is torch.bfloat16
    assert model.advance(state, torch.tensor([3])).seen[0].keys.dtype is torch.bfloat16


@pytest.mark.parametrize("scale", [1, 1e6], ids=["usual sums", "sums beyond float16"])
def test_half_precision_leaves_weights_and_residual_sums_in_float32(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1e6 is infinite in float16, so weights or sums in it would make logits that are not numbers."""
    parts, logits = models(), []
    engine, model = TokenEngine(parts, "small"), parts.ar
    with torch.no_grad():
        model.embedding.weight.mul_(scale)
    for precision in (nullcontext(), torch.autocast("cpu", torch.float16)):
        monkeypatch.setattr(engine, "autocast", lambda precision=precision: precision)
        state = engine.begin(list(tokens(1, 6).numpy()), speaker(model).detach().numpy() * scale)
        for token in tokens(4, 1):
            state = engine.advance(state, token.numpy())
        logits.append(numbers_of(state))
    assert state.seen[0].keys.dtype == state.seen[-1].values.dtype == torch.float16
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert 0 < np.abs(logits[1] - logits[0]).max() < 0.01 * np.abs(logits[0]).max()


def test_on_a_gpu_products_are_in_half_precision() -> None:
    engine = TokenEngine(models(), "small")
    assert not torch.is_autocast_enabled("cpu")
    with engine.autocast():
        assert not torch.is_autocast_enabled("cpu")
    engine.device = torch.device("cuda")
    assert engine.autocast().device == "cuda" and engine.autocast().fast_dtype == torch.float16
