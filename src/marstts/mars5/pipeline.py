"""The pipeline from a text and a speaker to the codes of all levels in PyTorch: the AR, then the NAR.

Upstream: `base_pipeline`, `prompt`.  Downstream: a vocoder; `tts`, `speech`.
Shapes: B rows · R reference frames · T frames · L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.mars5.base_pipeline import BasePipeline, Codes, GivenCodes
from marstts.mars5.diffusion import Schedule, cosine_schedule, subsample
from marstts.mars5.generate import Generated, Request, generate
from marstts.mars5.guidance import make_denoiser
from marstts.mars5.nar import Conditioning
from marstts.mars5.profiles import LengthLimit
from marstts.mars5.prompt import Prompt, Speaker
from marstts.mars5.repaint import Given, Randomness, repaint
from marstts.mars5.steps import NUM_TIMESTEPS, DiffusionConfig


@dataclass(frozen=True, eq=False)
class Pipeline(BasePipeline):
    """The pipeline of an `ar.CodecLM` and a `nar.ResidualTransformer`."""

    @property
    def device(self) -> torch.device:
        """Device of the models."""
        device: torch.device = next(self.ar.parameters()).device
        return device

    @torch.inference_mode()
    def speaker_vectors(self, codes: Codes) -> tuple[Tensor, Tensor]:
        batch = torch.from_numpy(codes)[None].to(self.device)
        lengths = torch.tensor([len(codes)], device=self.device)
        return self.ar.encode_speaker(batch, lengths)[0], self.nar.encode_speaker(batch, lengths)[0]

    def split_embedding(self, embedding: NDArray[np.float32]) -> tuple[Tensor, Tensor]:
        width = self.ar.config.width
        ar_vector, nar_vector = torch.from_numpy(embedding).to(self.device).split([width, len(embedding) - width])
        return ar_vector, nar_vector

    def embedding(self, speaker: Speaker) -> NDArray[np.float32]:
        return torch.cat((speaker.ar_vector.float(), speaker.nar_vector.float())).cpu().numpy()

    def generate(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Generated]:
        """The AR's speech tokens for each prompt."""
        requests = [self.request(prompt, rng) for prompt, rng in zip(prompts, rngs, strict=True)]
        return generate(
            self.ar,
            requests,
            self.sampling,
            first_legal=self.vocabulary.offset - self.profile.legal_text_ids,
            end=self.vocabulary.end,
        )

    def request(self, prompt: Prompt, rng: np.random.Generator) -> Request:
        """The loop's input for a prompt."""
        counted = len(prompt.tokens) if self.profile.limit is LengthLimit.WHOLE else 0
        return Request(
            tokens=prompt.tokens,
            speaker=prompt.speaker.ar_vector,
            max_tokens=self.max_tokens - counted,
            estimate=round(self.sampling.eos_estimated_gen_length_factor * prompt.num_characters),
            rng=rng,
        )

    def fill(
        self,
        prompts: Sequence[Prompt],
        spoken: Sequence[NDArray[np.int64]],
        rngs: Sequence[np.random.Generator],
    ) -> list[Codes]:
        """The NAR's codes (R + T, L) for level-0 codes (T,), T at least 1: the prefix first, as it was."""
        config = self.profile.effective_config(self.diffusion)
        given = self.tensors(self.given(prompts, spoken))
        lengths = torch.tensor(given.lengths, device=self.device)
        num_classes = self.nar.config.num_classes
        denoise = make_denoiser(
            self.nar,
            self.conditioning(prompts),
            lengths,
            guidance=config.nar_guidance_w,
            temperature=config.x_0_temp,
            num_legal=self.num_legal,
        )
        generators = [torch.Generator().manual_seed(int(rng.integers(2**63))) for rng in rngs]
        codes = repaint(
            denoise,
            given,
            self.schedule(config).to(self.device),
            config,
            Randomness(generators, given),
            num_classes=num_classes,
            starts=[len(prompt.prefix) for prompt in prompts],
            rules=self.profile.reverse,
        )
        return [row[:length].cpu().numpy() for row, length in zip(codes, given.lengths, strict=True)]

    def schedule(self, config: DiffusionConfig) -> Schedule:
        """The steps to be made."""
        return subsample(cosine_schedule(NUM_TIMESTEPS), config.timesteps)

    def tensors(self, given: GivenCodes) -> Given:
        """The same on the device of the models."""
        codes, known, held = (torch.from_numpy(part).to(self.device) for part in (given.codes, given.known, given.held))
        return Given(codes, known, held, given.lengths)

    def conditioning(self, prompts: Sequence[Prompt]) -> Conditioning:
        """Texts and speakers of the prompts, side by side."""
        ids, lengths = self.text_batch(prompts)
        return Conditioning(
            text_ids=torch.from_numpy(ids).to(self.device),
            text_lengths=torch.from_numpy(lengths).to(self.device),
            speaker=torch.stack([prompt.speaker.nar_vector for prompt in prompts]),
        )
