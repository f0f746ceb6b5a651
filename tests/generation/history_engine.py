"""An engine whose logits are a function of a row's number and of its patches: there is no cache that could be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marstts.generation.engine import TokenLayout

C, EOS = 16, 48
LAYOUT = TokenLayout((1, 2, 4), C)

Logits = Callable[[int, int, int], NDArray[np.float64]]
"""(number of the row, patches of its history, position) -> (C + 1,)."""


@dataclass(frozen=True, eq=False)
class NumberedPrompt:
    """A row's number, and the prefix that it continues from."""

    row: int
    prefix_tokens: NDArray[np.int64]


def prompt(row: int, prefix: int = 0) -> NumberedPrompt:
    """The prompt of row `row` with a prefix of so many patches of code 0."""
    return NumberedPrompt(row, np.zeros((prefix, 7), np.int64) + np.array(LAYOUT.position_levels) * C)


@dataclass(frozen=True)
class History:
    """State: the number of each row, its patches with the prefix, and how many tokens this patch has."""

    rows: tuple[int, ...]
    history: tuple[tuple[tuple[int, ...], ...], ...]
    inside: int = 0


class HistoryEngine:
    """Checks how it is called, and counts the rows of each patch."""

    def __init__(self, logits: Logits) -> None:
        self.layout, self.logits = LAYOUT, logits
        self.batches: list[tuple[int, ...]] = []

    def start(self, prompts):
        return History(tuple(p.row for p in prompts), tuple(tuple(map(tuple, p.prefix_tokens)) for p in prompts))

    def next_logits(self, state, tokens):
        position = tokens.shape[1]
        assert tokens.shape[0] == len(state.rows) and state.inside == position
        if position == 0:
            self.batches.append(state.rows)
        rows = [
            self.logits(row, len(history), position) for row, history in zip(state.rows, state.history, strict=True)
        ]
        return np.stack(rows).astype(np.float32), replace(state, inside=position + 1)

    def append(self, state, patches):
        assert patches.shape == (len(state.rows), 7) and (patches != EOS).all()
        history = tuple((*h, tuple(p)) for h, p in zip(state.history, patches.tolist(), strict=True))
        return History(state.rows, history)

    def select(self, state, rows):
        return History(tuple(state.rows[r] for r in rows), tuple(state.history[r] for r in rows), state.inside)

    def join(self, states):
        assert all(state.inside == 0 for state in states)
        return History(tuple(r for s in states for r in s.rows), tuple(h for s in states for h in s.history))
