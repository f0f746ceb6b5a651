"""The synthesizer: text and a voice in, speech out.

Upstream: `loading.load`, which gathers its parts.  Downstream: command line, notebooks, evaluation.
MARS6 (arXiv:2501.05787), Sec. IV.  Deviations: every sentence starts at the lowest top-p, whatever the last one needed.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec, Codes
from marstts.errors import ConfigError, TextError
from marstts.mars6.generate import Generated, Job, SamplingConfig, Stepper
from marstts.mars6.patches import unpatchify
from marstts.mars6.prompt import build_prompt
from marstts.speaker.base import SpeakerEncoder
from marstts.synthesis import clone as cloning
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.continuation import Continuation
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, Speech, Take, join, silence
from marstts.text.bpe import BPE
from marstts.text.normalize import normalize
from marstts.text.sentences import split_sentences
from marstts.voice import Voice

if TYPE_CHECKING:
    from marstts.engine.batcher import LiveBatcher
    from marstts.synthesis.many import Spoken
    from marstts.synthesis.stream import Chunk, StreamConfig

SIDE_BY_SIDE = 8
"""Sentences spoken at a time: each takes a quarter of the time that it takes alone."""

OnTake = Callable[[Take, int, int], None]
"""Called after every sentence with its take, how many are spoken by then, and the number of sentences."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Synthesizer:
    """A model with all its neighbours, ready to speak. Holds no state: calls do not influence each other."""

    name: str
    tokenizer: BPE
    codec: Codec
    identity_encoder: SpeakerEncoder
    style_encoder: SpeakerEncoder
    stepper: Stepper

    quality: int | None = 48000
    """Sample rate promised to the model by the quality prefix (Sec. IV-B2); None leaves the prefix out."""

    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    backoff: BackoffConfig = field(default_factory=BackoffConfig)

    def clone(
        self,
        reference: Waveform | Path | str,
        transcript: str | None = None,
        *,
        name: str | None = None,
        consent: str = "",
    ) -> Voice:
        """The voice of a recording: shallow by itself, deep with the `transcript` of what is said in it.

        See `synthesis.clone.clone` for what a reference must be.
        """
        return cloning.clone(
            reference,
            transcript,
            codec=self.codec,
            identity_encoder=self.identity_encoder,
            style_encoder=self.style_encoder,
            name=name,
            consent=consent,
        )

    def speak(
        self,
        text: str,
        voice: Voice,
        *,
        seed: int = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        on_take: OnTake | None = None,
    ) -> Speech:
        """`text` in `voice`, sentences side by side. `top_p` is where backoff starts (default: `self.sampling.top_p`).

        Raises TextError where there is nothing to speak, VoiceError where the voice was made for another model.
        What cannot be spoken or comes out flawed is told in `Speech.warnings`.
        """
        from marstts.synthesis.many import Wanted, speak_wanted

        top_p = self.sampling.top_p if top_p is None else top_p
        wanted = Wanted(number=1, text=text, voice=voice, seed=seed)
        [spoken] = speak_wanted(self, iter([wanted]), top_p=top_p, continuation=continuation, on_take=on_take)
        if spoken.speech is None:
            assert spoken.problem is not None
            raise spoken.problem
        return spoken.speech

    def stream(
        self,
        text: str,
        voice: Voice,
        *,
        seed: int = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        config: StreamConfig | None = None,
        batcher: LiveBatcher | None = None,
    ) -> Generator[Chunk, None, None]:
        """As `speak`, but the audio comes in chunks, the first of them after a few patches.

        Closing the iterator stops all work within a patch. Streams may share a `batcher` made for `self.stepper`.
        `synthesis.stream` tells how edges, loudness and flawed takes differ from `speak`, which has the whole.
        Raises as `speak`, before the first chunk is asked for.
        """
        from marstts.synthesis.stream import StreamConfig, stream_sentences

        top_p = self.sampling.top_p if top_p is None else top_p
        return stream_sentences(
            self,
            self.sentences(text, voice, seed, top_p),
            voice,
            seed=seed,
            top_p=top_p,
            continuation=continuation,
            config=config or StreamConfig(),
            batcher=batcher,
            text_warning=warn_of_unspeakable(text),
        )

    def speak_many(
        self,
        texts: Sequence[str],
        voices: Voice | Sequence[Voice],
        *,
        seeds: int | Sequence[int] = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        batch: int = SIDE_BY_SIDE,
    ) -> Generator[Spoken, None, None]:
        """Each text as `speak` would speak it, with at most `batch` sentences at a time, as they are done.

        Voice and seed are one for all, or one for each text. A text that cannot be spoken comes with its problem, and
        the others are spoken all the same. Raises ConfigError where the numbers of texts, voices and seeds differ.
        """
        from marstts.synthesis.many import pair_up, speak_wanted

        top_p = self.sampling.top_p if top_p is None else top_p
        wanted = pair_up(texts, voices, seeds)
        return speak_wanted(self, iter(wanted), top_p=top_p, continuation=continuation, batch=batch)

    def sentences(self, text: str, voice: Voice, seed: int, top_p: float) -> list[str]:
        """The sentences of `text` as they will be read, once all that is wanted is found to be possible.

        Raises ConfigError, VoiceError or TextError, as `speak`.
        """
        check_choices(seed, top_p)
        voice.check_fits(self.codec.spec.name, self.identity_encoder.name, self.style_encoder.name)
        return speakable_sentences(text)

    def gather(
        self, text: str, takes: Sequence[Take], *, seed: int, started: float, first_audio_seconds: float
    ) -> Speech:
        """The takes of a text as one speech that has been in the making since `started` (of `time.perf_counter`)."""
        return Speech(
            waveform=join(takes),
            takes=tuple(takes),
            model=self.name,
            seed=seed,
            compute_seconds=time.perf_counter() - started,
            first_audio_seconds=first_audio_seconds,
            text_warning=warn_of_unspeakable(text),
        )

    def jobs(self, sentence: str, voice: Voice, top_p: float, seed: tuple[int, ...]) -> Iterator[Job]:
        """What the engine is asked for at each attempt at a sentence, ever bolder (Sec. IV-B3).

        Each has a generator of its own, made from `seed` and the number of the attempt.
        """
        prompt = build_prompt(sentence, voice, self.tokenizer, self.stepper.config, self.quality)
        limits = self.backoff.limits(sentence, self.codec.spec.patch_rate)
        for attempt, rung in enumerate(self.backoff.ladder(top_p)):
            yield Job(prompt, rung, limits, np.random.default_rng((*seed, attempt)), self.sampling)

    def listen(self, sentence: str, generated: Generated, top_p: float, decoded: Waveform | None = None) -> Take:
        """The generated tokens as a take one can hear, silent edges trimmed; `decoded` if they are decoded already."""
        config = self.stepper.config
        codes = unpatchify(generated.tokens, config.patch_layout, config.codebook_size)
        waveform = self.decode(codes) if decoded is None else decoded
        trimmed = audio.trim_silence(waveform, below_peak_db=EDGE_BELOW_PEAK_DB)
        return Take(text=sentence, codes=codes, waveform=trimmed, stop=generated.stop, top_p=top_p)

    def decode(self, codes: Codes) -> Waveform:
        """The audio of `codes`; no samples where there are no codes."""
        return self.codec.decode(codes) if len(codes[0]) else silence(0.0, self.codec.spec.sample_rate)


def check_choices(seed: int, top_p: float) -> None:
    """Raise ConfigError where a choice of the caller is impossible."""
    if not 0.0 <= top_p <= 1.0:
        raise ConfigError(f"top_p must lie between 0 (greedy) and 1 (everything), but is {top_p:g}")
    if seed < 0:
        raise ConfigError(f"the seed must be 0 or more, but is {seed}")


def speakable_sentences(text: str) -> list[str]:
    """The sentences of `text` as they will be read; raises TextError where there is none."""
    sentences = [sentence for sentence in split_sentences(normalize(text)) if has_words(sentence)]
    if not sentences:
        raise TextError(f"{excerpt(text)}: there is nothing to speak in it; give a text with words or numbers")
    return sentences


def has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def warn_of_unspeakable(text: str) -> str | None:
    """A sentence that names the letters and symbols of `text` that no reading exists for, if there are any."""
    candidates = dict.fromkeys(c for c in text if not c.isascii() and unicodedata.category(c)[0] in "LNS")
    lost = [character for character in candidates if not has_words(normalize(character))]
    if not lost:
        return None
    shown = " ".join(lost[:10]) + (" …" if len(lost) > 10 else "")
    return f"left out what cannot be spoken: {shown}"


def excerpt(text: str) -> str:
    """The start of `text`, quoted, for a message."""
    return repr(text if len(text) <= 40 else text[:39] + "…") if text.strip() else "the text is empty"
