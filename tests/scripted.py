"""A model that says exactly what a test tells it to, and a whole synthesizer around it.

`ScriptedStepper` satisfies `mars6.generate.Stepper`. A script is called once for every attempt, with the number of the
attempt (counted over the stepper's life) and its prompt, and returns how many patches to say and how loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from marstts.codec.toy import ToyCodec
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import SPECIAL_TOKENS, Prompt
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.bpe import BPE

CODEBOOK_SIZE = 64
LOUD, SOFT, SILENT = 43, 27, 0
"""Codes of the toy codec: (loudness 5, 3 or 0 of 8) * 8 frequencies + frequency 3."""

ENDLESS = 10**9


@dataclass(frozen=True)
class Says:
    """`patches` patches of one code on all levels, then end of speech (or, where that is forbidden, silence)."""

    patches: int
    code: int = LOUD


Script = Callable[[int, Prompt], Says]


@dataclass(frozen=True)
class Rows:
    says: tuple[Says, ...]
    said: tuple[int, ...]


@dataclass
class ScriptedStepper:
    script: Script
    config: Mars6Config
    prompts: list[Prompt] = field(default_factory=list)
    """Every prompt that was started, for the test to look at."""

    def start(self, prompts: Sequence[Prompt]) -> Rows:
        says = []
        for prompt in prompts:
            says.append(self.script(len(self.prompts), prompt))
            self.prompts.append(prompt)
        return Rows(tuple(says), (0,) * len(says))

    def local_logits(self, state: Rows, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], Rows]:
        logits = np.full((len(state.says), CODEBOOK_SIZE + 1), -1000.0, dtype=np.float32)
        for row, (says, said) in enumerate(zip(state.says, state.said, strict=True)):
            if said < says.patches:
                logits[row, says.code] = 0.0
            else:
                logits[row, [SILENT, CODEBOOK_SIZE]] = -500.0, 0.0
        return logits, state

    def append(self, state: Rows, patches: NDArray[np.int64]) -> Rows:
        return replace(state, said=tuple(count + 1 for count in state.said))

    def select(self, state: Rows, rows: Sequence[int]) -> Rows:
        return Rows(tuple(state.says[row] for row in rows), tuple(state.said[row] for row in rows))

    def join(self, states: Sequence[Rows]) -> Rows:
        return Rows(tuple(s for state in states for s in state.says), tuple(s for state in states for s in state.said))


def scripted_synthesizer(script: Script) -> Synthesizer:
    """Toy codec, toy speaker encoders and a tokenizer around a scripted model; all sizes differ."""
    tokenizer = BPE.train(["the cat sat on the mat", "she sells sea shells"], 270, SPECIAL_TOKENS)
    codec = ToyCodec(codebook_size=CODEBOOK_SIZE)
    config = Mars6Config(
        text_vocab_size=tokenizer.vocab_size,
        codebook_size=CODEBOOK_SIZE,
        patch_layout=codec.spec.patch_layout,
        identity_size=5,
        style_size=7,
    )
    return Synthesizer(
        name="scripted",
        tokenizer=tokenizer,
        codec=codec,
        identity_encoder=ToySpeakerEncoder("identity", 5),
        style_encoder=ToySpeakerEncoder("style", 7),
        stepper=ScriptedStepper(script, config),
    )


def good(attempt: int, prompt: Prompt) -> Says:
    """About as long as a text of a few words takes, whatever it is: 1.7 s."""
    return Says(20)
