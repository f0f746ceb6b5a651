"""The prompt: a sentence and a voice as the numbers the model starts from.

Upstream: `text` (normalised sentences, BPE), `voice.Voice`.  Downstream: `generate` and the engines; training builds
its strings here too, so that the model is asked in the form in which it was taught.
MARS6 (arXiv:2501.05787), Sec. IV-B2 (quality prefix) and V-A.  Deviations: no space after the quality prefix, and
marks for the text's start and end, as in the published checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.errors import ConfigError, DataError, TextError, VoiceError
from marstts.mars6.config import Mars6Config
from marstts.mars6.patches import patchify
from marstts.text.bpe import BPE
from marstts.voice import Voice

START, END = "<|startoftext|>", "<|endoftext|>"

QUALITY_RATES = (8000, 16000, 22050, 24000, 44100, 48000)
"""Sample rates of recordings that the model can tell apart, in Hz."""

SPECIAL_TOKENS = (START, END, *(f"[{rate}]" for rate in QUALITY_RATES))
"""Strings that are one token each, in the order of their ids."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """What one utterance starts from. S text tokens · T prefix patches, none for a shallow clone · P positions."""

    text_ids: NDArray[np.int64]
    """(S,), transcript included where there is a prefix."""

    identity: NDArray[np.float32]
    """(E1,)."""

    style: NDArray[np.float32]
    """(E2,)."""

    prefix_tokens: NDArray[np.int64]
    """(T, P)."""


def quality_prefix(rate: int | None) -> str:
    """How recordings of `rate` samples per second are announced: "[48000]"; rates between two count as the lower.

    `rate` says how much of the spectrum there is, whatever the file was resampled to since. None announces nothing, as
    in the ablation of the paper's Table I.
    """
    if rate is None:
        return ""
    known = [quality for quality in QUALITY_RATES if quality <= rate]
    if not known:
        raise ConfigError(f"a quality of {rate} Hz was asked for; the lowest the model knows is {QUALITY_RATES[0]} Hz")
    return f"[{known[-1]}]"


def prompt_string(text: str, *, quality: int | None, transcript: str | None = None) -> str:
    """The string the encoder reads: what was said in the prefix, if there is one, and then what is to be said.

    Special tokens written out in text or transcript lose their brackets: only the prompt itself may use them.
    """
    words = text if transcript is None else f"{transcript} {text}"
    return f"{START}{quality_prefix(quality)}{without_special_tokens(words)}{END}"


def build_prompt(text: str, voice: Voice, tokenizer: BPE, config: Mars6Config, quality: int | None = 48000) -> Prompt:
    """`text` to be spoken by `voice`; deep where the voice has a prefix.

    Raises TextError if there is no text, VoiceError if the voice was made for a model of another shape.
    """
    text = text.strip()
    if not text:
        raise TextError("there is nothing to say: the text is empty")
    check_embeddings(voice, config)
    transcript = None if voice.prefix is None else voice.prefix.transcript.strip()
    text_ids = tokenizer.encode(prompt_string(text, quality=quality, transcript=transcript))
    return Prompt(np.asarray(text_ids, dtype=np.int64), voice.identity, voice.style, prefix_tokens(voice, config))


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
    for name, embedding, size in (
        ("identity", voice.identity, config.identity_size),
        ("style", voice.style, config.style_size),
    ):
        if embedding.shape != (size,):
            raise VoiceError(
                f"the {name} embedding of voice {voice.name!r} has shape {embedding.shape}, but this model needs "
                f"({size},): clone the recording again with this model"
            )


def without_special_tokens(text: str) -> str:
    """`text` in which nothing will be taken for a special token."""
    for token in SPECIAL_TOKENS:
        while token in text:  # again, because taking one away may join the halves of another
            text = text.replace(token, token.strip("<|>[]"))
    return text
