"""Preference losses, exact: against a computation written out here, and against the generator's own steps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from marstts.data.pairs import Pair, PairLine, SideLine
from marstts.engine.torch import TorchEngine
from marstts.errors import ConfigError
from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import Limits, SamplingConfig, generate
from marstts.mars6.model import Mars6
from marstts.mars6.patches import eos_patch, patchify, unpatchify
from marstts.mars6.prompt import SPECIAL_TOKENS, Prompt
from marstts.text.bpe import BPE
from marstts.training import orpo
from marstts.training.loop import latest, restore, run, save
from marstts.training.orpo import (
    PairCollator,
    TuneConfig,
    TuneTask,
    mean_log_probabilities,
    open_tuning,
    orpo_loss,
    pairs_of_batch,
    teacher_forced,
    token_log_probabilities,
)
from marstts.training.pretrain import trained_model

TOKENIZER = BPE.train(["the cat sat on the mat", "she sells sea shells"], 270, SPECIAL_TOKENS)
CONFIG = Mars6Config(
    text_vocab_size=270, codebook_size=11, width=24, encoder_layers=1, global_layers=2, local_layers=1, heads=2,
    local_heads=3, identity_size=5, style_size=4,
)  # fmt: skip
QUALITY = 24_000


def codes(rng: np.random.Generator, patches: int):
    return tuple(rng.integers(0, CONFIG.codebook_size, patches * count) for count in CONFIG.patch_layout)


def pair(seed: int, chosen: int, rejected: int, prefix: int = 0, ended: bool = True) -> Pair:
    rng = np.random.default_rng(seed)
    line = PairLine(
        id=f"pair-{seed}", scheme="truth_vs_worst", text="The cat sat."[: 5 + seed], speaker="anna", codec="toy",
        transcript="She sells." if prefix else None, identity_encoder="i", style_encoder="s", row=seed,
        chosen=SideLine(source="recording", patches=chosen, ended=True),
        rejected=SideLine(source="cycle x", patches=rejected, ended=ended),
    )  # fmt: skip
    embeddings = rng.standard_normal(5).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    return Pair(line, *embeddings, codes(rng, prefix), codes(rng, chosen), codes(rng, rejected))


PAIRS = [pair(0, 3, 5), pair(1, 4, 2, prefix=3), pair(2, 6, 6, ended=False), pair(3, 2, 7, prefix=1)]


def model() -> Mars6:
    torch.manual_seed(3)
    return Mars6(CONFIG).eval()


def config(**changes) -> TuneConfig:
    values = {
        "loop": {"steps": 3, "log_every": 1, "validate_every": 3},
        "optimizer": {"learning_rate": 1e-2, "warmup_steps": 0, "average_decay": 0.5},
        "pairs_per_batch": 2, "precision": "fp32", "device": "cpu",
    }  # fmt: skip
    return TuneConfig.model_validate(values | changes)


def task(settings: TuneConfig | None = None, judge=None, pairs=PAIRS) -> TuneTask:
    return TuneTask(settings or config(), pairs, model(), TOKENIZER, quality=QUALITY, judge=judge)


def values_of(pairs: list[Pair], of: Mars6) -> torch.Tensor:
    """(2 B,) mean log-probabilities: chosen sides, then rejected ones."""
    rows = PairCollator(pairs, TOKENIZER, CONFIG, QUALITY)(range(len(pairs)))
    if next(of.parameters()).dtype is torch.float64:
        rows = replace(rows, identity=rows.identity.double(), style=rows.style.double())
    logits, scored = teacher_forced(of, rows)
    return mean_log_probabilities(token_log_probabilities(logits, rows.patches[scored], CONFIG), scored)


def test_loss_and_gradient_equal_those_written_out():
    rng = np.random.default_rng(0)
    chosen, rejected = -rng.uniform(0.05, 6, (2, 5))
    weight = 0.37
    first, second = (torch.tensor(values, requires_grad=True) for values in (chosen, rejected))
    loss = orpo_loss(first, second, weight)
    loss.total.backward()

    total, chosen_gradient, rejected_gradient = 0.0, [], []
    for c, r in zip(chosen, rejected, strict=True):
        p, q = math.exp(c), math.exp(r)
        ratio = (p / (1 - p)) / (q / (1 - q))
        sigmoid = ratio / (1 + ratio)
        total += (-c - weight * math.log(sigmoid)) / 5
        chosen_gradient.append((-1 - weight * (1 - sigmoid) / (1 - p)) / 5)
        rejected_gradient.append(weight * (1 - sigmoid) / (1 - q) / 5)
    assert loss.total.item() == pytest.approx(total, abs=1e-9)
    np.testing.assert_allclose(first.grad, chosen_gradient, atol=1e-6)
    np.testing.assert_allclose(second.grad, rejected_gradient, atol=1e-6)
    assert loss.preferred.item() == np.mean(chosen > rejected)


def test_loss_and_gradient_of_the_whole_model_equal_those_of_sides_scored_one_by_one():
    exact, alone = model(), model()
    chosen, rejected = values_of(PAIRS, exact).chunk(2)
    loss = orpo_loss(chosen, rejected, 0.5).total
    loss.backward()

    collate = PairCollator(PAIRS, TOKENIZER, CONFIG, QUALITY)
    total = torch.zeros(())
    for index in range(len(PAIRS)):
        rows = collate([index])
        odds, means = [], []
        for side in (0, 1):
            start, end = int(rows.prefix_lengths[side]), int(rows.patch_lengths[side])
            logits = alone(
                rows.text_ids[:1], rows.text_lengths[:1], rows.identity[:1], rows.style[:1],
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
        total = total + (-means[0] - 0.5 * torch.log(ratio / (1 + ratio))) / len(PAIRS)
    total.backward()
    assert loss.item() == pytest.approx(total.item(), abs=1e-6)
    for (name, one), other in zip(exact.named_parameters(), alone.parameters(), strict=True):
        if one.grad is not None or other.grad is not None:
            np.testing.assert_allclose(one.grad, other.grad, atol=1e-6, err_msg=name)


def steps_of_the_generator(engine: TorchEngine, prompt: Prompt, patches: np.ndarray) -> float:
    """Mean log-probability of the tokens, asked of the engine one by one."""
    state, total = engine.start([prompt]), 0.0
    for patch in patches:
        for position in range(len(patch)):
            logits, state = engine.local_logits(state, patch[None, :position])
            scores = logits[0].astype(np.float64)
            level = CONFIG.position_levels[position]
            code = CONFIG.codebook_size if patch[position] == CONFIG.eos else patch[position] - level * 11
            total += scores[code] - scores.max() - np.log(np.exp(scores - scores.max()).sum())
        state = engine.append(state, patch[None])
    return total / patches.size


def test_log_probabilities_are_the_generators_own():
    speaking = model()
    engine = TorchEngine(speaking)
    collate = PairCollator(PAIRS, TOKENIZER, CONFIG, QUALITY)
    takes = []
    for index, one in enumerate(PAIRS):
        prefix = patchify(one.prefix, CONFIG.patch_layout, CONFIG.codebook_size)
        prompt = Prompt(collate.text_ids(one), one.identity, one.style, prefix)
        rng = np.random.default_rng(index)
        [take] = generate(
            engine, [prompt], top_p=[1.0], limits=[Limits(2 + index, 5)], rngs=[rng], sampling=SamplingConfig()
        )
        said = [take.tokens, eos_patch(CONFIG)] if take.stop.value == "end of speech" else [take.tokens]
        takes.append((prompt, take, np.concatenate(said)))
    spoken = []
    for one, (_, take, _) in zip(PAIRS, takes, strict=True):
        side = SideLine(source="cycle", patches=len(take.tokens), ended=take.stop.value == "end of speech")
        said = unpatchify(take.tokens, CONFIG.patch_layout, CONFIG.codebook_size)
        spoken.append(replace(one, line=one.line.model_copy(update={"rejected": side}), rejected=said))
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
            replace(one, line=one.line.model_copy(update={"rejected": SideLine(source="x", patches=20, ended=True)}))
            for one in long
        ]
        chosen_beside_long = values_of(long, exact).chunk(2)[0]
    np.testing.assert_allclose(together, alone, atol=1e-9)
    np.testing.assert_allclose(chosen_beside_long, together.chunk(2)[0], atol=1e-9)


def test_a_take_that_was_cut_off_is_not_taught_to_end():
    collate = PairCollator(PAIRS, TOKENIZER, CONFIG, QUALITY)
    rows = collate([2])
    assert rows.patch_lengths.tolist() == [7, 6] and (rows.patches[0, 6] == CONFIG.eos).all()


def test_prefixes_are_heard_but_not_scored():
    rows = PairCollator(PAIRS, TOKENIZER, CONFIG, QUALITY)([1])
    logits, scored = teacher_forced(model(), rows)
    assert scored.sum(dim=1).tolist() == [5, 3] and not scored[:, :3].any()
    assert logits[0].shape[0] == 8


def test_tuning_prefers_the_chosen_sides_more_and_more():
    learner = task(config(loop={"steps": 12}, pairs_per_batch=4))
    with torch.no_grad():
        before = learner.score(learner.model, learner.collate(range(4)))[0]
    for step in range(12):
        learner.train_step(step)
    with torch.no_grad():
        after = learner.score(learner.model, learner.collate(range(4)))[0]
    assert float(after.margin) > float(before.margin) + 0.2 and float(after.likelihood) < float(before.likelihood)


@pytest.mark.parametrize(
    "changes", [{"odds_weight": 2.0}, {"flux": {"beta": 3.0}}, {"flux": {"beta": 1, "epsilon": 4}}]
)
def test_every_weight_moves_the_loss(changes: dict):
    plain, changed = (task(config(**some)).train_step(0) for some in ({"flux": {"beta": 0.5}}, changes))
    assert float(plain["loss"]) != pytest.approx(float(changed["loss"]), abs=1e-4)


def test_flux_of_the_chosen_side_is_equation_1():
    learner = task(config(flux={"beta": 0.7, "epsilon": 0.3}), pairs=PAIRS[:1])
    rows = learner.collate([0])
    with torch.no_grad():
        _, flux = learner.score(learner.model, rows)
        logits, scored = teacher_forced(learner.model, rows)
    count = int(scored[0].sum())
    log_p = logits[0][:count, 0].log_softmax(dim=-1)
    coarse = rows.patches[0, :count, 0].tolist()
    by_hand = [0.7 / (0.3 - float(log_p[t, coarse[t - 1]])) for t in range(1, count)]
    assert float(flux) == pytest.approx(np.mean(by_hand), abs=1e-6)


def test_the_base_is_left_as_it_was():
    base = model()
    before = {name: value.clone() for name, value in base.state_dict().items()}
    TuneTask(config(), PAIRS, base, TOKENIZER, quality=QUALITY).train_step(0)
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())


def test_batches_go_through_all_pairs_epoch_by_epoch():
    seen = [index for batch in range(7) for index in pairs_of_batch(5, 3, seed=1, batch=batch)]
    assert [sorted(seen[start : start + 5]) for start in (0, 5, 10, 15)] == [list(range(5))] * 4
    assert seen[:5] != seen[5:10] and pairs_of_batch(5, 3, 1, 4) == seen[12:15]


def test_processes_share_out_the_pairs_of_a_step(monkeypatch: pytest.MonkeyPatch):
    def voices(pairs_per_batch: int, rank: int, world_size: int) -> list[list[float]]:
        monkeypatch.setattr(orpo, "rank", lambda: rank)
        monkeypatch.setattr(orpo, "world_size", lambda: world_size)
        learner = task(config(pairs_per_batch=pairs_per_batch), pairs=many)
        return learner.training_rows(1).identity.chunk(2)[0].tolist()

    many = [pair(seed, 2, 3) for seed in range(9)]
    assert voices(2, 0, 2) + voices(2, 1, 2) == voices(4, 0, 1)
    assert voices(2, 0, 2) != voices(2, 1, 2)


def test_resumed_tuning_equals_uninterrupted_tuning(tmp_path: Path):
    heard: list[int] = []

    def judge(model: Mars6, step: int) -> dict[str, float]:
        heard.append(step)
        return {"cer": 0.5}

    whole = task(judge=judge)
    run(whole, whole.config.loop, tmp_path / "whole", lambda line: None)
    assert heard == [3]
    first = task()
    first.train_step(0)
    save(first, tmp_path / "cut", 1)
    second = task()
    assert restore(second, tmp_path / "cut") == 1
    run(second, second.config.loop, tmp_path / "cut", lambda line: None)
    for name, value in whole.average.state_dict().items():
        assert torch.equal(value, second.average.state_dict()[name])


def test_a_tuning_is_exported_like_any_training(tmp_path: Path):
    learner = task()
    open_tuning(tmp_path, learner.config, learner.model, TOKENIZER, {"pairs": "1"})
    save(learner, tmp_path, 1)
    assert latest(tmp_path) is not None
    for name, value in trained_model(tmp_path).state_dict().items():
        assert torch.equal(value, learner.average.state_dict()[name])
    assert BPE.load(tmp_path / "tokenizer.json").encode("The cat.") == TOKENIZER.encode("The cat.")


def test_a_tuning_goes_on_with_the_same_pairs_only(tmp_path: Path):
    open_tuning(tmp_path, config(), model(), TOKENIZER, {"pairs": "1", "model": "2"})
    open_tuning(tmp_path, config(), model(), TOKENIZER, {"pairs": "1", "model": "2"})
    with pytest.raises(ConfigError, match=r"begun with another pairs; choose a new --output"):
        open_tuning(tmp_path, config(), model(), TOKENIZER, {"pairs": "3", "model": "2"})
