"""MARS6 as a `SpeechModel`: text and voice to a prompt, tokens to codes.

Upstream: `bundled`, which puts it together.  Downstream: `synthesis.model_session`.
MARS6 (arXiv:2501.05787), Sec. III and IV-B2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts.codec.base import Codes
from marstts.generation.engine import Engine
from marstts.generation.request import SamplingConfig
from marstts.mars6.config import Mars6Config, unpatchify
from marstts.mars6.prompt import Mars6Prompt, build_prompt
from marstts.mars6.spelling import Respellings, Spelling
from marstts.text.pronunciation.words import PhoneUse
from marstts.text.tokenizers.bpe import BPE
from marstts.voice import Voice


@dataclass(frozen=True, eq=False, kw_only=True)
class Mars6Speech:
    """A `SpeechModel`: the codes of a patch are final as soon as it is sampled."""

    config: Mars6Config
    tokenizer: BPE
    engine: Engine[Any]

    quality_prefix_hz: int | None = 48_000
    """Sample rate (Hz) that the quality prefix asks for; None leaves the prefix out."""

    style_offset: tuple[float, ...] = ()
    """Added to the style embedding of every voice, which keeps its length; empty = nothing."""

    spelling: Spelling = Spelling.AS_WRITTEN
    """Spelling of capitals and single letters in prompts."""

    phones: PhoneUse = PhoneUse.NONE
    """Words of prompts that are phones."""

    respellings: Respellings = field(default_factory=dict)
    """Letters of prompts for words that the model misreads."""

    sampling: SamplingConfig = field(default_factory=SamplingConfig)

    architecture: str = "mars6"
    is_incremental: bool = True
    reads_typed_text: bool = False
    patch_rate: float | None = None

    @property
    def reads_contours(self) -> bool:
        """Whether it reads marks of intonation."""
        return self.phones is not PhoneUse.NONE

    @property
    def embedding_sizes(self) -> Mapping[str, int]:
        """Length of the speaker embedding of each role."""
        return self.config.embedding_sizes

    def prompt(self, text: str, voice: Voice) -> Mars6Prompt:
        """Build the prompt of `text` spoken by `voice`; raises as `build_prompt`."""
        prompt = build_prompt(
            text, voice, self.tokenizer, self.config, self.quality_prefix_hz, self.spelling, self.phones,
            self.respellings,
        )  # fmt: skip
        return replace(prompt, style=with_offset(prompt.style, self.style_offset)) if self.style_offset else prompt

    def text_spans(self, prompt: Mars6Prompt) -> NDArray[np.int64] | None:
        """(S, 2) characters of the sentence that each token of its prompt stands for; None without aligned heads."""
        return prompt.text_spans if self.config.aligned_heads else None

    def codes(self, tokens: NDArray[np.int64], rng: np.random.Generator | None = None, prompt: Any = None) -> Codes:
        """Turn tokens (T, P) into codes per level; they depend on nothing else."""
        return unpatchify(tokens, self.config.patch_layout, self.config.codebook_size)


def with_offset(embedding: NDArray[np.float32], offset: Sequence[float]) -> NDArray[np.float32]:
    """The embedding (E,) plus an offset (E,), scaled to the length it had."""
    moved = embedding + np.asarray(offset, np.float32)
    length = float(np.linalg.norm(moved))
    return moved * np.float32(np.linalg.norm(embedding) / length) if length > 0 else embedding
