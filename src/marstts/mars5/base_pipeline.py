"""The pipeline from a text and a speaker to the codes of all levels: prompts, limits, level 0.

Upstream: `prompt`, codes of a recording.  Downstream: `pipeline` (PyTorch) and `array_pipeline` (ONNX Runtime), which
compute the rest; `speech`.
The whole utterance is made at once: the NAR rewrites every frame at every step, so no code is final before the end.
Rows of a batch do not influence each other.
Shapes: B rows · S text ids · R reference frames · T frames · L levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.errors import TextError
from marstts.mars5.profiles import CORRECTED, Level0, Profile
from marstts.mars5.prompt import CloneMode, Prompt, Speaker, build_prompt, check_codes
from marstts.mars5.sampling import SamplingConfig
from marstts.mars5.steps import DiffusionConfig
from marstts.mars5.text import JointVocabulary

Codes = NDArray[np.int64]
"""(T, L) frames of codes."""

MAX_TOKENS = 2000
"""Longest sequence of the training, according to the release."""


@dataclass(frozen=True)
class GivenCodes:
    """Codes that are known before the diffusion; B rows of up to T frames."""

    codes: NDArray[np.int64]
    """(B, T, L); what is not known may be any class."""

    known: NDArray[np.bool_]
    """(B, T, L) True for codes that are known to the end."""

    held: NDArray[np.bool_]
    """(B, T, L) True for codes that the NAR sees clean, until it may override them."""

    lengths: tuple[int, ...]
    """B frames that count."""


@dataclass(frozen=True, eq=False)
class BasePipeline(ABC):
    """Both models, their tokenizers, and how they are used; a subclass computes with one library."""

    ar: Any
    """An `ar.CodecLM`, or whatever stands for it with the subclass."""

    nar: Any
    """A `nar.ResidualTransformer`, likewise."""

    vocabulary: JointVocabulary
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    profile: Profile = CORRECTED

    max_tokens: int = MAX_TOKENS
    """Tokens of one utterance, counted as the profile specifies."""

    def speaker(self, codes: Codes, transcript: str | None = None) -> Speaker:
        """Speaker vectors of both models for a reference (R, L); computed once per voice.

        Raises VoiceError where the codes do not fit the models.
        """
        check_codes(codes, self.ar.config.levels, self.ar.config.codebook_size)
        ar_vector, nar_vector = self.speaker_vectors(codes)
        return Speaker(ar_vector, nar_vector, codes, transcript)

    @abstractmethod
    def speaker_vectors(self, codes: Codes) -> tuple[Any, Any]:
        """Vectors (D,) of both models for a reference (R, L), as the subclass's library has them."""

    @abstractmethod
    def split_embedding(self, embedding: NDArray[np.float32]) -> tuple[Any, Any]:
        """Vectors of both models from a voice's embedding, which holds them side by side."""

    @abstractmethod
    def embedding(self, speaker: Speaker) -> NDArray[np.float32]:
        """A voice's embedding: the vectors of both models side by side."""

    @abstractmethod
    def fill(
        self,
        prompts: Sequence[Prompt],
        spoken: Sequence[NDArray[np.int64]],
        rngs: Sequence[np.random.Generator],
    ) -> list[Codes]:
        """The NAR's codes (R + T, L) for level-0 codes (T,), T at least 1: the prefix first, as it was."""

    def prompt(self, text: str, speaker: Speaker, mode: CloneMode) -> Prompt:
        """`text` to be spoken by `speaker`.

        Raises TextError where the text is empty or too long, VoiceError where a deep clone lacks its transcript.
        """
        prompt = build_prompt(text, speaker, mode, self.vocabulary, spell=self.profile.spell)
        num_tokens, window = len(prompt.tokens), self.ar.config.window
        if num_tokens > window:
            raise TextError(
                f"text and reference make a prompt of {num_tokens} tokens, but the model attends to {window}: "
                "speak the text in pieces, or give a shorter reference"
            )
        return prompt

    def level0(self, prompt: Prompt, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Level-0 codes (T,) of generated tokens (N,), after the reference's where the profile requires it."""
        if self.profile.reference_copies > 1:
            tokens = np.concatenate((prompt.speech_ids, tokens))
        return self.vocabulary.decode_speech(tokens[self.profile.skipped_tokens :])

    def codes(
        self,
        prompts: Sequence[Prompt],
        tokens: Sequence[NDArray[np.int64]],
        rngs: Sequence[np.random.Generator],
    ) -> list[Codes]:
        """All levels (T, L) of the new speech of each prompt, whose AR tokens (N,) are given; T may be 0."""
        spoken = [self.level0(prompt, ids) for prompt, ids in zip(prompts, tokens, strict=True)]
        levels = self.nar.config.levels
        results = [np.zeros((0, levels), dtype=np.int64) for _ in prompts]
        rows = [index for index, level in enumerate(spoken) if len(level)]
        if not rows:
            return results
        filled = self.fill([prompts[row] for row in rows], [spoken[row] for row in rows], [rngs[row] for row in rows])
        for row, codes in zip(rows, filled, strict=True):
            results[row] = codes[len(prompts[row].prefix) * self.profile.reference_copies :]
        return results

    def given(self, prompts: Sequence[Prompt], spoken: Sequence[NDArray[np.int64]]) -> GivenCodes:
        """The codes known before the diffusion: prefixes on all levels, level 0 everywhere."""
        lengths = tuple(len(prompt.prefix) + len(level) for prompt, level in zip(prompts, spoken, strict=True))
        shape = (len(prompts), max(lengths), self.nar.config.levels)
        codes = np.zeros(shape, np.int64)
        known, held = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        for row, (prompt, level) in enumerate(zip(prompts, spoken, strict=True)):
            start = len(prompt.prefix)
            codes[row, :start] = prompt.prefix
            codes[row, start : lengths[row]] = level[:, None]
            known[row, :start] = True
            held[row, : lengths[row], 0] = True
        if self.profile.level0 is Level0.KEPT:
            known = known | held
        return GivenCodes(codes, known, held, lengths)

    def text_batch(self, prompts: Sequence[Prompt]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Text ids (B, S), padded with 0, and their lengths (B,)."""
        lengths = [len(prompt.text_ids) for prompt in prompts]
        ids = np.zeros((len(prompts), max(lengths)), np.int64)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt.text_ids)] = prompt.text_ids
        return ids, np.array(lengths)

    @property
    def num_legal(self) -> int:
        """Classes that the NAR may draw: all, or those that are no padding."""
        config = self.nar.config
        return int(config.num_classes if self.profile.padding_is_legal else config.codebook_size)
