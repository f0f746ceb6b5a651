"""The rules of the published script of mars6-turbo, as a session of this package follows them in comparisons.

Kept as published: the mapping of marks and the cutting into chunks, limits by text tokens, references as they are,
chunks joined end to end.
Corrected: every chunk starts at the lowest top-p, no chunk is dropped, the shortest allowed take is accepted, an
unusual transcript does not change the mode, and a one-patch reference gives no prefix, not an error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from turbo_text import map_punctuation, split_chunks

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import TextError
from marstts.generation.loop import generate
from marstts.generation.request import Limits
from marstts.synthesis.clone.references import open_reference, sha256_of, source_name
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.speech import Continuation, Speech, Take, first_voice
from marstts.voice import Prefix, Voice

PATCHES_PER_SECOND = 12
"""The nominal rate by which the published code measures time."""

FASTEST_CHARACTERS_PER_SECOND = 32
SPARE_PATCHES, PATCHES_PER_TOKEN = 30, 2.6
FIRST_TOP_P, TOP_P_STEP, ATTEMPTS = 0.2, 0.2, 11
MIN_LOUDNESS = -52.0
MIN_TRANSCRIPT, MAX_TRANSCRIPT = 4, 300
"""Characters; other transcripts are not used."""


@dataclass(frozen=True, eq=False)
class TurboCompat:
    """A session that follows the published script."""

    synthesizer: ModelSession
    mode: Continuation = Continuation.PER_CHUNK

    def clone(self, reference: Waveform | Path | str, transcript: str | None = None) -> Voice:
        """The voice of a recording taken as it is; deep with a transcript of 4 to 300 characters."""
        parts = self.synthesizer
        waveform = audio.resample(open_reference(reference), parts.codec.spec.sample_rate)
        return Voice(
            name=Path(source_name(reference)).stem,
            embeddings={role: encoder.embed(waveform) for role, encoder in parts.encoders.items()},
            prefix=self.make_prefix(waveform, map_punctuation((transcript or "").strip())),
            codec=parts.codec.spec.name,
            encoders=parts.encoder_names,
            source_sha256=sha256_of(reference),
            consent="",
        )

    def make_prefix(self, waveform: Waveform, transcript: str) -> Prefix | None:
        """The reference's codes but for the last patch, which may be half padding."""
        if not MIN_TRANSCRIPT <= len(transcript) <= MAX_TRANSCRIPT:
            return None
        layout = self.synthesizer.codec.spec.patch_layout
        codes = self.synthesizer.codec.encode(waveform)
        kept = tuple(level[:-count] for level, count in zip(codes, layout, strict=True))
        return Prefix(transcript, kept) if len(kept[0]) else None

    def speak(self, text: str, voice: Voice, *, seed: int = 0) -> Speech:
        """`text` in a voice made by `clone`.

        Raises TextError for a text without words, VoiceError where the voice was made for another model.
        """
        started = time.perf_counter()
        self.synthesizer.check_fits(voice)
        chunks = [chunk for chunk in split_chunks(map_punctuation(text)) if chunk]
        if not chunks:
            raise TextError("there is nothing to say: the text is empty")
        takes, voice = [], first_voice(voice, self.mode)
        for index, chunk in enumerate(chunks):
            take = first_valid(self.attempts(chunk, voice, (seed, index)))
            if self.mode is Continuation.PER_CHUNK and len(take.codes[0]):
                voice = replace(voice, prefix=Prefix(chunk, take.codes))
            takes.append(take)
        seconds = time.perf_counter() - started
        joined = Waveform(np.concatenate([take.waveform.samples for take in takes]), takes[0].waveform.sample_rate)
        return Speech(
            waveform=audio.trim_silence(joined),
            takes=tuple(takes),
            model=self.synthesizer.name,
            seed=seed,
            compute_seconds=seconds,
            first_audio_seconds=seconds,
            text_warning=None,
        )

    def attempts(self, chunk: str, voice: Voice, seed: tuple[int, ...]) -> Iterator[Take]:
        """Takes of one chunk, with rising top-p."""
        parts, model = self.synthesizer, self.synthesizer.model
        prompt = model.prompt(chunk, voice)
        limits = limits_of(chunk, num_text_tokens(prompt))
        for attempt in range(ATTEMPTS):
            top_p = min(1.0, round(FIRST_TOP_P + attempt * TOP_P_STEP, 2))
            rng = np.random.default_rng((*seed, attempt))
            [generated] = generate(
                model.engine, [prompt], top_p=[top_p], limits=[limits], rngs=[rng], sampling=parts.sampling
            )
            codes = model.codes(generated.tokens, rng, prompt)
            waveform = parts.codec_of(voice).decode(codes)
            yield Take(text=chunk, codes=codes, waveform=waveform, stop=generated.stop, top_p=top_p)


def num_text_tokens(prompt: Any) -> int:
    """Text tokens of a MARS6 prompt, transcript included: the published script measures text by them."""
    return len(prompt.text_ids)


def limits_of(chunk: str, num_tokens: int) -> Limits:
    """Bounds on the patches of a chunk whose prompt, transcript included, has `num_tokens` tokens."""
    longest = SPARE_PATCHES + int(PATCHES_PER_TOKEN * num_tokens)
    shortest = math.ceil(PATCHES_PER_SECOND * len(chunk) / FASTEST_CHARACTERS_PER_SECOND)
    return Limits(min(shortest, longest), longest)


def first_valid(takes: Iterator[Take]) -> Take:
    """The first take that is long and loud enough, else the loudest, with a warning."""
    tried: list[tuple[float, Take]] = []
    for take in takes:
        loudness = audio.loudness_lufs(take.waveform) if len(take.waveform.samples) else -math.inf
        shortest = len(take.text) / FASTEST_CHARACTERS_PER_SECOND
        if loudness >= MIN_LOUDNESS and len(take.codes[0]) / PATCHES_PER_SECOND >= shortest:
            return replace(take, attempts=len(tried) + 1)
        tried.append((loudness, take))
    _, best = max(tried, key=lambda pair: pair[0])
    return replace(best, attempts=len(tried), warning=f"“{best.text}”: no take was long and loud enough")
