"""pocketsphinx: decoders and prepared audio.

Upstream: takes, as waveforms.  Downstream: `recognition`, and tools that align words.

pocketsphinx (BSD) contains its acoustic model, dictionary (CMUdict) and language model. Its absolute scores mix accent
and channel with intelligibility: compare systems on the same sentences and references only.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from marstts.audio import Waveform, resample
from marstts.errors import require

SAMPLE_RATE = 16000
LEVEL_RMS = 0.08
"""Takes are normalized to -22 dBFS, so that loudness does not affect word scores."""

EDGE_SECONDS = 0.15
"""Near-silence added before and after a take, which the decoder needs to start and end."""

NOISE_RMS = 1e-4
"""Noise at -80 dBFS under everything: digital silence has no logarithm."""


def model_path(name: str) -> str:
    """Path of a file inside the pocketsphinx package."""
    return str(require("pocketsphinx", "eval").get_model_path(name))


def new_decoder(**settings: Any) -> Any:
    """A US English decoder without log output; without `lm` it needs a grammar or a text to align."""
    pocketsphinx = require("pocketsphinx", "eval")
    files = {"hmm": model_path("en-us/en-us"), "dict": model_path("en-us/cmudict-en-us.dict"), "lm": None}
    return pocketsphinx.Decoder(**{**files, "loglevel": "FATAL", **settings})


def prepare(waveform: Waveform) -> bytes:
    """16-bit PCM at 16 kHz, normalized, with near-silence at both ends; deterministic."""
    samples = resample(waveform, SAMPLE_RATE).samples
    rms, peak = np.sqrt(np.mean(np.square(samples))), np.abs(samples).max()
    samples = samples * min(LEVEL_RMS / max(rms, 1e-9), 0.98 / max(peak, 1e-9))
    padded = np.pad(samples, round(EDGE_SECONDS * SAMPLE_RATE))
    padded = padded + NOISE_RMS * np.random.default_rng(0).standard_normal(len(padded))
    return (np.clip(padded, -1.0, 1.0) * 32767).astype("<i2").tobytes()


def decode(decoder: Any, pcm: bytes) -> None:
    """Run one utterance through the decoder; its `hyp()` and `seg()` then hold the outcome.

    The cepstral mean of earlier utterances is reset first: a score must not depend on what was scored before.
    """
    decoder.reinit_feat()
    decoder.start_utt()
    decoder.process_raw(pcm, full_utt=True)
    decoder.end_utt()


def decoded_words(decoder: Any) -> list[str]:
    """Words of the last hypothesis in the dictionary's spelling, pronunciation variants ("the(2)") merged."""
    hypothesis = decoder.hyp()
    return [] if hypothesis is None else [base_form(word) for word in hypothesis.hypstr.split()]


def base_form(word: str) -> str:
    """A dictionary entry without the number of its pronunciation variant."""
    return re.sub(r"\(\d+\)$", "", word)
