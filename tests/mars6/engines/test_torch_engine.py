"""The PyTorch engine against the teacher-forced model it runs."""

import numpy as np
import pytest
import torch
from engine_inputs import CONFIG, model_with, prompts, slow_greedy, speak

from marstts.mars6.config import Conditioning, Mars6Config
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.prompt import collate

FUSED = CONFIG.model_copy(update={"conditioning": Conditioning.FUSED})


def make_engine(config: Mars6Config = CONFIG) -> TorchEngine:
    return TorchEngine(model_with(config))


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, FUSED], ids=["two_slots", "fused"])
def test_cached_batched_greedy_generation_matches_the_uncached_model(config):
    engine = make_engine(config)
    results = speak(engine, prompts(), 0.0, [0, 1, 2])
    for prompt, result in zip(prompts(), results, strict=True):
        assert result.tokens.tolist() == slow_greedy(engine.model, prompt, 8)
    assert min(len(result.tokens) for result in results) > 2


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
