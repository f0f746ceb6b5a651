"""The pipeline from a text and a speaker to the codes of all levels: prompts, level 0, the diffusion.

Upstream: `prompt`, codes of a recording, the AR's tokens (`generation.loop`).  Downstream: `speech`, `tts`.
The whole utterance is made at once: the NAR rewrites every frame at every step, so no code is final before the end.
Rows of a batch do not influence each other. From the same seeds all runtimes draw the same codes, where logits that
differ in the last bits do not change a draw.
Shapes: B rows · S text ids · R reference frames · T frames · L levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from marstts.errors import TextError
from marstts.mars5.profiles import CORRECTED, Profile
from marstts.mars5.prompt import CloneMode, Mars5Prompt, Speaker, build_prompt, check_codes
from marstts.mars5.repaint import Draws, Given, repaint
from marstts.mars5.runtime import RunnableModels, StepInputs
from marstts.mars5.steps import NUM_TIMESTEPS, DiffusionConfig, cosine_schedule, subsample

Codes = NDArray[np.int64]
"""(T, L) frames of codes."""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Both models in a runtime, their tokenizers, and how they are used."""

    models: RunnableModels
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    profile: Profile = CORRECTED

    def speaker(self, codes: Codes, transcript: str | None = None) -> Speaker:
        """Speaker vectors of both models for a reference (R, L); computed once per voice.

        Raises VoiceError where the codes do not fit the models.
        """
        ar, nar = self.models.ar, self.models.nar
        check_codes(codes, ar.config.levels, ar.config.codebook_size)
        batch, lengths = codes[None], np.array([len(codes)])
        return Speaker(ar.encode_speaker(batch, lengths)[0], nar.encode_speaker(batch, lengths)[0], codes, transcript)

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
        schedule = subsample(cosine_schedule(NUM_TIMESTEPS), config.timesteps)
        codes = repaint(
            lambda noisy, step, uniforms: nar.step(noisy, schedule, step, inputs, uniforms),
            given,
            schedule,
            config,
            Draws([int(rng.integers(2**63)) for rng in rngs], given.lengths, given.codes.shape),
            num_classes=nar.config.num_classes,
            starts=[len(prompt.prefix) for prompt in prompts],
            rules=self.profile.reverse,
        )
        return [row[:length] for row, length in zip(codes, given.lengths, strict=True)]

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
        return Given(codes, known, held, lengths)

    def text_batch(self, prompts: Sequence[Mars5Prompt]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Text ids (B, S), padded with 0, and their lengths (B,)."""
        lengths = [len(prompt.text_ids) for prompt in prompts]
        ids = np.zeros((len(prompts), max(lengths)), np.int64)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt.text_ids)] = prompt.text_ids
        return ids, np.array(lengths)

    @property
    def num_legal(self) -> int:
        """Classes that the NAR may draw: all, or those that are no padding."""
        config = self.models.nar.config
        return int(config.num_classes if self.profile.padding_is_legal else config.codebook_size)


# Cutting silence off both ends of a waveform, as the release does.
# The corrected profile uses `audio.trim_silence`, which pads the edges
# with silence; the release pads them with a reflection, as here.

FRAME, HOP = 2048, 512
SMALLEST_RMS = 1e-5


def audible_span(samples: NDArray[np.float32], top_db: float) -> tuple[int, int]:
    """First and last sample (exclusive) of the frames that are at most `top_db` below the loudest; samples (N,).

    All of it where there are too few samples to reflect: the published code fails there.
    """
    if len(samples) <= FRAME // 2:
        return 0, len(samples)
    padded = np.pad(samples.astype(np.float64), FRAME // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    loudness = 20 * np.log10(np.maximum(np.sqrt((frames**2).mean(axis=1)), SMALLEST_RMS))
    audible = np.flatnonzero(loudness > loudness.max() - top_db)
    return int(audible[0]) * HOP, min(len(samples), (int(audible[-1]) + 1) * HOP)
