"""The pipeline from a text and a speaker to the codes of all levels: prompts, level 0, the diffusion.

Upstream: `prompt`, codes of a recording, the AR's tokens (`generation.loop`).  Downstream: `speech`.
The whole utterance is made at once: the NAR rewrites every frame at every step, so no code is final before the end.
Rows of a batch do not influence each other.
Shapes: B rows · S text ids · R reference frames · T frames · L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.errors import TextError
from marstts.mars5.ar import CodecLM
from marstts.mars5.checkpoint import Models
from marstts.mars5.diffusion import NUM_TIMESTEPS, ReverseStep, cosine_schedule, subsample
from marstts.mars5.engine import device_of, padded
from marstts.mars5.nar import Conditioning, ResidualTransformer
from marstts.mars5.profiles import CORRECTED, Profile
from marstts.mars5.prompt import CloneMode, Mars5Prompt, Speaker, build_prompt, check_codes
from marstts.mars5.repaint import DiffusionConfig, Draws, Given, repaint

Codes = NDArray[np.int64]
"""(T, L) frames of codes."""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Both models, their tokenizers, and how they are used."""

    models: Models
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    profile: Profile = CORRECTED

    def speaker(self, codes: Codes, transcript: str | None = None) -> Speaker:
        """Speaker vectors of both models for a reference (R, L); computed once per voice.

        Raises VoiceError where the codes do not fit the models.
        """
        ar, nar = self.models.ar, self.models.nar
        check_codes(codes, ar.config.levels, ar.config.codebook_size)
        return Speaker(speaker_vector(ar, codes), speaker_vector(nar, codes), codes, transcript)

    def prompt(self, text: str, speaker: Speaker, mode: CloneMode) -> Mars5Prompt:
        """`text` to be spoken by `speaker`.

        Raises TextError where the text is empty or too long, VoiceError where a deep clone lacks its transcript.
        """
        prompt = build_prompt(text, speaker, mode, self.models.vocabulary, spell=self.profile.spell)
        num_tokens, window = len(prompt.tokens), self.models.ar.config.window
        if num_tokens > window:
            raise TextError(
                f"text and reference make a prompt of {num_tokens} tokens, but the model attends to {window}: "
                "speak the text in pieces, or give a shorter reference"
            )
        return prompt

    def level0(self, prompt: Mars5Prompt, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Level-0 codes (T,) of generated tokens (N,), after the reference's where the profile requires it."""
        if self.profile.reference_copies > 1:
            tokens = np.concatenate((prompt.speech_ids, tokens))
        return self.models.vocabulary.decode_speech(tokens[self.profile.skipped_tokens :])

    def codes(
        self,
        prompts: Sequence[Mars5Prompt],
        tokens: Sequence[NDArray[np.int64]],
        rngs: Sequence[np.random.Generator],
    ) -> list[Codes]:
        """All levels (T, L) of the new speech of each prompt, whose AR tokens (N,) are given; T may be 0."""
        spoken = [self.level0(prompt, ids) for prompt, ids in zip(prompts, tokens, strict=True)]
        levels = self.models.nar.config.levels
        results = [np.zeros((0, levels), dtype=np.int64) for _ in prompts]
        rows = [index for index, level in enumerate(spoken) if len(level)]
        if not rows:
            return results
        filled = self.fill([prompts[row] for row in rows], [spoken[row] for row in rows], [rngs[row] for row in rows])
        for row, codes in zip(rows, filled, strict=True):
            results[row] = codes[len(prompts[row].prefix) * self.profile.reference_copies :]
        return results

    def fill(
        self,
        prompts: Sequence[Mars5Prompt],
        spoken: Sequence[NDArray[np.int64]],
        rngs: Sequence[np.random.Generator],
    ) -> list[Codes]:
        """The NAR's codes (R + T, L) for level-0 codes (T,), T at least 1: the prefix first, as it was."""
        config, nar = self.profile.effective_config(self.diffusion), self.models.nar
        given = self.given(prompts, spoken)
        step = ReverseStep(
            nar,
            subsample(cosine_schedule(NUM_TIMESTEPS), config.timesteps).to(given.codes.device),
            self.conditioning(prompts),
            torch.tensor(given.lengths, device=given.codes.device),
            guidance=config.nar_guidance_w,
            temperature=config.x_0_temp,
            num_legal=nar.config.codebook_size,
        )
        codes = repaint(
            step,
            given,
            step.schedule,
            config,
            Draws([int(rng.integers(2**63)) for rng in rngs], given),
            num_classes=nar.config.num_classes,
            starts=[len(prompt.prefix) for prompt in prompts],
            rules=self.profile.reverse,
        )
        return [row[:length] for row, length in zip(codes.cpu().numpy(), given.lengths, strict=True)]

    def given(self, prompts: Sequence[Mars5Prompt], spoken: Sequence[NDArray[np.int64]]) -> Given:
        """The codes known before the diffusion: prefixes on all levels, level 0 everywhere."""
        lengths = tuple(len(prompt.prefix) + len(level) for prompt, level in zip(prompts, spoken, strict=True))
        shape = (len(prompts), max(lengths), self.models.nar.config.levels)
        codes = np.zeros(shape, np.int64)
        known, held = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        for row, (prompt, level) in enumerate(zip(prompts, spoken, strict=True)):
            start = len(prompt.prefix)
            codes[row, :start] = prompt.prefix
            codes[row, start : lengths[row]] = level[:, None]
            known[row, :start] = True
            held[row, : lengths[row], 0] = True
        if self.profile.level0_is_inpainted:
            known = known | held
        device = device_of(self.models.nar)
        tensors = [torch.from_numpy(part).to(device) for part in (codes, known, held)]
        return Given(tensors[0], tensors[1], tensors[2], lengths)

    def conditioning(self, prompts: Sequence[Mars5Prompt]) -> Conditioning:
        """Texts and speakers of the NAR."""
        ids, lengths = padded([prompt.text_ids for prompt in prompts])
        speakers = np.stack([prompt.speaker.nar_vector for prompt in prompts])
        device = device_of(self.models.nar)
        return Conditioning(*(torch.from_numpy(part).to(device) for part in (ids, lengths, speakers)))


@torch.inference_mode()
def speaker_vector(model: CodecLM | ResidualTransformer, codes: Codes) -> NDArray[np.float32]:
    """(D,) of a model's speaker encoder for a reference (R, L)."""
    device = device_of(model)
    vectors: Tensor = model.encode_speaker(
        torch.from_numpy(codes)[None].to(device), torch.tensor([len(codes)], device=device)
    )
    return np.asarray(vectors[0].float().cpu().numpy(), np.float32)
