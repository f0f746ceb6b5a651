"""The likelihood of a recorded sequence: what shows that trained weights are in their places.

Upstream: both models and their tokenizers.  Downstream: `marstts doctor`.
See `mars6.likelihood`. The AR's is that of speech tokens which it generated; the NAR's that of codes which it drew,
from the same codes with fixed noise of three timesteps. No codec is needed: the reference is fixed random codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marstts.generation.loop import generate
from marstts.generation.request import Limits, SamplingConfig
from marstts.mars5.checkpoint import Models
from marstts.mars5.diffusion import NUM_TIMESTEPS, cosine_schedule, gumbel_draw, log_onehot, q
from marstts.mars5.engine import TokenEngine
from marstts.mars5.nar import Conditioning
from marstts.mars5.pipeline import Pipeline
from marstts.mars5.prompt import CloneMode, SpeechPrompt
from marstts.mars5.repaint import DiffusionConfig
from marstts.text.tokenizers.bpe import BPE

TEXT = "The ship left the harbor at dawn, and nobody saw it go."
REFERENCE_FRAMES, MAX_TOKENS = 30, 40
TIMESTEPS = (20, 100, 180)
"""Timesteps whose noise the NAR is given; of 200."""


def make_sequence(models: Models, tokenizer: BPE) -> dict[str, Any]:
    """A text, a reference (R, L), the AR's tokens (N,) for them and the NAR's codes (T, L)."""
    sizes, rng = models.ar.config, np.random.default_rng(5)
    reference = rng.integers(0, sizes.codebook_size, (REFERENCE_FRAMES, sizes.levels))
    pipeline = Pipeline(models, DiffusionConfig(timesteps=4))
    prompt = pipeline.prompt(TEXT, pipeline.speaker(reference), CloneMode.SHALLOW)
    engine = TokenEngine(models, "examined")
    [generated] = generate(
        engine,
        [SpeechPrompt(prompt, engine.numbers.of(prompt.speech_ids)[:, None])],
        top_p=[0.2],
        limits=[Limits(MAX_TOKENS // 4, MAX_TOKENS)],
        rngs=[rng],
        sampling=SamplingConfig(),
    )
    tokens = engine.numbers.joint_ids[generated.tokens[:, 0]]
    [codes] = pipeline.codes([prompt], [tokens], [rng])
    return {"text": TEXT, "reference": reference.tolist(), "tokens": tokens.tolist(), "codes": codes.tolist()}


@torch.inference_mode()
def log_likelihoods(models: Models, tokenizer: BPE, sequence: Mapping[str, Any]) -> dict[str, float]:
    """Mean log-likelihood (nats) of a speech token for the AR, and of a code for the NAR at each timestep."""
    pipeline = Pipeline(models)
    speaker = pipeline.speaker(np.asarray(sequence["reference"], np.int64))
    prompt = pipeline.prompt(sequence["text"], speaker, CloneMode.SHALLOW)
    speech = np.asarray([*sequence["tokens"], models.vocabulary.end], np.int64)
    ids = torch.from_numpy(np.concatenate((prompt.tokens, speech)))[None]
    logits = models.ar(ids, torch.from_numpy(speaker.ar_vector)[None])
    result = {"AR": mean_of(logits[0, len(prompt.tokens) - 1 : -1], torch.from_numpy(speech))}
    codes = torch.tensor(sequence["codes"])[None]
    schedule, classes = cosine_schedule(NUM_TIMESTEPS), models.nar.config.num_classes
    conditioning = pipeline.conditioning([prompt])
    for timestep in TIMESTEPS:
        generator = torch.Generator().manual_seed(timestep)
        uniforms = torch.rand((*codes.shape, classes), generator=generator)
        noisy = gumbel_draw(q(log_onehot(codes, classes), torch.tensor([timestep]), schedule), uniforms)
        noisy[..., 0] = codes[..., 0]
        predicted = nar_logits(models, conditioning, noisy, timestep)
        result[f"NAR at timestep {timestep}"] = mean_of(predicted[0, :, 1:], codes[0, :, 1:])
    return result


def nar_logits(models: Models, conditioning: Conditioning, noisy: Tensor, timestep: int) -> Tensor:
    """The NAR's logits (B, T, L, K) of the clean codes."""
    lengths = torch.tensor([noisy.shape[1]])
    return models.nar(noisy, lengths, torch.tensor([timestep]), conditioning)


def mean_of(logits: Tensor, classes: Tensor) -> float:
    """The mean log-likelihood of classes (...) by logits (..., V)."""
    return float(logits.float().log_softmax(dim=-1).gather(-1, classes.unsqueeze(-1)).mean())


def named_tensors(models: Models) -> dict[str, Tensor]:
    """The tensors of both models by name."""
    parts = {"ar": models.ar, "nar": models.nar}
    return {f"{part}.{name}": tensor for part, model in parts.items() for name, tensor in model.state_dict().items()}


def chance(models: Models) -> float:
    """The log-likelihood of a code where all are equally probable."""
    return -float(np.log(models.nar.config.codebook_size))
