"""The AR as a `generation.engine.Engine`: one speech token per step, side by side with other requests.

Upstream: `prompt.SpeechPrompt`, `checkpoint.Models`.  Downstream: `generation.loop`, its scheduler, and
`speech.Mars5Speech`.
A patch is one speech token.  Its number counts the speech ids but the end of speech, which is the layout's last one.
As a `PatchSampler` the engine samples as MARS5 does, penalties included; top-p, minimum length and random numbers are
the request's.
On a GPU the AR computes as the release does: weights and residual sums in float32, products and KV cache in float16
(autocast).
Shapes: B rows · C speech ids but the end · V joint vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from marstts.generation.engine import SamplingInputs, TokenLayout, refuse_nan
from marstts.mars5.ar import DecoderState, join_states
from marstts.mars5.checkpoint import Models
from marstts.mars5.prompt import SpeechPrompt
from marstts.mars5.sampling import TokenSampling, sample_tokens
from marstts.mars5.text import JointVocabulary


@dataclass(frozen=True, eq=False)
class EngineState:
    """State of the decoder for B rows: a value."""

    decoder: DecoderState

    prompts: tuple[SpeechPrompt, ...]

    generated: tuple[tuple[int, ...], ...]
    """Each row's joint ids so far."""


class TokenNumbers:
    """The numbers of an engine's tokens: speech ids without the end, which becomes the last number.

    In the profile `released` the last text ids may be sampled as speech; they come first.
    """

    def __init__(self, vocabulary: JointVocabulary, legal_text_ids: int = 0) -> None:
        speech = np.arange(-legal_text_ids, vocabulary.speech.vocab_size)
        kept = speech[speech != vocabulary.speech.end]
        self.first_legal = vocabulary.offset - legal_text_ids
        self.layout = TokenLayout(codes_per_level=(1,), codebook_size=len(kept))
        self.joint_ids: NDArray[np.int64] = np.append(kept, vocabulary.speech.end) + vocabulary.offset
        self._numbers = np.zeros(vocabulary.size, dtype=np.int64)
        self._numbers[self.joint_ids] = np.arange(len(self.joint_ids))

    def of(self, joint_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Joint ids of speech (N,) -> numbers (N,)."""
        return self._numbers[joint_ids]


class TokenEngine:
    """An `Engine` and `PatchSampler`."""

    def __init__(
        self,
        models: Models,
        name: str,
        sampling: TokenSampling | None = None,
        legal_text_ids: int = 0,
    ) -> None:
        """`name` identifies the weights.

        `sampling`: temperature, filters and penalties; its top-p is the requests'.  `legal_text_ids`: see
        `profiles.Profile`.
        """
        self.models, self.name, self.ar = models, name, models.ar
        self.device = device_of(models.ar)
        self.vocabulary: JointVocabulary = models.vocabulary
        self.sampling = sampling or TokenSampling()
        self.numbers = TokenNumbers(self.vocabulary, legal_text_ids)

    @property
    def layout(self) -> TokenLayout:
        """One token per patch."""
        return self.numbers.layout

    def start(self, prompts: Sequence[SpeechPrompt]) -> EngineState:
        """Prefill text and prefix of B rows."""
        speakers = np.stack([prompt.given.speaker.ar_vector for prompt in prompts])
        decoder = self.begin([prompt.given.tokens for prompt in prompts], speakers)
        return EngineState(decoder, tuple(prompts), ((),) * len(prompts))

    @torch.inference_mode()
    def begin(self, rows: Sequence[NDArray[np.int64]], speakers: NDArray[np.float32]) -> DecoderState:
        """The state after joint ids (N,) of each row, and speakers (B, D)."""
        parts = (torch.from_numpy(part).to(self.device) for part in (*padded(rows), speakers))
        with self.autocast():
            return self.ar.begin(*parts)

    @torch.inference_mode()
    def advance(self, state: DecoderState, ids: NDArray[np.int64]) -> DecoderState:
        """The state after one more joint id of each row (B,)."""
        with self.autocast():
            return self.ar.advance(state, torch.from_numpy(ids).to(self.device))

    def autocast(self) -> torch.autocast:
        """Half precision on a GPU."""
        return torch.autocast(self.device.type, torch.float16, enabled=self.device.type == "cuda")

    def next_logits(self, state: EngineState, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], EngineState]:
        """Logits (B, C + 1) of the next token, the end last; tokens (B, 0)."""
        assert tokens.shape[1] == 0, "a patch is one token"
        return numbers_of(state.decoder)[:, self.numbers.joint_ids], state

    def sample_patch(self, state: EngineState, inputs: SamplingInputs) -> tuple[NDArray[np.int64], EngineState]:
        """The next token of each row, (B, 1)."""
        logits = numbers_of(state.decoder)
        logits[~inputs.may_end, self.vocabulary.end] = -np.inf
        factor = self.sampling.eos_estimated_gen_length_factor
        picks = sample_tokens(
            logits,
            state.generated,
            [round(factor * prompt.given.num_characters) for prompt in state.prompts],
            self.sampling,
            inputs.uniforms[:, 0, 0],
            first_legal=self.numbers.first_legal,
            end=self.vocabulary.end,
            top_p=inputs.top_p,
        )
        return self.numbers.of(picks)[:, None], state

    def append(self, state: EngineState, patches: NDArray[np.int64]) -> EngineState:
        """Process the tokens (B, 1) that were drawn."""
        ids = self.numbers.joint_ids[patches[:, 0]]
        generated = tuple((*row, new) for row, new in zip(state.generated, ids.tolist(), strict=True))
        return EngineState(self.advance(state.decoder, ids), state.prompts, generated)

    @torch.inference_mode()
    def select(self, state: EngineState, rows: Sequence[int]) -> EngineState:
        """Return only these rows, in this order."""
        return EngineState(
            decoder=state.decoder.select(torch.tensor(list(rows), device=self.device)),
            prompts=tuple(state.prompts[row] for row in rows),
            generated=tuple(state.generated[row] for row in rows),
        )

    @torch.inference_mode()
    def join(self, states: Sequence[EngineState]) -> EngineState:
        """The rows of all states."""
        return EngineState(
            decoder=join_states([state.decoder for state in states]),
            prompts=tuple(prompt for state in states for prompt in state.prompts),
            generated=tuple(row for state in states for row in state.generated),
        )


def numbers_of(state: DecoderState) -> NDArray[np.float32]:
    """(B, V) logits of the next joint id, a copy; CheckpointError where one is no number."""
    return refuse_nan(state.logits.float().cpu().numpy().copy())


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    return next(model.parameters()).device


def padded(rows: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of ids (N,) -> (B, T) padded at the end with 0, and their lengths (B,)."""
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, ids in zip(tokens, rows, strict=True):
        row[: len(ids)] = ids
    return tokens, np.array([len(ids) for ids in rows])
