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
"""No text without this tag at its start is SSML."""

AnyVoice = Voice | Path | str | None
"""A voice, a packaged voice's name, a path to a voice file or recording, or None for the default voice."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Synthesizer(ModelSession):
    """A model ready to speak. Holds no state: calls do not influence each other.

    `speak`, `stream` and `speak_many` may share one `AsyncScheduler` made for `self.engine`, so that many callers run
    in one batch; what they get does not depend on it.
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
        """Clone the voice of a recording: shallow by itself, deep with the `transcript` of the recording.

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
            return voices  # which is adapted text by text, so that one error is one text's
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
        takes: int = 1,
        speed: float = 1.0,
    ) -> Speech:
        """Speak `text` in `voice`, its sentences in one batch.

        `top_p` is where backoff starts (default: `self.sampling.top_p`). Raises TextError where there is nothing to
        speak, VoiceError where the voice was made for another model. `Speech.warnings` names what could not be spoken
        and what is flawed. With `takes`, so many of every sentence are sampled, and the best is kept; `Take.ranking`
        has the scores. `speed`, 0.8 to 1.25, changes the tempo at the same pitch and needs the extra `formats`.
        SSML may change voice and rate within the text.
        """
        parts, requests = self.parts_of(text, voice, seed)
        results = run_requests(
            self,
            iter(requests),
            top_p=self.sampling.top_p if top_p is None else top_p,
            continuation=continuation,
            on_take=on_take,
            scheduler=scheduler,
            takes=takes,
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
        takes: int = 1,
        speed: float = 1.0,
    ) -> Generator[SpokenSentence, None, None]:
        """Speak as `speak`, but yield each sentence when it and all before it are done.

        Reads the text as it goes, and keeps the sentences in work alone; the number of sentences that `on_take` gets
        is estimated until all of the text is read. Raises the errors of `speak`, most of them before the first
        sentence. The parts of SSML that changes voice or rate share a batch, as in `speak`.
        """
        return in_order.run_in_order(
            self,
            *self.parts_of(text, voice, seed),
            top_p=self.sampling.top_p if top_p is None else top_p,
            continuation=continuation,
            on_take=on_take,
            takes=takes,
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
        """Speak as `speak`, but yield the audio in chunks, the first of them after a few patches.

        Closing the iterator stops all work within a patch. `synthesis.stream` lists the differences from `speak` in
        edges, loudness and flawed takes. Raises the errors of `speak`, before the first chunk. SSML may change voice
        and rate, as in `speak`.
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
        takes: int = 1,
    ) -> Generator[SpeakResult, None, None]:
        """Speak each text as `speak` would, at most `batch` sentences at a time; yields results as they are done.

        Voice and seed are one for all, or one for each text. A text that cannot be spoken comes with its error, and the
        others are spoken all the same. Raises ConfigError where the numbers of texts, voices and seeds differ, for a
        single text instead of a list, and for a `batch` below 1.
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
            takes=takes,
        )
