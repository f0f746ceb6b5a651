"""The loop: limits, ends, repetition, independence. A function of the history stands in for the model."""

import numpy as np
import pytest
from history_engine import EOS, C, HistoryEngine, prompt

from marstts.generation.loop import RunningBatch, generate, recent_codes, sample_positions, step
from marstts.generation.request import Limits, Request, SamplingConfig, StopReason


def likes(code: int, strength: float = 50.0) -> np.ndarray:
    logits = np.zeros(C + 1)
    logits[code] = strength
    return logits


def run(engine, prompts, *, top_p=0.0, limits=None, seeds=None, sampling=None):
    n = len(prompts)
    return generate(
        engine, prompts, top_p=[top_p] * n, limits=limits or [Limits(0, 9)] * n,
        rngs=[np.random.default_rng(s) for s in (seeds or range(n))],
        sampling=sampling or SamplingConfig(ras_max_ratio=1.0),
    )  # fmt: skip


def test_tokens_carry_the_offset_of_their_level():
    engine = HistoryEngine(lambda row, history, position: likes(C if history == 2 else 2 * position + history))
    [result] = run(engine, [prompt(0)])
    assert result.stop is StopReason.EOS
    assert result.tokens.tolist() == [[0, 18, 20, 38, 40, 42, 44], [1, 19, 21, 39, 41, 43, 45]]


@pytest.mark.parametrize("position", range(7))
def test_end_of_speech_in_any_position_drops_the_unfinished_patch(position):
    engine = HistoryEngine(lambda row, history, p: likes(C if history == 3 and p == position else 5))
    [result] = run(engine, [prompt(0)])
    assert result.tokens.shape == (3, 7) and result.stop is StopReason.EOS and (result.tokens < EOS).all()


def test_end_of_speech_is_forbidden_until_the_minimum_is_complete():
    engine = HistoryEngine(lambda row, history, p: likes(C))
    results = run(engine, [prompt(0), prompt(1), prompt(2, prefix=4)], limits=[Limits(m, 9) for m in (0, 3, 2)])
    assert [len(r.tokens) for r in results] == [0, 3, 2]  # the prefix does not count
    assert all(r.stop is StopReason.EOS for r in results)
    assert results[0].tokens.shape == (0, 7)


def test_generation_stops_at_the_patch_limit():
    engine = HistoryEngine(lambda row, history, p: likes(3))
    results = run(engine, [prompt(0), prompt(1, prefix=2), prompt(2)], limits=[Limits(0, m) for m in (4, 2, 0)])
    assert [len(r.tokens) for r in results] == [4, 2, 0]
    assert all(r.stop is StopReason.MAX_PATCHES for r in results)


def test_finished_rows_leave_and_results_keep_their_order():
    engine = HistoryEngine(lambda row, history, p: likes(C if history == row else row))
    results = run(engine, [prompt(3), prompt(1), prompt(2)])
    assert [len(r.tokens) for r in results] == [3, 1, 2]
    assert [r.tokens[0, 0] for r in results] == [3, 1, 2]
    assert engine.batches == [(3, 1, 2), (3, 1, 2), (3, 2), (3,)]


def test_a_repeated_l0_code_is_drawn_again_from_the_full_distribution():
    engine = HistoryEngine(lambda row, history, p: likes(7, strength=2.0))
    plain = run(engine, [prompt(0)], limits=[Limits(9, 9)])[0].tokens
    aware = run(engine, [prompt(0)], limits=[Limits(9, 9)], sampling=SamplingConfig(ras_max_ratio=0.09))[0].tokens
    assert (plain[:, 0] == 7).all()
    assert aware[0, 0] == 7 and len(set(aware[:, 0])) > 3
    assert (aware[:, 1:] == plain[:, 1:]).all()  # only L0 is watched


def test_the_prefix_counts_as_history_of_repetition():
    engine = HistoryEngine(lambda row, history, p: likes(0, strength=1.0))
    sampling = SamplingConfig(ras_max_ratio=0.09)
    firsts = [
        run(engine, [prompt(0, prefix=3)], limits=[Limits(1, 1)], seeds=[s], sampling=sampling)[0].tokens[0, 0]
        for s in range(20)
    ]
    assert len(set(firsts)) > 5  # greedy would always give 0, but the prefix is all 0


def test_results_do_not_depend_on_other_rows():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(4, 30, 7, C + 1)) * 2
    engine = HistoryEngine(lambda row, history, p: table[row, history, p])
    prompts = [prompt(0), prompt(1, prefix=5), prompt(2), prompt(3, prefix=1)]
    options = {"top_p": 0.8, "sampling": SamplingConfig()}
    limits = [Limits(m, 20) for m in (0, 2, 5, 9)]
    together = run(engine, prompts, limits=limits, seeds=[5, 6, 7, 8], **options)
    for index, result in enumerate(together):
        [alone] = run(engine, [prompts[index]], limits=[limits[index]], seeds=[5 + index], **options)
        assert np.array_equal(alone.tokens, result.tokens) and alone.stop is result.stop
    assert len({len(r.tokens) for r in together}) > 1


def test_rows_come_in_and_leave_between_patches():
    engine = HistoryEngine(lambda row, history, p: likes(row))
    requests = [
        Request(prompt(n), 0.0, Limits(0, length), np.random.default_rng(n), SamplingConfig(ras_max_ratio=1.0))
        for n, length in enumerate((3, 9, 2, 0))
    ]
    first = step(engine, RunningBatch(), requests[:1])
    second = step(engine, first, requests[1:])
    third = step(engine, second)
    fourth = step(engine, third, cancelled={requests[1]})
    assert [len(row.patches) for row in first.rows] == [1]  # a value: what came later changed nothing
    assert [(row.request, len(row.patches)) for row in second.rows] == list(zip(requests, (2, 1, 1, 0), strict=True))
    assert second.ended == second.rows[3:] and third.ended == (third.rows[0], third.rows[2])
    assert fourth.rows == () and engine.batches == [(0,), (0, 1, 2), (0, 1, 2)]


def test_every_row_has_its_own_window_of_repetition():
    """A window of three patches holds the last L0 code, not the one of five patches ago."""
    engine = HistoryEngine(lambda row, history, p: likes((4, 5, 6, 7, 8)[history % 5], strength=2.0))
    requests = [
        Request(prompt(n), 0.0, Limits(30, 30), np.random.default_rng(7), SamplingConfig(ras_window=window))
        for n, window in enumerate((3, 10))
    ]
    batch = step(engine, RunningBatch(), requests)
    while batch.active:
        batch = step(engine, batch)
    narrow, wide = (np.array(row.patches)[:, 0] for row in batch.rows)
    assert len(set(narrow)) == 5 and len(set(wide)) > 5


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others():
    engine = HistoryEngine(lambda row, history, p: np.zeros(C + 1))
    results = [run(engine, [prompt(0)], top_p=1.0, limits=[Limits(4, 4)], seeds=[s])[0].tokens for s in (1, 1, 2)]
    assert np.array_equal(results[0], results[1]) and not np.array_equal(results[0], results[2])


def test_no_prompts_give_no_results():
    assert run(HistoryEngine(lambda *_: likes(1)), []) == []


def test_recent_codes_are_the_last_of_each_history():
    assert recent_codes([[], [4], [1, 2, 3, 4]], 3).tolist() == [[-1, -1, -1], [-1, -1, 4], [2, 3, 4]]


def test_an_engine_that_samples_patches_is_called_for_whole_patches():
    class Quick(HistoryEngine):
        def sample_patch(self, state, draws):
            self.draws.append(draws)
            return sample_positions(self, state, draws)

    logits = np.random.default_rng(0).normal(size=(9, 7, C + 1))
    script = lambda row, history, position: logits[history, position]  # noqa: E731
    quick, slow = Quick(script), HistoryEngine(script)
    quick.draws = []
    sampling, limits = SamplingConfig(ras_window=3), [Limits(2, 9), Limits(5, 9)]
    given = [prompt(0), prompt(0, prefix=2)]
    ours, theirs = (run(engine, given, top_p=0.9, limits=limits, sampling=sampling) for engine in (quick, slow))
    assert [r.tokens.tolist() for r in ours] == [r.tokens.tolist() for r in theirs]
    first = quick.draws[0]
    assert first.uniforms.shape == (2, 7, 2) and first.top_p.tolist() == [0.9] * 2
    assert first.recent.tolist() == [[-1, -1, -1], [-1, 0, 0]] and first.max_ratio.tolist() == [0.09] * 2
    assert [draws.may_end[0] for draws in quick.draws[:3]] == [False, False, True]
