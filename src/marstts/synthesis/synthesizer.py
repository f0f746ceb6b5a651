"""The synthesizer: text and a voice in, speech out.

Upstream: `loading.load`, which opens its parts.  Downstream: command line, notebooks, evaluation, servers.
MARS6 (arXiv:2501.05787), Sec. IV.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marstts.audio import Waveform
from marstts.errors import ConfigError
from marstts.generation.scheduler import AsyncScheduler
from marstts.lazy import lazy_module
from marstts.synthesis import clone as cloning
from marstts.synthesis.batch import DEFAULT_BATCH, SpeakRequest, SpeakResult, pair_up, run_requests, speech_of
from marstts.synthesis.continuation import Continuation
from marstts.synthesis.incremental_decoder import ChunkSizes, StreamConfig
from marstts.synthesis.model_session import ModelSession, OnTake
from marstts.synthesis.speech import Speech
from marstts.synthesis.stream import Chunk, stream_text
from marstts.synthesis.styled import Part, join_parts, split_parts
from marstts.synthesis.voices import open_voice, voice_of_part
from marstts.voice import Voice

if TYPE_CHECKING:
    from marstts.synthesis import in_order, styled_stream
    from marstts.synthesis.in_order import SpokenSentence
else:
    in_order = lazy_module("marstts.synthesis.in_order")
    styled_stream = lazy_module("marstts.synthesis.styled_stream")

SSML_TAG, SSML_START = "<speak", 2000
"""A text is SSML only if it has this tag within its first characters."""

AnyVoice = Voice | Path | str | None
"""A voice, a packaged voice's name, a path to a voice file or recording, or None for the default voice."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Synthesizer(ModelSession):
    """A model that is ready to speak. It has no state: calls do not influence each other.

    `speak`, `stream` and `speak_many` may share one `AsyncScheduler` made for `self.engine`, so that many callers run
    in one batch. Their results do not depend on it.
    """

    def clone(
        self,
        reference: Waveform | Path | str,
        transcript: str | None = None,
        *,
        name: str | None = None,
        consent: str = "",
        keep_reference: bool = True,
    ) -> Voice:
        """Clone the voice of a recording: a shallow clone, or with the `transcript` of the recording a deep one.

        See `synthesis.clone.clone` for the requirements on a reference.
        """
        return cloning.clone(
            reference,
            transcript,
            codec=self.codec,
            encoders=self.encoders,
            model=self.model,
            name=name,
            consent=consent,
            keep_reference=keep_reference,
        )

    def open_voice(self, voice: AnyVoice = None) -> Voice:
        """Open a voice for this model: a `Voice`, a packaged voice's name, a voice file, or a recording to clone.

        None is the default voice; see `synthesis.voices.open_voice`.
        """
        return open_voice(self, voice)

    def open_voices(self, voices: AnyVoice | Sequence[AnyVoice]) -> Voice | list[Voice]:
        """Open one voice, or each of several."""
        if isinstance(voices, Voice):
            return voices  # adapted for each text, so that an error is that of one text
        if voices is None or isinstance(voices, (Path, str)):
            return open_voice(self, voices)
        return [voice if isinstance(voice, Voice) else open_voice(self, voice) for voice in voices]

    def speak(
        self,
        text: str,
        voice: AnyVoice = None,
        *,
        seed: int = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        on_take: OnTake | None = None,
        scheduler: AsyncScheduler | None = None,
        speed: float = 1.0,
    ) -> Speech:
        """Speak `text` in `voice`; its sentences share a batch.

        `top_p` is the nucleus of the first attempt (default: `self.sampling.top_p`). `speed`, 0.8 to
        1.25, changes the tempo at the same pitch and needs the extra `formats`. SSML may change voice and rate within
        the text. `Speech.warnings` names text that could not be spoken, and sentences without an acceptable take.

        Raises TextError if there is nothing to speak, and VoiceError if the voice was made for another model.
        """
        parts, requests = self.parts_of(text, voice, seed)
        results = run_requests(
            self,
            iter(requests),
            top_p=self.sampling.top_p if top_p is None else top_p,
            continuation=continuation,
            on_take=on_take,
            scheduler=scheduler,
            speed=speed,
        )
        spoken = [speech_of(result) for result in sorted(results, key=lambda result: result.index)]
        return spoken[0] if parts[0].text is text else join_parts(parts, spoken)

    def parts_of(self, text: str, voice: AnyVoice, seed: int) -> tuple[tuple[Part, ...], list[SpeakRequest]]:
        """The parts of SSML that changes voice or rate, or the whole text; and a request for each."""
        parts = (split_parts(text, self.lexicon) if SSML_TAG in text[:SSML_START] else ()) or (Part(text),)
        opened = self.open_voice(voice)
        voices = [voice_of_part(self, part.voice, opened) for part in parts]
        return parts, [
            SpeakRequest(index=index, text=part.text, voice=own, seed=seed)
            for index, (part, own) in enumerate(zip(parts, voices, strict=True), start=1)
        ]

    def speak_in_order(
        self,
        text: str,
        voice: AnyVoice = None,
        *,
        seed: int = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        on_take: OnTake | None = None,
        speed: float = 1.0,
    ) -> Generator[SpokenSentence, None, None]:
        """Speak as `speak` does, but yield each sentence as soon as it and all earlier sentences are done.

        The text is read while it is spoken, and only sentences in progress are held in memory. So the number of
        sentences that `on_take` receives is an estimate until all of the text is read. Raises the errors of `speak`,
        most of them before the first sentence. The parts of SSML that changes voice or rate share a batch, as in
        `speak`.
        """
        return in_order.run_in_order(
            self,
            *self.parts_of(text, voice, seed),
            top_p=self.sampling.top_p if top_p is None else top_p,
            continuation=continuation,
            on_take=on_take,
            speed=speed,
        )

    def stream(
        self,
        text: str,
        voice: AnyVoice = None,
        *,
        seed: int = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        config: ChunkSizes | None = None,
        scheduler: AsyncScheduler | None = None,
    ) -> Generator[Chunk, None, None]:
        """Speak as `speak` does, but yield the audio in chunks, the first of them after a few patches.

        Closing the generator stops all work within a patch. `synthesis.stream` lists how edges, loudness and flawed
        takes differ from `speak`. Raises the errors of `speak`, before the first chunk. SSML may change voice and
        rate, as in `speak`.
        """
        top_p, opened = self.sampling.top_p if top_p is None else top_p, self.open_voice(voice)
        if SSML_TAG in text[:SSML_START] and (parts := split_parts(text, self.lexicon)):
            return styled_stream.stream_parts(
                self,
                parts,
                opened,
                seed=seed,
                top_p=top_p,
                continuation=continuation,
                config=config or StreamConfig(),
                scheduler=scheduler,
            )
        return stream_text(
            self,
            self.prepare_text(text, opened, seed, top_p),
            opened,
            seed=seed,
            top_p=top_p,
            continuation=continuation,
            config=config or StreamConfig(),
            scheduler=scheduler,
        )

    def speak_many(
        self,
        texts: Sequence[str],
        voices: AnyVoice | Sequence[AnyVoice] = None,
        *,
        seeds: int | Sequence[int] = 0,
        top_p: float | None = None,
        continuation: Continuation = Continuation.FIXED_REFERENCE,
        batch: int = DEFAULT_BATCH,
        scheduler: AsyncScheduler | None = None,
    ) -> Generator[SpeakResult, None, None]:
        """Speak each text as `speak` does, at most `batch` sentences at a time; yields results as they are done.

        `voices` and `seeds` are one value for all texts, or one value for each. The result of a text that cannot be
        spoken has its error; the other texts are spoken all the same. Raises ConfigError if the numbers of texts,
        voices and seeds differ, for a single text instead of a list, and for a `batch` below 1.
        """
        if batch < 1:
            raise ConfigError(f"a batch needs room for 1 sentence or more, but has {batch}")
        return run_requests(
            self,
            iter(pair_up(texts, self.open_voices(voices), seeds)),
            top_p=self.sampling.top_p if top_p is None else top_p,
            continuation=continuation,
            batch=batch,
            scheduler=scheduler,
        )
