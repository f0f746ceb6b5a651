"""A model session: the steps between a text and its takes, for one model with its codec and speaker encoders.

Upstream: `loading.load`.  Downstream: `runner`, which orders the steps; `synthesizer`, which has one.
MARS6 (arXiv:2501.05787), Sec. IV.  Deviations: every sentence starts at the lowest top-p, independent of the last one.

    text -> sentences -> requests -> (scheduler) -> tokens -> take -> speech
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.bundle import labeled
from marstts.codec.base import TIMBRE, Codec, Codes, PhoneRecognizingCodec, PitchedCodec, check_samples, with_timbre
from marstts.errors import ConfigError
from marstts.generation.engine import AttentionEngine, Engine
from marstts.generation.request import Request, RequestState, SamplingConfig
from marstts.generation.speech_model import SpeechModel
from marstts.speaker.base import SpeakerEncoder
from marstts.synthesis.backoff import PAPER, BackoffConfig, rejection_reason
from marstts.synthesis.final_rise import MIN_RISE, final_rise
from marstts.synthesis.sentence import Attempt, too_short
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, MAX_TAIL_SECONDS, NO_WORD_TIMES, Speech, Take, join, silence
from marstts.synthesis.words.followed_take import FollowedTake
from marstts.synthesis.words.pronunciation import accepted_labels, goodness, spoken_phones
from marstts.synthesis.words.written_forms import lead_of
from marstts.text.intonation import rises_at_end
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

    def follow(self, segment: Segment, request: Request, *, may_give_up: bool = False) -> FollowedTake:
        """The take of a request for `segment`, to be followed while it is made; see `FollowedTake`."""
        spans, codec = self.model.text_spans(request.prompt), self.codec.spec
        return FollowedTake(segment, spans, codec, paper=self.paper, may_give_up=may_give_up)

    def decode_take(
        self,
        followed: FollowedTake,
        row: RequestState,
        voice: Voice,
        decoded: tuple[Codes, Waveform] | None = None,
        *,
        may_repeat: bool = True,
    ) -> Take:
        """Turn an ended row into a take, silence at its edges trimmed. `decoded` if that was done already.

        `may_repeat`: whether another take may replace it; only then the pronunciation of an acceptable one is measured.
        """
        if decoded is None:
            codes = self.model.codes(row.result(self.engine.layout).tokens, row.request.rng, row.request.prompt)
            decoded = codes, self.decode(codes, voice)
        codes, waveform = decoded
        followed.finish(row, waveform)
        start, end = audio.audible_span(waveform, below_peak_db=EDGE_BELOW_PEAK_DB, max_tail_seconds=MAX_TAIL_SECONDS)
        trimmed = Waveform(waveform.samples[start:end], waveform.sample_rate)
        take = self.unchecked_take(followed.segment, row, (codes, trimmed))
        is_level = self.should_rise(followed.segment) and not self.rises(codes, voice, end)
        take = replace(take, timing=followed.timing(start, end), flaws=followed.flaws, is_level=is_level)
        if not may_repeat or rejection_reason(take, self.backoff) is not None:
            return take
        return replace(take, goodness=self.goodness(take))

    def goodness(self, take: Take) -> float | None:
        """Goodness of pronunciation of a take; None without a phone recognizer, or where a word has no phones."""
        codec = self.codec
        if self.paper or not (isinstance(codec, PhoneRecognizingCodec) and codec.recognizes_phones):
            return None
        words = list(spoken_phones(take.text))
        if not (words and take.seconds and all(word.phones for word in words)):
            return None
        return goodness(codec.phone_log_probs(take.waveform), accepted_labels(words))

    def should_rise(self, segment: Segment) -> bool:
        """Whether takes of a segment are questions that must rise at their ends, and the codec can tell."""
        is_able = self.model.reads_contours and isinstance(self.codec, PitchedCodec)
        return is_able and not self.paper and rises_at_end(segment.text)

    def rises(self, codes: Codes, voice: Voice, end: int) -> bool:
        """Whether the pitch of a take rises before its audible end, a sample of its audio."""
        return self.rise(codes, voice, end / self.codec.spec.sample_rate) >= MIN_RISE

    def rise(self, codes: Codes, voice: Voice, end: float) -> float:
        """Semitones by which the pitch of a take rises before its audible end, in seconds; see `final_rise`."""
        if not len(codes[0]):
            return 0.0
        codec: Any = self.codec_of(voice)
        hertz = codec.f0(codes)
        spec = self.codec.spec
        seconds = len(codes[0]) // spec.patch_layout[0] * spec.patch_samples / spec.sample_rate
        return final_rise(hertz, len(hertz) / seconds, end)

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
