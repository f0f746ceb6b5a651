"""The AR's loop: prompts in, their speech tokens out, rows side by side.

Upstream: `prompt.Prompt`, speaker vectors.  Downstream: `pipeline` (tokens to level-0 codes).
A row's result depends on nothing but its own prompt, speaker, limits and random numbers: rows are padded, masked, and
taken out of the batch when they end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.mars5.ar import DecoderState
from marstts.mars5.sampling import SamplingConfig, sample_tokens


class StopReason(str, Enum):
    """Reason why a row stopped."""

    EOS = "end of speech"
    MAX_TOKENS = "token limit"


class RandomNumbers(Protocol):
    """Uniform numbers in [0, 1); `numpy.random.Generator` is one."""

    def random(self) -> float: ...


class Decoder(Protocol):
    """The AR's interface to the loop; `ar.CodecLM` has it."""

    def begin(self, tokens: Tensor, lengths: Tensor, speaker: Tensor | None) -> DecoderState: ...

    def advance(self, state: DecoderState, tokens: Tensor) -> DecoderState: ...


@dataclass(frozen=True, eq=False)
class Request:
    """One utterance to be generated, and all that decides its tokens."""

    tokens: NDArray[np.int64]
    """(N,) joint ids to continue from, N at least 1."""

    speaker: Tensor
    """(D,) from `CodecLM.encode_speaker`."""

    max_tokens: int
    """Generation stops after so many; below 1 nothing is generated."""

    estimate: int | None
    """Speech tokens to expect; None = unknown."""

    rng: RandomNumbers
    """Generator of this row alone: every token takes a number from it."""


@dataclass(frozen=True, eq=False)
class Generated:
    """Result of one request."""

    tokens: NDArray[np.int64]
    """(N,) new joint ids only; never the end of speech."""

    stop: StopReason


@dataclass(eq=False)
class Row:
    """State of one request."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    stop: StopReason | None = None

    def take(self, token: int, end: int) -> None:
        """Append `token`, or end."""
        if token == end:
            self.stop = StopReason.EOS
            return
        self.tokens.append(token)
        self.check_limit()

    def check_limit(self) -> None:
        """End where there are as many tokens as there may be."""
        if len(self.tokens) >= self.request.max_tokens:
            self.stop = StopReason.MAX_TOKENS


@torch.inference_mode()
def generate(
    decoder: Decoder, requests: Sequence[Request], sampling: SamplingConfig, *, first_legal: int, end: int
) -> list[Generated]:
    """Tokens for every request, in their order; ids below `first_legal` are text, `end` is the end of speech."""
    rows = [Row(request) for request in requests]
    for row in rows:
        row.check_limit()
    active = [row for row in rows if row.stop is None]
    state = begin(decoder, [row.request for row in active]) if active else None
    while active:
        assert state is not None
        picks = sample_tokens(
            state.logits.float().cpu().numpy(),
            [row.tokens for row in active],
            [row.request.estimate for row in active],
            sampling,
            np.array([row.request.rng.random() for row in active]),
            first_legal=first_legal,
            end=end,
        )
        for row, pick in zip(active, picks.tolist(), strict=True):
            row.take(pick, end)
        going_on = [index for index, row in enumerate(active) if row.stop is None]
        if going_on:
            device = state.logits.device
            if len(going_on) < len(active):
                state = state.select(torch.tensor(going_on, device=device))
            state = decoder.advance(state, torch.from_numpy(picks[going_on]).to(device))
        active = [active[index] for index in going_on]
    return [result(row) for row in rows]


def begin(decoder: Decoder, requests: Sequence[Request]) -> DecoderState:
    """The state after all prompts, padded at their ends."""
    device = requests[0].speaker.device
    lengths = [len(request.tokens) for request in requests]
    tokens = torch.zeros(len(requests), max(lengths), dtype=torch.long, device=device)
    for row, request in zip(tokens, requests, strict=True):
        row[: len(request.tokens)] = torch.from_numpy(request.tokens)
    speakers = torch.stack([request.speaker for request in requests])
    return decoder.begin(tokens, torch.tensor(lengths, device=device), speakers)


def result(row: Row) -> Generated:
    """The result of an ended row."""
    assert row.stop is not None
    return Generated(np.array(row.tokens, dtype=np.int64), row.stop)
