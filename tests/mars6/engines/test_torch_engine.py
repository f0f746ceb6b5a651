"""The PyTorch engine against the teacher-forced model it runs."""

import numpy as np
import pytest
import torch

from marstts.generation.loop import generate
from marstts.generation.request import Generated, Limits, SamplingConfig
from marstts.mars6.config import Conditioning, Mars6Config
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt
from marstts.mars6.prompt_batch import collate

CONFIG = Mars6Config(
    text_vocab_size=31, codebook_size=13, width=24, encoder_layers=2, global_layers=2, local_layers=2,
    heads=3, local_heads=2, identity_size=5, style_size=9,
)  # fmt: skip
FUSED = CONFIG.model_copy(update={"conditioning": Conditioning.FUSED})


def make_engine(config: Mars6Config = CONFIG) -> TorchEngine:
    torch.manual_seed(3)
    model = Mars6(config)
    with torch.no_grad():  # codes sharp, so that rounding decides nothing, and end of speech rare
        model.local_decoder.output.weight[:-1] *= 4
    return TorchEngine(model)


def prompts(lengths=((6, 0), (9, 4), (4, 1))) -> list[Prompt]:
    """(text tokens, prefix patches) of each row."""
    rng, levels = np.random.default_rng(0), np.array(CONFIG.position_levels) * 13
    return [
        Prompt(
            rng.integers(0, 31, text), rng.normal(size=5).astype(np.float32), rng.normal(size=9).astype(np.float32),
            rng.integers(0, 13, (prefix, 7)) + levels,
        )
        for text, prefix in lengths
    ]  # fmt: skip


def speak(engine: TorchEngine, some: list[Prompt], top_p: float, seeds: list[int], patches: int = 8) -> list[Generated]:
    return generate(
        engine, some, top_p=[top_p] * len(some), limits=[Limits(0, patches)] * len(some),
        rngs=[np.random.default_rng(seed) for seed in seeds],
        sampling=SamplingConfig(ras_max_ratio=1.0 if top_p == 0 else 0.09),
    )  # fmt: skip


@torch.no_grad()
def slow_greedy(model: Mars6, prompt: Prompt, patches: int) -> list[list[int]]:
    """No caches, no batch: the teacher-forced model rerun for every single token."""
    config, tokens_so_far = model.config, prompt.prefix_tokens.tolist()
    for _ in range(patches):
        patch = [config.eos] * 7
        for position, level in enumerate(config.position_levels):
            tokens = torch.tensor([[*tokens_so_far, patch]])
            output = model(
                torch.as_tensor(prompt.text_ids)[None], torch.tensor([len(prompt.text_ids)]),
                torch.as_tensor(prompt.identity)[None], torch.as_tensor(prompt.style)[None],
                tokens, torch.tensor([tokens.shape[1]]),
            )  # fmt: skip
            pick = int(torch.cat(output.logits, dim=1)[-1, position].argmax())
            if pick == config.codebook_size:
                return tokens_so_far[len(prompt.prefix_tokens) :]
            patch[position] = pick + level * config.codebook_size
        tokens_so_far.append(patch)
    return tokens_so_far[len(prompt.prefix_tokens) :]


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, FUSED], ids=["two_slots", "fused"])
def test_cached_batched_greedy_generation_matches_the_uncached_model(config):
    engine = make_engine(config)
    results = speak(engine, prompts(), 0.0, [0, 1, 2])
    for prompt, result in zip(prompts(), results, strict=True):
        assert result.tokens.tolist() == slow_greedy(engine.model, prompt, 8)
    assert min(len(result.tokens) for result in results) > 2


def test_sampled_tokens_do_not_depend_on_other_rows_or_order():
    engine, some = make_engine(), prompts(((6, 0), (9, 4), (4, 1), (7, 2)))
    together = speak(engine, some, 0.7, [4, 5, 6, 7])
    backwards = speak(engine, some[::-1], 0.7, [7, 6, 5, 4])[::-1]
    for index, result in enumerate(together):
        [alone] = speak(engine, [some[index]], 0.7, [4 + index])
        assert np.array_equal(alone.tokens, result.tokens) and np.array_equal(backwards[index].tokens, result.tokens)
    assert len({result.tokens.tobytes() for result in together}) == 4


def test_states_are_values_and_can_be_continued_later():
    engine, some = make_engine(), prompts()
    before = engine.start(some)
    nothing, patch = np.zeros((3, 0), np.int64), np.tile(np.array(CONFIG.position_levels) * 13, (3, 1))
    first, _ = engine.next_logits(before, nothing)
    after = engine.append(before, patch)
    engine.next_logits(engine.select(after, [1]), nothing[:1])
    again, _ = engine.next_logits(before, nothing)
    assert np.array_equal(first, again)
    repeated = engine.append(before, patch)
    torch.testing.assert_close(repeated.patches.vectors, after.patches.vectors)


def test_selecting_rows_within_a_patch_keeps_their_caches():
    engine, some = make_engine(), prompts()
    _, state = engine.next_logits(engine.start(some), np.zeros((3, 0), np.int64))
    tokens = np.array([[1], [2], [3]])
    expected, _ = engine.next_logits(state, tokens)
    got, _ = engine.next_logits(engine.select(state, [2, 0]), tokens[[2, 0]])
    np.testing.assert_allclose(got, expected[[2, 0]], atol=1e-5)


def test_logits_are_float32_over_one_level_and_end_of_speech():
    engine = make_engine()
    engine = TorchEngine(engine.model.bfloat16())
    logits, _ = engine.next_logits(engine.start(prompts()), np.zeros((3, 0), np.int64))
    assert logits.shape == (3, 14) and logits.dtype == np.float32


def test_collate_pads_at_the_end():
    batch = collate(prompts())
    assert batch.text_ids.shape == (3, 9) and batch.prefix.shape == (3, 4, 7)
    assert batch.text_lengths.tolist() == [6, 9, 4] and batch.prefix_lengths.tolist() == [0, 4, 1]
    assert (batch.prefix[2, 1:] == -100).all() and (batch.prefix[1] >= 0).all()
    assert batch.text_ids[1].tolist() == prompts()[1].text_ids.tolist()
