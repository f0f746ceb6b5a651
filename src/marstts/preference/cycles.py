"""Cycles: both halves of mined takes, generated in one batch each.

Upstream: `mine`, which plans them; a synthesizer.  Downstream: `data.mined_takes`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codes
from marstts.data.mined_takes import GeneratedHalf, Half, MinedTake, PlannedTake, write_takes
from marstts.errors import MarsError
from marstts.generation.loop import generate
from marstts.synthesis.clone import ReferenceWarning, clone
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice


def clone_any(synthesizer: Synthesizer, reference: Path | Waveform, transcript: str | None = None) -> Voice:
    """The voice of a reference, whether it holds speech or not: the output of a weak model must not be excluded."""
    return clone(
        reference,
        transcript,
        codec=synthesizer.codec,
        encoders=synthesizer.encoders,
        keep_reference=False,
        min_speech_ratio=0.0,
    )


class CycleGenerator:
    """Generates cycles with a model, many in a batch."""

    def __init__(self, synthesizer: Synthesizer, *, deep_clone: bool = False, top_p: float | None = None) -> None:
        self.synthesizer, self.deep_clone = synthesizer, deep_clone
        self.top_p = synthesizer.sampling.top_p if top_p is None else top_p

    def write(self, plans: Sequence[PlannedTake], path: Path) -> None:
        """Generate planned takes and write their shard."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReferenceWarning)  # of corpus recordings: too many to read
            takes = self.generate_cycles(plans)
        sizes = {role: encoder.size for role, encoder in self.synthesizer.encoders.items()}
        write_takes(takes, path, self.synthesizer.codec.spec.patch_layout, sizes)

    def generate_cycles(self, plans: Sequence[PlannedTake]) -> list[MinedTake]:
        """Both halves of every cycle; errors are kept in the take."""
        errors: dict[str, str] = {}
        ground_truths = {plan.id: self.encode_ground_truth(plan, errors) for plan in plans}
        voices = {plan: self.clone(plan, plan.audio, plan.transcript, errors) for plan in plans}
        forward = self.generate_half(Half.FORWARD, voices)
        cloned = {
            plan: None if (one := forward.get(plan.id)) is None else self.clone_output(plan, voice, one, errors)
            for plan, voice in voices.items()
        }
        cycle = self.generate_half(Half.CYCLE, cloned)
        return [
            MinedTake(
                plan=plan,
                top_p=self.top_p,
                ground_truth=ground_truths[plan.id],
                forward=forward.get(plan.id),
                cycle=cycle.get(plan.id),
                error=errors.get(plan.id),
            )
            for plan in plans
        ]

    def encode_ground_truth(self, plan: PlannedTake, errors: dict[str, str]) -> Codes:
        """The codes of the recording, none where it cannot be read."""
        try:
            return self.synthesizer.codec.encode(audio.read(plan.audio))
        except MarsError as error:
            errors[plan.id] = str(error)
            return self.no_codes()

    def clone(
        self, plan: PlannedTake, reference: Path | Waveform, transcript: str, errors: dict[str, str]
    ) -> Voice | None:
        """The voice of a reference, as in synthesis, or None and an error."""
        if plan.id in errors:
            return None
        try:
            return clone_any(self.synthesizer, reference, transcript if self.deep_clone else None)
        except MarsError as error:
            errors[plan.id] = str(error)
            return None

    def clone_output(
        self, plan: PlannedTake, voice: Voice | None, half: GeneratedHalf, errors: dict[str, str]
    ) -> Voice | None:
        """The voice of the output of the first half, which was generated in `voice`."""
        assert voice is not None, "nothing is generated without a voice"
        return self.clone(plan, self.synthesizer.decode(half.codes, voice), plan.text, errors)

    def generate_half(self, half: Half, voices: Mapping[PlannedTake, Voice | None]) -> dict[str, GeneratedHalf]:
        """One half of every cycle that has a voice, in one batch."""
        ready = [(plan, voice) for plan, voice in voices.items() if voice is not None]
        if not ready:
            return {}
        model, rate = self.synthesizer.model, self.synthesizer.codec.spec.patch_rate
        texts = [plan.text if half is Half.FORWARD else plan.transcript for plan, _ in ready]
        rngs = [np.random.default_rng((plan.seed, half is Half.CYCLE)) for plan, _ in ready]
        prompts = [model.prompt(text, voice) for text, (_, voice) in zip(texts, ready, strict=True)]
        generated = generate(
            model.engine,
            prompts,
            top_p=[self.top_p] * len(ready),
            limits=[self.synthesizer.backoff.limits(text, rate) for text in texts],
            rngs=rngs,
            sampling=model.sampling,
        )
        return {
            plan.id: GeneratedHalf(
                embeddings=voice.embeddings,
                prefix=self.no_codes() if voice.prefix is None else voice.prefix.codes,
                codes=model.codes(one.tokens, rng, prompt),
                stop=one.stop,
            )
            for (plan, voice), one, rng, prompt in zip(ready, generated, rngs, prompts, strict=True)
        }

    def no_codes(self) -> Codes:
        """Codes of no patches."""
        return tuple(np.zeros(0, np.int64) for _ in self.synthesizer.codec.spec.patch_layout)
