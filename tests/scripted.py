"""A model whose takes a test scripts, and a whole synthesizer around it.

`ScriptedEngine` satisfies `generation.engine.Engine`. A script is called once for every attempt, with the number of the
attempt (counted over the engine's life) and its prompt, and returns the number of patches and their loudness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.codec.toy import ToyCodec
from marstts.generation.engine import Engine
from marstts.generation.layout import TokenLayout
from marstts.mars6.config import Mars6Config
from marstts.mars6.prompt import SPECIAL_TOKENS, Prompt
from marstts.mars6.speech import Mars6Speech
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.bpe import BPE

CODEBOOK_SIZE = 64
LOUD, SOFT, SILENT = 43, 27, 0
"""Codes of the toy codec: (loudness 5, 3 or 0 of 8) * 8 frequencies + frequency 3."""

ENDLESS = 10**9


@dataclass(frozen=True)
class ScriptedTake:
    """`patches` patches of one code on all levels, then end of speech (or, where that is forbidden, silence)."""

    patches: int
    code: int = LOUD


Script = Callable[[int, Prompt], ScriptedTake]


@dataclass(frozen=True)
class Rows:
    takes: tuple[ScriptedTake, ...]
    num_generated: tuple[int, ...]


@dataclass
class ScriptedEngine:
    script: Script
    config: Mars6Config
    prompts: list[Prompt] = field(default_factory=list)
    """Every prompt that was started, in order."""

    @property
    def layout(self) -> TokenLayout:
        return self.config.layout

    def start(self, prompts: Sequence[Prompt]) -> Rows:
        takes = []
        for prompt in prompts:
            takes.append(self.script(len(self.prompts), prompt))
            self.prompts.append(prompt)
        return Rows(tuple(takes), (0,) * len(takes))

    def next_logits(self, state: Rows, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float32], Rows]:
        logits = np.full((len(state.takes), CODEBOOK_SIZE + 1), -1000.0, dtype=np.float32)
        for row, (take, num_generated) in enumerate(zip(state.takes, state.num_generated, strict=True)):
            if num_generated < take.patches:
                logits[row, take.code] = 0.0
            else:
                logits[row, [SILENT, CODEBOOK_SIZE]] = -500.0, 0.0
        return logits, state

    def append(self, state: Rows, patches: NDArray[np.int64]) -> Rows:
        return replace(state, num_generated=tuple(count + 1 for count in state.num_generated))

    def select(self, state: Rows, rows: Sequence[int]) -> Rows:
        return Rows(tuple(state.takes[row] for row in rows), tuple(state.num_generated[row] for row in rows))

    def join(self, states: Sequence[Rows]) -> Rows:
        return Rows(
            tuple(s for state in states for s in state.takes), tuple(s for state in states for s in state.num_generated)
        )


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
        model=Mars6Speech(config=config, tokenizer=tokenizer, engine=ScriptedEngine(script, config)),
        codec=codec,
        encoders={"identity": ToySpeakerEncoder("identity", 5), "style": ToySpeakerEncoder("style", 7)},
    )


def good(attempt: int, prompt: Prompt) -> ScriptedTake:
    """About as long as a text of a few words takes, whatever it is: 1.7 s."""
    return ScriptedTake(20)


def with_engine(tts: Synthesizer, engine: Engine[Any]) -> Synthesizer:
    """The same synthesizer around another engine."""
    assert isinstance(tts.model, Mars6Speech)
    return replace(tts, model=replace(tts.model, engine=engine))
