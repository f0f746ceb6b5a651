"""The pipeline without PyTorch: the NAR's steps on ONNX Runtime, walk and random numbers on arrays.

Upstream: `base_pipeline`, `engines.onnx` (the graphs).  Downstream: `speech`.
The tokens are the engine's (`generation.loop`). From the same seeds the codes are those of `pipeline` on the CPU, where
logits that differ in the last bits do not change a draw.
Shapes: B rows · R reference frames · T frames · L levels · K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marstts.mars5.array_diffusion import (
    ArraySchedule,
    Draws,
    cosine_schedule,
    gumbel_draw,
    noisy_logs,
    progressive_rates,
    subsample,
)
from marstts.mars5.base_pipeline import BasePipeline, Codes, GivenCodes
from marstts.mars5.prompt import Prompt, Speaker
from marstts.mars5.steps import NUM_TIMESTEPS, DiffusionConfig, JumpNoise, walk, walk_pairs

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StepInputs:
    """Inputs of one reverse step of B rows, but for the codes and the random numbers."""

    lengths: NDArray[np.int64]
    """(B,) frames."""

    text_ids: NDArray[np.int64]
    """(B, S)."""

    text_lengths: NDArray[np.int64]
    """(B,)."""

    speaker: Floats
    """(B, D)."""

    guidance: float
    temperature: float

    num_legal: int
    """Classes from this one on are never drawn."""


@dataclass(frozen=True, eq=False)
class ArrayPipeline(BasePipeline):
    """The pipeline of an `engines.onnx.GraphCodecLM` and a `GraphResidualTransformer`."""

    def speaker_vectors(self, codes: Codes) -> tuple[Floats, Floats]:
        batch, lengths = codes[None], np.array([len(codes)])
        return self.ar.encode_speaker(batch, lengths)[0], self.nar.encode_speaker(batch, lengths)[0]

    def split_embedding(self, embedding: Floats) -> tuple[Floats, Floats]:
        width = self.ar.config.width
        return embedding[:width], embedding[width:]

    def embedding(self, speaker: Speaker) -> Floats:
        return np.concatenate((speaker.ar_vector, speaker.nar_vector))

    def fill(
        self,
        prompts: Sequence[Prompt],
        spoken: Sequence[NDArray[np.int64]],
        rngs: Sequence[np.random.Generator],
    ) -> list[Codes]:
        config = self.profile.effective_config(self.diffusion)
        given = self.given(prompts, spoken)
        draws = Draws([int(rng.integers(2**63)) for rng in rngs], given.lengths, given.codes.shape)
        text_ids, text_lengths = self.text_batch(prompts)
        inputs = StepInputs(
            lengths=np.array(given.lengths),
            text_ids=text_ids,
            text_lengths=text_lengths,
            speaker=np.stack([prompt.speaker.nar_vector for prompt in prompts]),
            guidance=config.nar_guidance_w,
            temperature=config.x_0_temp,
            num_legal=self.num_legal,
        )
        starts = [len(prompt.prefix) for prompt in prompts]
        codes = self.reverse(given, draws, inputs, config, starts)
        return [row[:length] for row, length in zip(codes, given.lengths, strict=True)]

    def reverse(
        self, given: GivenCodes, draws: Draws, inputs: StepInputs, config: DiffusionConfig, starts: Sequence[int]
    ) -> NDArray[np.int64]:
        """Codes (B, T, L) drawn by the reverse process: see `repaint.repaint`."""
        schedule, rules = subsample(cosine_schedule(NUM_TIMESTEPS), config.timesteps), self.profile.reverse
        num_classes = self.nar.config.num_classes
        x = np.where(given.known | given.held, given.codes, draws.classes(num_classes, starts))
        for step, following, counter in walk_pairs(walk(len(schedule), config.jump_len, config.jump_n_sample), config):
            if following < step:
                uniforms = None if config.last_greedy and following < 0 else draws.uniforms(num_classes)
                x_next = self.nar.step(x, schedule, step, inputs, uniforms)
                if following < 0:
                    known = given.codes
                else:
                    rates = schedule.all_steps_to(step - rules.known_lag)
                    known = noised(given.codes, rates, draws.uniforms(num_classes), given.known)
                x = np.where(given.known, known, x_next)
            else:
                x = jump(x, schedule, step + rules.jump_lead, config, counter, draws.uniforms(num_classes))
            if rules.hold(step, following, config.q0_override_steps, schedule):
                x = np.where(given.held, given.codes, x)
        return x


def noised(
    codes: NDArray[np.int64],
    rates: tuple[np.float32, np.float32],
    uniforms: Floats,
    wanted: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """The codes (B, T, L) with noise, where they are `wanted`: others are not computed."""
    if not wanted.any():
        return codes
    keep, lose = (np.asarray(rate, np.float32) for rate in rates)
    return gumbel_draw(noisy_logs(codes, uniforms.shape[-1], keep, lose), uniforms)


def jump(
    x: NDArray[np.int64],
    schedule: ArraySchedule,
    step: int,
    config: DiffusionConfig,
    counter: float,
    uniforms: Floats,
) -> NDArray[np.int64]:
    """x (B, T, L) with the noise of one step added: see `repaint.step_up`."""
    rates = schedule.one_step(step)
    if config.jump_noise is JumpNoise.PROGRESSIVE:
        keep, lose = progressive_rates(rates, x.shape[1], counter, config.jump_len)
    else:
        keep, lose = (np.asarray(rate, np.float32) for rate in rates)
    return gumbel_draw(noisy_logs(x, uniforms.shape[-1], keep, lose), uniforms)
