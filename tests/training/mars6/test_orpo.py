"""Preference losses, exact: against a computation written out here, and against the generator's own steps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_pairs import CONFIG, PAIRS, PROMPT_OF, SPEECH, TOKENIZER, codes, config, model, task

from marstts.errors import ConfigError
from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig
from marstts.mars6.config import eos_patch, unpatchify
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Mars6Prompt
from marstts.text.phones import PHONE_TOKENS
from marstts.text.pronunciation.words import PhoneUse
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.pairs import Pair, SideLine
from marstts_lab.training.checkpoint import latest, restore, save
from marstts_lab.training.loop import run
from marstts_lab.training.loss import total, values
from marstts_lab.training.mars6.orpo import (
    OrpoTask,
    PairCollator,
    dpo_loss,
    mean_log_probabilities,
    open_orpo_run,
    orpo_loss,
    pairs_of_batch,
    teacher_forced,
    token_log_probabilities,
)
from marstts_lab.training.mars6.run_folder import trained_model

pytestmark = pytest.mark.slow


def values_of(pairs: list[Pair], of: Mars6) -> torch.Tensor:
    """(2 B,) mean log-probabilities: chosen sides, then rejected ones."""
    rows = PairCollator(pairs, CONFIG, PROMPT_OF)(range(len(pairs)))
    if next(of.parameters()).dtype is torch.float64:
        rows = replace(rows, embeddings={role: values.double() for role, values in rows.embeddings.items()})
    logits, scored = teacher_forced(of, rows)
    return mean_log_probabilities(token_log_probabilities(logits, rows.patches[scored], CONFIG), scored)


def test_loss_and_gradient_equal_those_written_out():
    rng = np.random.default_rng(0)
    chosen, rejected = -rng.uniform(0.05, 6, (2, 5))
    weight = 0.37
    first, second = (torch.tensor(values, requires_grad=True) for values in (chosen, rejected))
    loss = orpo_loss(first, second, weight)
    total(loss).backward()

    by_hand, chosen_gradient, rejected_gradient = 0.0, [], []
    for c, r in zip(chosen, rejected, strict=True):
        p, q = math.exp(c), math.exp(r)
        ratio = (p / (1 - p)) / (q / (1 - q))
        sigmoid = ratio / (1 + ratio)
        by_hand += (-c - weight * math.log(sigmoid)) / 5
        chosen_gradient.append((-1 - weight * (1 - sigmoid) / (1 - p)) / 5)
        rejected_gradient.append(weight * (1 - sigmoid) / (1 - q) / 5)
    assert total(loss).item() == pytest.approx(by_hand, abs=1e-9)
    np.testing.assert_allclose(first.grad, chosen_gradient, atol=1e-6)
    np.testing.assert_allclose(second.grad, rejected_gradient, atol=1e-6)
    assert values(loss)["preference_accuracy"].item() == np.mean(chosen > rejected)


def test_loss_and_gradient_of_the_whole_model_equal_those_of_sides_scored_one_by_one():
    exact, alone = model(), model()
    chosen, rejected = values_of(PAIRS, exact).chunk(2)
    loss = total(orpo_loss(chosen, rejected, 0.5))
    loss.backward()

    collate = PairCollator(PAIRS, CONFIG, PROMPT_OF)
    by_hand = torch.zeros(())
    for index in range(len(PAIRS)):
        rows = collate([index])
        odds, means = [], []
        for side in (0, 1):
            start, end = int(rows.prefix_lengths[side]), int(rows.patch_lengths[side])
            logits = alone(
                rows.text_ids[:1], rows.text_lengths[:1],
                *(rows.embeddings[role][:1] for role in ("identity", "style")),
                rows.patches[side : side + 1, :end], rows.patch_lengths[side : side + 1],
            ).logits  # fmt: skip
            terms = []
            for t in range(start, end):
                for p, level in enumerate(CONFIG.position_levels):
                    token = int(rows.patches[side, t, p])
                    code = 11 if token == CONFIG.eos else token - 11 * level
                    place = p - CONFIG.position_levels.index(level)
                    terms.append(torch.log(logits[level][t, place].softmax(dim=0)[code]))
            means.append(sum(terms) / len(terms))
            p = means[-1].exp()
            odds.append(p / (1 - p))
        ratio = odds[0] / odds[1]
        by_hand = by_hand + (-means[0] - 0.5 * torch.log(ratio / (1 + ratio))) / len(PAIRS)
    by_hand.backward()
    assert loss.item() == pytest.approx(by_hand.item(), abs=1e-6)
    for (name, one), other in zip(exact.named_parameters(), alone.parameters(), strict=True):
        if one.grad is not None or other.grad is not None:
            np.testing.assert_allclose(one.grad, other.grad, atol=1e-6, err_msg=name)


def steps_of_the_generator(engine: TorchEngine, prompt: Mars6Prompt, patches: np.ndarray) -> float:
    """Mean log-probability of the tokens, asked of the engine one by one."""
    state, total = engine.start([prompt]), 0.0
    for patch in patches:
        for position in range(len(patch)):
            logits, state = engine.next_logits(state, patch[None, :position])
            scores = logits[0].astype(np.float64)
            level = CONFIG.position_levels[position]
            code = CONFIG.codebook_size if patch[position] == CONFIG.eos else patch[position] - level * 11
            total += scores[code] - scores.max() - np.log(np.exp(scores - scores.max()).sum())
        state = engine.append(state, patch[None])
    return total / patches.size


def test_log_probabilities_equal_those_of_generation():
    speaking = model()
    engine = TorchEngine(speaking)
    takes = []
    for index, one in enumerate(PAIRS):
        prompt = PROMPT_OF(one.line.text, one.voice)
        rng = np.random.default_rng(index)
        [take] = generate(
            engine, [prompt], top_p=[1.0], limits=[Limits(2 + index, 5)], rngs=[rng], sampling=SamplingConfig()
        )
        tokens = [take.tokens, eos_patch(CONFIG)] if take.stop.value == "end of speech" else [take.tokens]
        takes.append((prompt, take, np.concatenate(tokens)))
    spoken = []
    for one, (_, take, _) in zip(PAIRS, takes, strict=True):
        side = SideLine(source="cycle", patches=len(take.tokens), has_eos=take.stop.value == "end of speech")
        codes = unpatchify(take.tokens, CONFIG.patch_layout, CONFIG.codebook_size)
        spoken.append(replace(one, line=one.line.model_copy(update={"rejected": side}), rejected=codes))
    with torch.no_grad():
        rejected = values_of(spoken, speaking).chunk(2)[1]
    own = [steps_of_the_generator(engine, prompt, patches) for prompt, _, patches in takes]
    np.testing.assert_allclose(rejected, own, atol=1e-6)
    assert len({len(patches) for _, _, patches in takes}) > 1


def test_sides_and_pairs_of_other_lengths_do_not_change_one_another():
    exact = model().double()
    with torch.no_grad():
        together = values_of(PAIRS, exact)
        alone = torch.stack([values_of([one], exact) for one in PAIRS], dim=1).flatten()
        long = [replace(one, rejected=codes(np.random.default_rng(9), 20)) for one in PAIRS]
        long = [
            replace(one, line=one.line.model_copy(update={"rejected": SideLine(source="x", patches=20, has_eos=True)}))
            for one in long
        ]
        chosen_with_long = values_of(long, exact).chunk(2)[0]
    np.testing.assert_allclose(together, alone, atol=1e-9)
    np.testing.assert_allclose(chosen_with_long, together.chunk(2)[0], atol=1e-9)


def test_a_truncated_take_has_no_end_of_speech():
    collate = PairCollator(PAIRS, CONFIG, PROMPT_OF)
    rows = collate([2])
    assert rows.patch_lengths.tolist() == [7, 6] and (rows.patches[0, 6] == CONFIG.eos).all()


def test_prefixes_are_inputs_and_not_scored():
    rows = PairCollator(PAIRS, CONFIG, PROMPT_OF)([1])
    logits, scored = teacher_forced(model(), rows)
    assert scored.sum(dim=1).tolist() == [5, 3] and not scored[:, :3].any()
    assert logits[0].shape[0] == 8


def test_training_raises_the_margin_of_the_chosen_sides():
    learner = task(config(loop={"steps": 12}, pairs_per_batch=4))
    with torch.no_grad():
        before = values(learner.losses(learner.model, learner.collate(range(4))))
    for step in range(12):
        learner.train_step(step)
    with torch.no_grad():
        after = values(learner.losses(learner.model, learner.collate(range(4))))
    assert float(after["margin"]) > float(before["margin"]) + 0.2
    assert float(after["chosen_nll"]) < float(before["chosen_nll"])


def test_flux_of_the_chosen_side_is_equation_1():
    learner = task(config(flux={"beta": 0.7, "epsilon": 0.3}), pairs=PAIRS[:1])
    rows = learner.collate([0])
    with torch.no_grad():
        flux = values(learner.losses(learner.model, rows))["flux"]
        logits, scored = teacher_forced(learner.model, rows)
    count = int(scored[0].sum())
    log_p = logits[0][:count, 0].log_softmax(dim=-1)
    coarse = rows.patches[0, :count, 0].tolist()
    by_hand = [0.7 / (0.3 - float(log_p[t, coarse[t - 1]])) for t in range(1, count)]
    assert float(flux) == pytest.approx(np.mean(by_hand), abs=1e-6)


def test_the_initial_model_is_left_as_it_was():
    base = model()
    before = {name: value.clone() for name, value in base.state_dict().items()}
    OrpoTask(config(), PAIRS, base, PROMPT_OF, TOKENIZER).train_step(0)
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())


def test_the_loss_of_dpo_equals_the_one_written_out():
    rng = np.random.default_rng(1)
    chosen, rejected, first, second = -rng.uniform(0.05, 6, (4, 5))
    beta, weight = 2.5, 0.3
    sides = [torch.tensor(values) for values in (chosen, rejected, first, second)]
    loss = dpo_loss(sides[0], sides[1], (sides[2], sides[3]), beta, weight)
    margins = (chosen - first) - (rejected - second)
    by_hand = np.mean(np.log(1 + np.exp(-beta * margins)))
    assert values(loss)["preference_loss"].item() == pytest.approx(by_hand, abs=1e-9)
    assert total(loss).item() == pytest.approx(by_hand - weight * chosen.mean(), abs=1e-9)
    assert values(loss)["margin"].item() == pytest.approx(margins.mean(), abs=1e-9)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_dpo_begins_at_the_initial_model_and_moves_the_chosen_sides_ahead_of_it(dropout: float):
    base = Mars6(CONFIG.model_copy(update={"dropout": dropout}))
    base.load_state_dict(model().state_dict())
    learner = OrpoTask(config(dpo_beta=20.0, likelihood_weight=0.1), PAIRS, base, PROMPT_OF, TOKENIZER)
    first, *_, last = [learner.train_step(step) for step in range(8)]
    assert float(first["margin"]) == pytest.approx(0.0, abs=1e-6)
    assert float(first["preference_loss"]) == pytest.approx(math.log(2), abs=1e-5)
    assert float(last["margin"]) > 0.01 and float(last["preference_loss"]) < math.log(2)


def divergence_in_prefixes(learner: OrpoTask) -> float:
    """Of the trained model from the initial one, written out: nats a token of all patches that are given."""
    total, tokens = 0.0, 0
    for one in PAIRS:
        batch = learner.collate([PAIRS.index(one)])
        every = torch.ones_like(batch.scored_mask)
        with torch.no_grad():
            after, kept = teacher_forced(learner.model, batch, every)
            before, _ = teacher_forced(learner.initial, batch, every)
        given = ~batch.scored_mask[kept]
        for now, then in zip(after, before, strict=True):
            p, q = then[given].softmax(-1), now[given].softmax(-1)
            total, tokens = total + float((p * (p / q).log()).sum()), tokens + p.shape[0] * p.shape[1]
    return total / tokens


def test_the_distribution_in_prefixes_stays_nearer_to_the_initial_one_where_its_divergence_has_a_weight():
    moved = []
    for weight in (0.0, 5.0):
        learner = task(config(dpo_beta=20.0, likelihood_weight=0.1, prefix_kl_weight=weight, prefix_kl_ratio=1.0))
        logged = [learner.train_step(step) for step in range(8)]
        moved.append(divergence_in_prefixes(learner))
    assert float(logged[0]["prefix_kl"]) == pytest.approx(0.0, abs=1e-6)
    assert moved[1] < 0.75 * moved[0]


def test_the_divergence_of_a_batch_is_that_of_its_prefixes():
    learner = task(config(dpo_beta=20.0, prefix_kl_weight=1.0, prefix_kl_ratio=1.0, pairs_per_batch=4))
    for step in range(3):
        learner.train_step(step)
    losses = values(learner.losses(learner.model, learner.collate(range(4))))
    assert float(losses["prefix_kl"]) == pytest.approx(divergence_in_prefixes(learner), rel=1e-4)


def test_embeddings_of_letters_stay_where_those_of_phones_have_a_rate_of_their_own():
    learner = task(config(phone_embedding_lr_scale=25.0))
    before = learner.model.encoder.text_embedding.weight.detach().clone()
    learner.train_step(0)
    after = learner.model.encoder.text_embedding.weight.detach()
    letters = len(before) - len(PHONE_TOKENS)
    assert torch.equal(before[:letters], after[:letters])


def test_embeddings_of_phones_alone_are_trained_and_texts_without_them_are_spoken_as_before():
    settings = config(train_phone_embeddings_alone=True, phone_embedding_lr_scale=25.0)
    learner = OrpoTask(settings, PAIRS, model(), replace(SPEECH, phones=PhoneUse.KNOWN).prompt, TOKENIZER)
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    for step in range(2):
        learner.train_step(step)
    for weights in (learner.model.state_dict(), learner.ema.state_dict()):
        changed = {name for name, value in weights.items() if not torch.equal(value, before[name])}
        assert changed == {"encoder.text_embedding.weight"}
        rows = (weights["encoder.text_embedding.weight"] != before["encoder.text_embedding.weight"]).any(1)
        assert rows.any() and not rows[: -len(PHONE_TOKENS)].any()


def test_batches_go_through_all_pairs_epoch_by_epoch():
    seen = [index for batch in range(7) for index in pairs_of_batch(5, 3, seed=1, batch=batch)]
    assert [sorted(seen[start : start + 5]) for start in (0, 5, 10, 15)] == [list(range(5))] * 4
    assert seen[:5] != seen[5:10] and pairs_of_batch(5, 3, 1, 4) == seen[12:15]


def test_resumed_training_equals_uninterrupted_training(tmp_path: Path):
    validated: list[int] = []

    def validate_model(model: Mars6, step: int) -> dict[str, float]:
        validated.append(step)
        return {"cer": 0.5}

    whole = task(validate_model=validate_model)
    run(whole, whole.config.loop, tmp_path / "whole")
    assert validated == [3]
    first = task()
    first.train_step(0)
    save(first, tmp_path / "cut", 1)
    second = task()
    assert restore(second, tmp_path / "cut") == 1
    run(second, second.config.loop, tmp_path / "cut")
    for name, value in whole.ema.state_dict().items():
        assert torch.equal(value, second.ema.state_dict()[name])


def test_a_preference_run_is_loaded_like_any_training(tmp_path: Path):
    learner = task()
    open_orpo_run(tmp_path, learner.config, learner.model.config, TOKENIZER, {"pairs": "1"})
    save(learner, tmp_path, 1)
    assert latest(tmp_path) is not None
    for name, value in trained_model(tmp_path).state_dict().items():
        assert torch.equal(value, learner.ema.state_dict()[name])
    assert BPE.load(tmp_path / "tokenizer.json").encode("The cat.") == TOKENIZER.encode("The cat.")


def test_a_run_folder_is_resumed_with_the_same_pairs_only(tmp_path: Path):
    open_orpo_run(tmp_path, config(), CONFIG, TOKENIZER, {"pairs": "1", "model": "2"})
    open_orpo_run(tmp_path, config(), CONFIG, TOKENIZER, {"pairs": "1", "model": "2"})
    with pytest.raises(ConfigError, match=r"was started with another pairs .* choose a new folder"):
        open_orpo_run(tmp_path, config(), CONFIG, TOKENIZER, {"pairs": "3", "model": "2"})
