"""A model whose takes a test scripts, and a whole synthesizer around it; neither knows any architecture.

`ScriptedEngine` is a `generation.engine.Engine`, `ScriptedModel` a `generation.speech_model.SpeechModel`. A script is
called once for every attempt, with the number of the attempt (counted over the engine's life) and its prompt, and
returns the number of patches and their loudness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.codec.base import Codes
from marstts.codec.toy import ToyCodec
from marstts.errors import VoiceError
from marstts.generation.engine import Engine, TokenLayout
from marstts.generation.request import SamplingConfig
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice

CODEBOOK_SIZE = 64
LOUD, SOFT, SILENT = 43, 27, 0
"""Codes of the toy codec: (loudness 5, 3 or 0 of 8) * 8 frequencies + frequency 3."""

ENDLESS = 10**9


@dataclass(frozen=True, eq=False)
class ScriptedPrompt:
    """Text and prefix of a sentence."""

    text: str
    """The transcript of the prefix, if there is one, and the sentence."""

    prefix_tokens: NDArray[np.int64]
    """(T, P)."""

    @property
    def text_ids(self) -> NDArray[np.int64]:
        """The bytes of the text, which is a tokenizer too."""
        return np.frombuffer(self.text.encode(), np.uint8).astype(np.int64)


@dataclass(frozen=True)
class ScriptedTake:
    """`patches` patches of one code on all levels, then end of speech (or, where that is forbidden, silence)."""

    patches: int
    code: int = LOUD


Script = Callable[[int, ScriptedPrompt], ScriptedTake]


@dataclass(frozen=True)
class Rows:
    takes: tuple[ScriptedTake, ...]
    num_generated: tuple[int, ...]


@dataclass
class ScriptedEngine:
    script: Script
    layout: TokenLayout
    prompts: list[ScriptedPrompt] = field(default_factory=list)
    """Every prompt that was started, in order."""

    def start(self, prompts: Sequence[ScriptedPrompt]) -> Rows:
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


@dataclass(frozen=True, eq=False)
class ScriptedModel:
    """A `SpeechModel` around an engine: the tokens of a patch are the codes of all levels, coarse to fine."""

    engine: Engine[Any]
    layout: TokenLayout
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    embedding_sizes: Mapping[str, int] = field(default_factory=lambda: {"identity": 5, "style": 7})
    architecture: str = "scripted"
    is_incremental: bool = True
    reads_typed_text: bool = False
    reads_contours: bool = False
    patch_rate: float | None = None

    def prompt(self, text: str, voice: Voice) -> ScriptedPrompt:
        for role, size in self.embedding_sizes.items():
            if voice.embeddings[role].shape != (size,):
                raise VoiceError(f"the {role} embedding of voice {voice.name!r} needs {size} values")
        if voice.prefix is None:
            return ScriptedPrompt(text, np.zeros((0, self.layout.patch_size), np.int64))
        return ScriptedPrompt(f"{voice.prefix.transcript} {text}", self.tokens(voice.prefix.codes))

    def text_spans(self, prompt: ScriptedPrompt) -> NDArray[np.int64] | None:
        return None

    def tokens(self, codes: Codes) -> NDArray[np.int64]:
        """The codes of each level as patches (T, P)."""
        counts, size = self.layout.codes_per_level, self.layout.codebook_size
        levels = zip(codes, counts, strict=True)
        return np.concatenate([c.reshape(-1, count) + n * size for n, (c, count) in enumerate(levels)], axis=1)

    def codes(self, tokens: NDArray[np.int64], rng: np.random.Generator | None = None, prompt: Any = None) -> Codes:
        levels = np.array(self.layout.position_levels)
        codes = tokens - levels * self.layout.codebook_size
        return tuple(codes[:, levels == level].reshape(-1) for level in range(len(self.layout.codes_per_level)))


def scripted_synthesizer(script: Script) -> Synthesizer:
    """Toy codec and toy speaker encoders around a scripted model; all sizes differ."""
    codec = ToyCodec(codebook_size=CODEBOOK_SIZE)
    layout = TokenLayout(codec.spec.patch_layout, CODEBOOK_SIZE)
    session = ModelSession(
        name="scripted",
        model=ScriptedModel(ScriptedEngine(script, layout), layout),
        codec=codec,
        encoders={"identity": ToySpeakerEncoder("identity", 5), "style": ToySpeakerEncoder("style", 7)},
    )
    return Synthesizer(session)


def good(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
    """About as long as a text of a few words takes, whatever it is: 1.7 s."""
    return ScriptedTake(20)


def with_engine(tts: Synthesizer, engine: Engine[Any]) -> Synthesizer:
    """The same synthesizer around another engine."""
    model: Any = tts.session.model
    return with_parts(tts, model=replace(model, engine=engine))


def with_parts(tts: Synthesizer, **parts: Any) -> Synthesizer:
    """The same synthesizer with other parts of its session: `model`, `codec`, `encoders`, `backoff`."""
    return replace(tts, session=replace(tts.session, **parts))
