"""The loop: limits, ends, repetition, independence. A scripted stepper stands in for the model."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import (
    Batch,
    Job,
    Limits,
    SamplingConfig,
    StopReason,
    generate,
    recent_codes,
    sample_positions,
    step,
)
from marstts.mars6.prompt import Prompt

CONFIG = Mars6Config(codebook_size=16, width=8, heads=2, local_heads=2)
C, EOS = 16, 48


@dataclass(frozen=True)
class Script:
    """State of the scripted stepper: which row of the script, how many patches heard, tokens heard in this patch."""

    rows: tuple[int, ...]
    heard: tuple[tuple[tuple[int, ...], ...], ...]
    inside: int = 0


class ScriptedStepper:
    """Logits are a fixed function of (row's script, patches heard, position); checks how it is called."""

    def __init__(self, logits):
        self.config, self.logits, self.companies = CONFIG, logits, []

    def start(self, prompts):
        return Script(
            tuple(int(p.text_ids[0]) for p in prompts), tuple(tuple(map(tuple, p.prefix_tokens)) for p in prompts)
        )

    def local_logits(self, state, tokens):
        position = tokens.shape[1]
        assert tokens.shape[0] == len(state.rows) and state.inside == position
        if position == 0:
            self.companies.append(state.rows)
        rows = [self.logits(row, len(heard), position) for row, heard in zip(state.rows, state.heard, strict=True)]
        return np.stack(rows).astype(np.float32), replace(state, inside=position + 1)

    def append(self, state, patches):
        assert patches.shape == (len(state.rows), 7) and (patches != EOS).all()
        heard = tuple((*h, tuple(p)) for h, p in zip(state.heard, patches.tolist(), strict=True))
        return Script(state.rows, heard)

    def select(self, state, rows):
        return Script(tuple(state.rows[r] for r in rows), tuple(state.heard[r] for r in rows), state.inside)

    def join(self, states):
        assert all(state.inside == 0 for state in states)
        return Script(tuple(r for s in states for r in s.rows), tuple(h for s in states for h in s.heard))


def prompt(row: int, prefix: int = 0) -> Prompt:
    levels = np.array(CONFIG.position_levels) * C
    return Prompt(
        np.array([row]), np.zeros(3, np.float32), np.zeros(4, np.float32), np.zeros((prefix, 7), np.int64) + levels
    )


def likes(code: int, strength: float = 50.0) -> np.ndarray:
    logits = np.zeros(C + 1)
    logits[code] = strength
    return logits


def run(stepper, prompts, *, top_p=0.0, limits=None, seeds=None, sampling=None):
    n = len(prompts)
    return generate(
        stepper, prompts, top_p=[top_p] * n, limits=limits or [Limits(0, 9)] * n,
        rngs=[np.random.default_rng(s) for s in (seeds or range(n))],
        sampling=sampling or SamplingConfig(ras_max_ratio=1.0),
    )  # fmt: skip


def test_tokens_carry_the_offset_of_their_level():
    stepper = ScriptedStepper(lambda row, heard, position: likes(C if heard == 2 else 2 * position + heard))
    [result] = run(stepper, [prompt(0)])
    assert result.stop is StopReason.EOS
    assert result.tokens.tolist() == [[0, 18, 20, 38, 40, 42, 44], [1, 19, 21, 39, 41, 43, 45]]


@pytest.mark.parametrize("position", range(7))
def test_end_of_speech_in_any_position_drops_the_unfinished_patch(position):
    stepper = ScriptedStepper(lambda row, heard, p: likes(C if heard == 3 and p == position else 5))
    [result] = run(stepper, [prompt(0)])
    assert result.tokens.shape == (3, 7) and result.stop is StopReason.EOS and (result.tokens < EOS).all()


def test_end_of_speech_is_forbidden_until_the_minimum_is_complete():
    stepper = ScriptedStepper(lambda row, heard, p: likes(C))
    results = run(stepper, [prompt(0), prompt(1), prompt(2, prefix=4)], limits=[Limits(m, 9) for m in (0, 3, 2)])
    assert [len(r.tokens) for r in results] == [0, 3, 2]  # the prefix does not count
    assert all(r.stop is StopReason.EOS for r in results)
    assert results[0].tokens.shape == (0, 7)


def test_generation_stops_at_the_patch_limit():
    stepper = ScriptedStepper(lambda row, heard, p: likes(3))
    results = run(stepper, [prompt(0), prompt(1, prefix=2), prompt(2)], limits=[Limits(0, m) for m in (4, 2, 0)])
    assert [len(r.tokens) for r in results] == [4, 2, 0]
    assert all(r.stop is StopReason.MAX_PATCHES for r in results)


def test_finished_rows_leave_and_results_keep_their_order():
    stepper = ScriptedStepper(lambda row, heard, p: likes(C if heard == row else row))
    results = run(stepper, [prompt(3), prompt(1), prompt(2)])
    assert [len(r.tokens) for r in results] == [3, 1, 2]
    assert [r.tokens[0, 0] for r in results] == [3, 1, 2]
    assert stepper.companies == [(3, 1, 2), (3, 1, 2), (3, 2), (3,)]


def test_a_repeated_l0_code_is_drawn_again_from_the_full_distribution():
    stepper = ScriptedStepper(lambda row, heard, p: likes(7, strength=2.0))
    plain = run(stepper, [prompt(0)], limits=[Limits(9, 9)])[0].tokens
    aware = run(stepper, [prompt(0)], limits=[Limits(9, 9)], sampling=SamplingConfig(ras_max_ratio=0.09))[0].tokens
    assert (plain[:, 0] == 7).all()
    assert aware[0, 0] == 7 and len(set(aware[:, 0])) > 3
    assert (aware[:, 1:] == plain[:, 1:]).all()  # only L0 is watched


def test_the_prefix_counts_as_history_of_repetition():
    stepper = ScriptedStepper(lambda row, heard, p: likes(0, strength=1.0))
    sampling = SamplingConfig(ras_max_ratio=0.09)
    firsts = [
        run(stepper, [prompt(0, prefix=3)], limits=[Limits(1, 1)], seeds=[s], sampling=sampling)[0].tokens[0, 0]
        for s in range(20)
    ]
    assert len(set(firsts)) > 5  # greedy would always say 0, but 0 is all the prefix says


def test_results_do_not_depend_on_company():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(4, 30, 7, C + 1)) * 2
    stepper = ScriptedStepper(lambda row, heard, p: table[row, heard, p])
    prompts = [prompt(0), prompt(1, prefix=5), prompt(2), prompt(3, prefix=1)]
    options = {"top_p": 0.8, "sampling": SamplingConfig()}
    limits = [Limits(m, 20) for m in (0, 2, 5, 9)]
    together = run(stepper, prompts, limits=limits, seeds=[5, 6, 7, 8], **options)
    for index, result in enumerate(together):
        [alone] = run(stepper, [prompts[index]], limits=[limits[index]], seeds=[5 + index], **options)
        assert np.array_equal(alone.tokens, result.tokens) and alone.stop is result.stop
    assert len({len(r.tokens) for r in together}) > 1


def test_rows_come_in_and_leave_between_patches():
    stepper = ScriptedStepper(lambda row, heard, p: likes(row))
    jobs = [
        Job(prompt(n), 0.0, Limits(0, length), np.random.default_rng(n), SamplingConfig(ras_max_ratio=1.0))
        for n, length in enumerate((3, 9, 2, 0))
    ]
    first = step(stepper, Batch(), jobs[:1])
    second = step(stepper, first, jobs[1:])
    third = step(stepper, second)
    fourth = step(stepper, third, leaving={jobs[1]})
    assert [len(row.patches) for row in first.rows] == [1]  # a value: what came later changed nothing
    assert [(row.job, len(row.patches)) for row in second.rows] == list(zip(jobs, (2, 1, 1, 0), strict=True))
    assert second.ended == second.rows[3:] and third.ended == (third.rows[0], third.rows[2])
    assert fourth.rows == () and stepper.companies == [(0,), (0, 1, 2), (0, 1, 2)]


def test_every_row_has_its_own_window_of_repetition():
    """Of two L0 codes, one just said and one said five patches ago, a window of three sees only the first."""
    stepper = ScriptedStepper(lambda row, heard, p: likes((4, 5, 6, 7, 8)[heard % 5], strength=2.0))
    jobs = [
        Job(prompt(n), 0.0, Limits(30, 30), np.random.default_rng(7), SamplingConfig(ras_window=window))
        for n, window in enumerate((3, 10))
    ]
    batch = step(stepper, Batch(), jobs)
    while batch.speaking:
        batch = step(stepper, batch)
    narrow, wide = (np.array(row.patches)[:, 0] for row in batch.rows)
    assert len(set(narrow)) == 5 and len(set(wide)) > 5


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others():
    stepper = ScriptedStepper(lambda row, heard, p: np.zeros(C + 1))
    results = [run(stepper, [prompt(0)], top_p=1.0, limits=[Limits(4, 4)], seeds=[s])[0].tokens for s in (1, 1, 2)]
    assert np.array_equal(results[0], results[1]) and not np.array_equal(results[0], results[2])


def test_nothing_to_say_gives_nothing():
    assert run(ScriptedStepper(lambda *_: likes(1)), []) == []


def test_recent_codes_are_the_last_of_each_history():
    assert recent_codes([[], [4], [1, 2, 3, 4]], 3).tolist() == [[-1, -1, -1], [-1, -1, 4], [2, 3, 4]]


def test_an_engine_with_its_own_way_to_a_patch_is_asked_for_whole_patches():
    class Quick(ScriptedStepper):
        def sample_patch(self, state, draws):
            self.draws.append(draws)
            return sample_positions(self, state, draws)

    logits = np.random.default_rng(0).normal(size=(9, 7, C + 1))
    script = lambda row, heard, position: logits[heard, position]  # noqa: E731
    quick, slow = Quick(script), ScriptedStepper(script)
    quick.draws = []
    sampling, limits = SamplingConfig(ras_window=3), [Limits(2, 9), Limits(5, 9)]
    given = [prompt(0), prompt(0, prefix=2)]
    ours, theirs = (run(stepper, given, top_p=0.9, limits=limits, sampling=sampling) for stepper in (quick, slow))
    assert [r.tokens.tolist() for r in ours] == [r.tokens.tolist() for r in theirs]
    first = quick.draws[0]
    assert first.uniforms.shape == (2, 7, 2) and first.top_p.tolist() == [0.9] * 2
    assert first.recent.tolist() == [[-1, -1, -1], [-1, 0, 0]] and first.max_ratio.tolist() == [0.09] * 2
    assert [draws.may_end[0] for draws in quick.draws[:3]] == [False, False, True]
