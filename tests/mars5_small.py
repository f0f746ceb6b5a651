"""A small MARS5 for tests; all sizes differ, so that no broadcast passes by luck."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from marstts.mars5.ar import CodecLM
from marstts.mars5.checkpoint import Models
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.text import END_OF_SPEECH, JointVocabulary, SpeechBPE
from marstts.text.tokenizers.bpe import BPE

CODES = 13
"""Codes per level."""

LEVELS = 3

AR = CodecLMConfig(
    text_vocab_size=270, speech_vocab_size=18, width=12, layers=2, heads=3, head_size=4, feed_forward_width=20,
    window=40, speaker_layers=1, speaker_heads=2, speaker_feed_forward_width=14, levels=LEVELS, codebook_size=CODES,
)  # fmt: skip
NAR = ResidualTransformerConfig(
    text_vocab_size=271, width=18, heads=2, encoder_layers=1, decoder_layers=2, speaker_layers=1,
    feed_forward_width=22, timestep_width=10, levels=LEVELS, codebook_size=CODES,
)  # fmt: skip


def vocabulary() -> JointVocabulary:
    """270 text ids; 13 codes, four merges and the end of speech."""
    text = BPE.train(["the cat sat on the mat", "she sells sea shells"], 270, ["<|startoftext|>", "<|endoftext|>"])
    return JointVocabulary(text, SpeechBPE(((0, 1), (2, 2), (13, 3), (14, 14)), {END_OF_SPEECH: 17}, CODES))


def ar(seed: int = 0, **changes: int) -> CodecLM:
    """A CodecLM whose random weights are large enough to make tokens differ."""
    return strengthened(CodecLM(AR.model_copy(update=changes)), seed)


def nar(seed: int = 1, **changes: int) -> ResidualTransformer:
    """A ResidualTransformer, likewise."""
    return strengthened(ResidualTransformer(NAR.model_copy(update=changes)), seed)


def strengthened(model: torch.nn.Module, seed: int) -> torch.nn.Module:  # type: ignore[misc]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.4 if parameter.dim() > 1 else 0.7))
    return model.eval()


def models() -> Models:
    """Both, with their vocabulary."""
    return Models(ar(), nar(), vocabulary())


def codes(num_frames: int, seed: int = 3) -> NDArray[np.int64]:
    """(num_frames, 3) random codes."""
    return np.random.default_rng(seed).integers(0, CODES, (num_frames, LEVELS))
