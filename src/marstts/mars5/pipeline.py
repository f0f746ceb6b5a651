"""The pipeline from a text and a speaker to the codes of all levels: the AR, then the NAR.

Upstream: `prompt`, codes of a recording.  Downstream: a vocoder; `tts`.
The whole utterance is made at once: the NAR rewrites every frame at every step, so no code is final before the end.
Rows of a batch do not influence each other.
Shapes: B rows · S text ids · R reference frames · T frames · L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from marstts.errors import TextError
from marstts.mars5.diffusion import Schedule, cosine_schedule, subsample
from marstts.mars5.generate import Generated, Request, generate
from marstts.mars5.guidance import make_denoiser
from marstts.mars5.nar import Conditioning
from marstts.mars5.profiles import CORRECTED, LengthLimit, Level0, Profile
from marstts.mars5.prompt import CloneMode, Prompt, Speaker, build_prompt, check_codes
from marstts.mars5.repaint import DiffusionConfig, Given, Randomness, repaint
from marstts.mars5.sampling import SamplingConfig
from marstts.mars5.text import JointVocabulary

Codes = NDArray[np.int64]
"""(T, L) frames of codes."""

NUM_TIMESTEPS = 200
"""T of the schedule the published NAR was trained with."""

MAX_TOKENS = 2000
"""Longest sequence of the training, according to the release."""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Both models, their tokenizers, and how they are used."""

    ar: Any
    """An `ar.CodecLM`, or whatever has its `config`, `encode_speaker`, `begin` and `advance`."""

    nar: Any
    """A `nar.ResidualTransformer`, or whatever has its `config`, `encode_speaker`, `null_speaker` and call."""

    vocabulary: JointVocabulary
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    profile: Profile = CORRECTED

    max_tokens: int = MAX_TOKENS
    """Tokens of one utterance, counted as the profile specifies."""

    @property
    def device(self) -> torch.device:
        """Device of the models."""
        parameter = next(self.ar.parameters(), None)
        return torch.device("cpu") if parameter is None else parameter.device

    @torch.inference_mode()
    def speaker(self, codes: Codes, transcript: str | None = None) -> Speaker:
        """Speaker vectors of both models for a reference (R, L); computed once per voice.

        Raises VoiceError where the codes do not fit the models.
        """
        check_codes(codes, self.ar.config.levels, self.ar.config.codebook_size)
        batch = torch.from_numpy(codes)[None].to(self.device)
        lengths = torch.tensor([len(codes)], device=self.device)
        ar_vector, nar_vector = (model.encode_speaker(batch, lengths)[0] for model in (self.ar, self.nar))
        return Speaker(ar_vector, nar_vector, codes, transcript)

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

    def fill(
        self,
        prompts: Sequence[Prompt],
        spoken: Sequence[NDArray[np.int64]],
        rngs: Sequence[np.random.Generator],
    ) -> list[Codes]:
        """The NAR's codes (R + T, L) for level-0 codes (T,), T at least 1: the prefix first, as it was."""
        config = self.profile.effective_config(self.diffusion)
        given = self.given(prompts, spoken)
        lengths = torch.tensor(given.lengths, device=self.device)
        num_classes = self.nar.config.num_classes
        denoise = make_denoiser(
            self.nar,
            self.conditioning(prompts),
            lengths,
            guidance=config.nar_guidance_w,
            temperature=config.x_0_temp,
            num_legal=num_classes if self.profile.padding_is_legal else self.nar.config.codebook_size,
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

    def given(self, prompts: Sequence[Prompt], spoken: Sequence[NDArray[np.int64]]) -> Given:
        """The codes known before the diffusion: prefixes on all levels, level 0 everywhere."""
        lengths = tuple(len(prompt.prefix) + len(level) for prompt, level in zip(prompts, spoken, strict=True))
        shape = (len(prompts), max(lengths), self.nar.config.levels)
        codes = torch.zeros(shape, dtype=torch.long)
        known, held = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
        for row, (prompt, level) in enumerate(zip(prompts, spoken, strict=True)):
            start = len(prompt.prefix)
            codes[row, :start] = torch.from_numpy(prompt.prefix)
            codes[row, start : lengths[row]] = torch.from_numpy(level)[:, None]
            known[row, :start] = True
            held[row, : lengths[row], 0] = True
        if self.profile.level0 is Level0.KEPT:
            known = known | held
        return Given(codes.to(self.device), known.to(self.device), held.to(self.device), lengths)

    def conditioning(self, prompts: Sequence[Prompt]) -> Conditioning:
        """Texts and speakers of the prompts, side by side."""
        lengths = [len(prompt.text_ids) for prompt in prompts]
        text_ids = torch.zeros(len(prompts), max(lengths), dtype=torch.long)
        for row, prompt in zip(text_ids, prompts, strict=True):
            row[: len(prompt.text_ids)] = torch.from_numpy(prompt.text_ids)
        return Conditioning(
            text_ids=text_ids.to(self.device),
            text_lengths=torch.tensor(lengths, device=self.device),
            speaker=torch.stack([prompt.speaker.nar_vector for prompt in prompts]),
        )
