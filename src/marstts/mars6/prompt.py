"""The prompt: a sentence and a voice as the numbers the model starts from, alone and in batches.

Upstream: `text` (normalized sentences, BPE), `voice.Voice`.  Downstream: `generation` and the engines; training builds
its strings here too, so that prompts have the form of the training data.
MARS6 (arXiv:2501.05787), Sec. IV-B2 (quality prefix) and V-A.  Deviations: no space after the quality prefix, and
marks for the text's start and end, as in the published checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.errors import DataError, TextError, VoiceError
from marstts.mars6.config import IDENTITY, STYLE, Mars6Config, patchify
from marstts.mars6.prompt_text import (
    END,
    QUALITY_RATES,
    SPECIAL_TOKENS,
    START,
    prompt_string,
    quality_prefix,
    sentence_spans,
    without_special_tokens,
)
from marstts.mars6.spelling import Respellings, Spelling, read_aloud
from marstts.text.pronunciation.words import PhoneUse
from marstts.text.tokenizers.bpe import BPE
from marstts.voice import Voice

__all__ = [
    "END",
    "QUALITY_RATES",
    "SPECIAL_TOKENS",
    "START",
    "Mars6Prompt",
    "PromptBatch",
    "build_prompt",
    "check_embeddings",
    "collate",
    "prefix_tokens",
    "prompt_string",
    "quality_prefix",
    "sentence_spans",
    "without_special_tokens",
]


@dataclass(frozen=True, eq=False)
class Mars6Prompt:
    """The model's input for one utterance. S text tokens · T prefix patches, none for a shallow clone · P positions."""

    text_ids: NDArray[np.int64]
    """(S,), transcript included where there is a prefix."""

    identity: NDArray[np.float32]
    """(E1,)."""

    style: NDArray[np.float32]
    """(E2,)."""

    prefix_tokens: NDArray[np.int64]
    """(T, P)."""

    text_spans: NDArray[np.int64] | None = None
    """(S, 2) characters of the sentence that each token stands for, see `sentence_spans`."""


def build_prompt(
    text: str,
    voice: Voice,
    tokenizer: BPE,
    config: Mars6Config,
    quality: int | None = 48000,
    spelling: Spelling = Spelling.AS_WRITTEN,
    phones: PhoneUse = PhoneUse.NONE,
    respellings: Respellings | None = None,
) -> Mars6Prompt:
    """`text` to be spoken by `voice`; deep where the voice has a prefix.

    Raises TextError if there is no text, VoiceError if the voice was made for a model of another shape.
    """
    text = text.strip()
    if not text:
        raise TextError("there is nothing to say: the text is empty")
    check_embeddings(voice, config)
    spelled, transcript = read_aloud(text, spelling, phones, respellings), None
    if voice.prefix is not None:
        transcript = read_aloud(voice.prefix.transcript.strip(), spelling, phones, respellings).text
    string = prompt_string(spelled.text, quality=quality, transcript=transcript)
    text_ids, offsets = tokenizer.encode_with_offsets(string)
    return Mars6Prompt(
        np.asarray(text_ids, dtype=np.int64),
        voice.embeddings[IDENTITY],
        voice.embeddings[STYLE],
        prefix_tokens(voice, config),
        np.array(spelled.original_spans(sentence_spans(string, spelled.text, offsets)), np.int64).reshape(-1, 2),
    )


def prefix_tokens(voice: Voice, config: Mars6Config) -> NDArray[np.int64]:
    """The voice's prefix as patches (T, P), T = 0 without one."""
    if voice.prefix is None:
        return np.zeros((0, config.patch_size), dtype=np.int64)
    try:
        return patchify(voice.prefix.codes, config.patch_layout, config.codebook_size)
    except DataError as error:
        raise VoiceError(f"the prefix of voice {voice.name!r} does not fit this model: {error}") from error


def check_embeddings(voice: Voice, config: Mars6Config) -> None:
    """Raise VoiceError unless both embeddings have the sizes the model was built for."""
    for role, size in config.embedding_sizes.items():
        embedding = voice.embeddings.get(role)
        if embedding is None or embedding.shape != (size,):
            found = "is missing" if embedding is None else f"has shape {embedding.shape}"
            raise VoiceError(
                f"the {role} embedding of voice {voice.name!r} {found}, but this model needs ({size},): clone the "
                "recording again with this model"
            )


# Prompts of different lengths as one padded batch, for all engines.
# Shapes: B rows · S text tokens · T prefix patches · P positions of a patch.

TEXT_PADDING = 0
"""Any id would do: padded text is never attended to."""

PATCH_PADDING = -100
"""Padding instead of a token; the patch embedding ignores it."""


@dataclass(frozen=True, eq=False)
class PromptBatch:
    """Prompts side by side, padded at the end."""

    text_ids: NDArray[np.int64]
    """(B, S)."""

    text_lengths: NDArray[np.int64]
    """(B,)."""

    identity: NDArray[np.float32]
    """(B, E1)."""

    style: NDArray[np.float32]
    """(B, E2)."""

    prefix: NDArray[np.int64]
    """(B, T, P), T = 0 if no prompt has a prefix."""

    prefix_lengths: NDArray[np.int64]
    """(B,)."""


def collate(prompts: Sequence[Mars6Prompt]) -> PromptBatch:
    """At least one prompt, all for the same model, as a batch."""
    assert prompts, "a batch has at least one row"
    text_lengths = np.array([len(prompt.text_ids) for prompt in prompts], dtype=np.int64)
    prefix_lengths = np.array([len(prompt.prefix_tokens) for prompt in prompts], dtype=np.int64)
    text_ids = np.full((len(prompts), text_lengths.max()), TEXT_PADDING, dtype=np.int64)
    patch_size = prompts[0].prefix_tokens.shape[1]
    prefix = np.full((len(prompts), prefix_lengths.max(), patch_size), PATCH_PADDING, dtype=np.int64)
    for row, prompt in enumerate(prompts):
        text_ids[row, : text_lengths[row]] = prompt.text_ids
        prefix[row, : prefix_lengths[row]] = prompt.prefix_tokens
    return PromptBatch(
        text_ids=text_ids,
        text_lengths=text_lengths,
        identity=np.stack([prompt.identity for prompt in prompts]),
        style=np.stack([prompt.style for prompt in prompts]),
        prefix=prefix,
        prefix_lengths=prefix_lengths,
    )
