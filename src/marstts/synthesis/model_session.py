"""A model session: the steps between a text and its takes, for one model with its codec and speaker encoders.

Upstream: `loading.load`.  Downstream: `runner`, which orders the steps; `synthesizer`, which has one.
MARS6 (arXiv:2501.05787), Sec. IV.  Deviations: every sentence starts at the lowest top-p, independent of the last one.

    text -> sentences -> requests -> (scheduler) -> tokens -> take -> speech
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.bundle import labeled
from marstts.codec.base import TIMBRE, Codec, Codes, check_samples, with_timbre
from marstts.errors import ConfigError
from marstts.generation.engine import AttentionEngine, Engine
from marstts.generation.request import Request, RequestState, SamplingConfig, StopReason
from marstts.generation.speech_model import SpeechModel
from marstts.speaker.base import SpeakerEncoder
from marstts.synthesis.backoff import PAPER, BackoffConfig
from marstts.synthesis.sentence import Attempt, too_short
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, MAX_TAIL_SECONDS, NO_WORD_TIMES, Speech, Take, join, silence
from marstts.synthesis.words.attention_path import PathSearch, SentencePlaces, search_path
from marstts.synthesis.words.audible_steps import FRAMES_PER_STEP, audible_steps
from marstts.synthesis.words.flaws import TakeFlaw, find_flaws
from marstts.synthesis.words.word_times import TimedSpan, Word, words_of, words_on_path
from marstts.synthesis.words.written_forms import forms_of, lead_of
from marstts.text.segments import Segment
from marstts.voice import Voice

OnTake = Callable[[Take, int, int], None]
"""Called after every sentence with its take, the number of sentences done, and the number of sentences."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelSession:
    """A model with codec and speaker encoders. It has no state: calls do not influence each other."""

    name: str
    """The model's name in reports."""

    model: SpeechModel
    codec: Codec

    encoders: Mapping[str, SpeakerEncoder]
    """Speaker encoders by role."""

    backoff: BackoffConfig = field(default_factory=BackoffConfig)

    paper: bool = False
    """Whether it speaks as the paper says: takes are neither ended nor refused by the model's attention to their words,
    and continue from the whole prefix. `as_in_paper` sets this and what belongs to it."""

    revision: str = ""
    """Digest of the tensors of the model's bundle; empty for a model in memory."""

    @property
    def label(self) -> str:
        """`NAME@REVISION`: which weights speak."""
        return labeled(self.name, self.revision)

    def as_in_paper(self) -> ModelSession:
        """The same model without all that this project adds at synthesis (docs/paper.md lists it).

        Takes are sampled again where they are too short or silent, and for no other reason; nothing ends, repairs or
        divides a sentence, but for one of more than a thousand characters; no offset is added to the style.
        """
        model: Any = self.model
        if getattr(model, "style_offset", ()):
            model = replace(model, style_offset=())
        return replace(self, model=model, backoff=PAPER, paper=True)

    @property
    def engine(self) -> Engine[Any]:
        """The engine that computes the model."""
        return self.model.engine

    @property
    def sampling(self) -> SamplingConfig:
        """Sampling defaults of the model."""
        return self.model.sampling

    @property
    def encoder_names(self) -> dict[str, str]:
        """Names of the speaker encoders by role."""
        return {role: encoder.name for role, encoder in self.encoders.items()}

    def check_fits(self, voice: Voice) -> None:
        """Raise VoiceError where the voice was made for a model with other encoders or another codec.

        A voice may lack the timbre embedding: voices of earlier versions do.
        """
        names = {role: name for role, name in self.encoder_names.items() if role != TIMBRE or role in voice.encoders}
        voice.check_fits(self.codec.spec.name, names)

    def codec_of(self, voice: Voice) -> Codec:
        """The codec with its decoder conditioned on the voice's timbre embedding, where both have one."""
        return with_timbre(self.codec, voice.embeddings.get(TIMBRE))

    def request(self, attempt: Attempt, voice: Voice) -> Request:
        """The request of an attempt at a sentence, longer, in patches, than the rejected takes that were too short.

        A word alone, and a sentence after a take that was too short, do not continue from a prefix. The request has its
        own random number generator. VoiceError where the voice was made for a model of another shape.
        """
        sentence, codec_rate = attempt.segment.text, self.codec.spec.patch_rate
        short = too_short(attempt.rejected, self.backoff)
        if not self.paper and isinstance(self.engine, AttentionEngine) and (short or len(sentence.split()) == 1):
            voice = voice.without_prefix()  # after some prefixes, short texts end at once, with any seed
        prompt, rate = self.model.prompt(sentence, voice), self.model.patch_rate or codec_rate
        limits = self.backoff.limits(sentence, rate)
        per_code = rate / codec_rate / self.engine.layout.codes_per_level[0]
        longer = () if self.paper else short
        least = max((int(len(take.codes[0]) * per_code) + 1 for take in longer), default=0)
        least = min(max(limits.min_patches, least), limits.max_patches)
        rng = np.random.default_rng(attempt.seed)
        return Request(prompt, attempt.top_p, replace(limits, min_patches=least), rng, self.sampling)

    def codes_of(self, row: RequestState) -> Codes:
        """Codes of all patches of a row so far."""
        return self.model.codes(np.stack(row.patches), row.request.rng, row.request.prompt)

    def decode_take(
        self,
        segment: Segment,
        row: RequestState,
        voice: Voice,
        decoded: tuple[Codes, Waveform] | None = None,
    ) -> Take:
        """Turn an ended row into a take, silence at its edges trimmed. `decoded` if that was done already."""
        if decoded is None:
            codes = self.model.codes(row.result(self.engine.layout).tokens, row.request.rng, row.request.prompt)
            decoded = codes, self.decode(codes, voice)
        codes, waveform = decoded
        assert row.stop is not None
        start, end = audio.audible_span(waveform, below_peak_db=EDGE_BELOW_PEAK_DB, max_tail_seconds=MAX_TAIL_SECONDS)
        search = self.path_search(segment.text, row, waveform)
        return Take(
            text=segment.text,
            codes=codes,
            waveform=Waveform(waveform.samples[start:end], waveform.sample_rate),
            timing=None if search is None else self.word_timing(segment, search, start, end),
            flaws=() if search is None or self.paper else self.take_flaws(search, row, waveform),
            stop=row.stop,
            top_p=row.request.top_p,
            lead_seconds=lead_of(segment),
            extra_pause_seconds=segment.pause_seconds,
            duration=segment.duration,
        )

    def unchecked_take(self, segment: Segment, row: RequestState, decoded: tuple[Codes, Waveform] | None) -> Take:
        """The take of an ended row that was decoded, without its flaws and words."""
        assert decoded is not None and row.stop is not None
        return Take(
            text=segment.text,
            codes=decoded[0],
            waveform=decoded[1],
            stop=row.stop,
            top_p=row.request.top_p,
            lead_seconds=lead_of(segment),
            extra_pause_seconds=segment.pause_seconds,
            duration=segment.duration,
        )

    def word_timing(self, segment: Segment, search: PathSearch, start: int, end: int) -> Callable[[], tuple[Word, ...]]:
        """Return the function that computes the words of a take, of whose audio the samples `start` to `end` are kept.

        It holds nothing of the session.
        """
        step, audible = 1.0 / self.codec.spec.patch_rate, self.seconds_of(start, end)
        return partial(words_on_path, search, segment.text, forms_of(segment), step_seconds=step, audible=audible)

    def row_timing(
        self, segment: Segment, row: RequestState, waveform: Waveform, start: int, end: int
    ) -> Callable[[], tuple[Word, ...]] | None:
        """The same for the attention of a row with the audio of its patches; None without aligned heads."""
        search = self.path_search(segment.text, row, waveform)
        return None if search is None else self.word_timing(segment, search, start, end)

    def take_flaws(
        self, search: PathSearch, row: RequestState, waveform: Waveform | None = None
    ) -> tuple[TakeFlaw, ...]:
        """Flaws of a row that has ended, whose attention took this path; without its `waveform`, those it can tell."""
        tokens = row.result(self.engine.layout).tokens
        return find_flaws(
            search,
            search.places.sentence,
            1.0 / self.codec.spec.patch_rate,
            tokens=tokens,
            waveform=waveform,
            has_ended=row.stop is StopReason.EOS,
        )

    def path_search(self, sentence: str, row: RequestState, waveform: Waveform) -> PathSearch | None:
        """The path of a row's attention through its sentence; None where the model has no aligned heads.

        waveform: the audio of all its patches.
        """
        spans = self.model.text_spans(row.request.prompt) if row.attention else None
        if spans is None:
            return None
        audible = audible_steps(waveform, self.codec.spec.patch_rate)[: len(row.attention)]
        silent = np.zeros((len(row.attention) - len(audible), FRAMES_PER_STEP), np.float32)  # the step that ended it
        return search_path(SentencePlaces.of(sentence, spans), row.attention, np.concatenate([audible, silent]))

    def timed_words(self, segment: Segment, spans: Sequence[TimedSpan], start: int, end: int) -> tuple[Word, ...]:
        """Words in seconds from sample `start` of a sentence's audio, none of them after sample `end`."""
        step, audible = 1.0 / self.codec.spec.patch_rate, self.seconds_of(start, end)
        return words_of(segment.text, forms_of(segment), spans, step_seconds=step, audible=audible)

    def seconds_of(self, start: int, end: int) -> tuple[float, float]:
        """Two samples of the codec's audio, in seconds."""
        return start / self.codec.spec.sample_rate, end / self.codec.spec.sample_rate

    def check_word_times(self, voice: Voice) -> None:
        """Raise ConfigError where this model has no word times."""
        if self.model.text_spans(self.model.prompt("a", voice)) is None or not isinstance(self.engine, AttentionEngine):
            raise ConfigError(NO_WORD_TIMES)

    def decode(self, codes: Codes, voice: Voice) -> Waveform:
        """Decode `codes` in the timbre of `voice`; no samples where there are no codes."""
        if not len(codes[0]):
            return silence(0.0, self.codec.spec.sample_rate)
        waveform = self.codec_of(voice).decode(codes)
        check_samples(waveform.samples)
        return waveform

    def assemble(
        self,
        takes: Sequence[Take],
        *,
        seed: int,
        started: float,
        first_audio_seconds: float,
        text_warning: str | None = None,
    ) -> Speech:
        """Join the takes of a text to one speech; `started` is when work on it began (`time.perf_counter`)."""
        return Speech(
            waveform=join(takes),
            takes=tuple(takes),
            model=self.label,
            seed=seed,
            compute_seconds=time.perf_counter() - started,
            first_audio_seconds=first_audio_seconds,
            text_warning=text_warning,
        )
