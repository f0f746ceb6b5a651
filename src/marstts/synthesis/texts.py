"""Texts in progress: which sentence of which text is spoken next, in which voice, and what it continues from.

Upstream: `synthesizer`.  Downstream: `prepared_text`, `sentence`; the tasks are run by `runner`.
MARS6 (arXiv:2501.05787), Sec. IV.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from marstts.audio.tempo import clamped
from marstts.errors import MissingExtraError, TextError, require
from marstts.synthesis.clone.voices import adapt_voice, named_voice
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.prepared_text import PreparedText
from marstts.synthesis.sentence import Sentence
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.speech import Continuation, Take, first_voice, next_voice
from marstts.synthesis.text_in_pieces import TextInPieces
from marstts.synthesis.words.written_forms import SpokenSegment
from marstts.text.lexicon import Lexicon
from marstts.text.normalize import normalize_block
from marstts.text.reading import (
    MAX_SENTENCE_CHARACTERS,
    MAX_UNDIVIDED_CHARACTERS,
    Manner,
    as_typed,
)
from marstts.voice import Voice

DEFAULT_BATCH = 16
"""Sentences in one batch: each takes a quarter of the time that it takes alone."""


Text = str | Iterable[str]
"""A text, or its pieces as they are written, cut anywhere."""

OnSentence = Callable[[SpokenSegment], None]
"""Called with each sentence before it is begun; what it raises ends the speech."""


@dataclass(eq=False)
class SentenceTask:
    """A sentence to speak."""

    text: TextRun
    index: int
    """Its place in the text, from 0."""
    segment: SpokenSegment
    voice: Voice
    rate: float
    """Tempo of the finished take."""
    sentence: Sentence
    is_last: bool

    is_urgent: bool
    """Whether it goes before sentences that wait: its text has waited for the take before."""

    gap_seconds: float = 0.0
    """Pauses that stand alone before it, in a text that is still being written."""


@dataclass(eq=False, kw_only=True)
class TextRun:
    """One text in progress."""

    session: ModelSession
    text: Text
    how: Speaking
    """With its voice opened."""
    index: int = 1
    """Number of the text, from 1."""
    num_skipped: int = 0
    """Sentences at the beginning that are not spoken."""
    num_begun: int = 0
    num_kept: int = 0
    on_sentence: OnSentence | None = None
    has_failed: bool = False
    is_open: bool = False

    def open(self) -> TextRun:
        """Read the beginning of the text; raises ConfigError, VoiceError, TextError or MissingExtraError."""
        self.started = time.perf_counter()
        how = self.how
        assert isinstance(how.voice, Voice), "it is opened"
        self._voices: dict[str | None, Voice] = {None: self._first_voice(how.voice)}
        manner = Manner(
            lexicon=how.lexicon or Lexicon(),
            pauses=how.pauses,
            spell=as_typed if self.session.model.reads_typed_text else normalize_block,
            dialogue=how.dialogue,
            max_characters=MAX_UNDIVIDED_CHARACTERS if self.session.paper else MAX_SENTENCE_CHARACTERS,
        )
        self.prepared: PreparedText | TextInPieces = (
            PreparedText(self.text, manner) if isinstance(self.text, str) else TextInPieces(self.text, manner)
        )
        for name in dict.fromkeys([*self.prepared.voices, *([how.dialogue] if how.dialogue else [])]):
            self._voice_of(name)
        self._rate_problem = missing_rates() if self.prepared.has_rates else None
        self.is_open = True
        return self

    @property
    def is_in_pieces(self) -> bool:
        """Whether the text is still being written, so that no sentence is known to be the last when it is begun."""
        return not isinstance(self.text, str)

    @property
    def must_fit(self) -> bool:
        """Whether it, or a passage of it, is to last for a given time."""
        return self.how.seconds is not None or (isinstance(self.prepared, PreparedText) and self.prepared.has_durations)

    def wait(self) -> bool:
        """Wait for the next sentence of a text that is still being written; False where there is none to wait for."""
        if not self.is_open or self.has_failed:
            return False
        return isinstance(self.prepared, TextInPieces) and self.prepared.wait()

    @property
    def is_read(self) -> bool:
        """Whether the last sentence was begun."""
        return self.is_open and self.prepared.is_read

    @property
    def is_long(self) -> bool:
        """Whether it has more sentences than a batch; the same for every caller."""
        if self.is_in_pieces:
            return False
        return not self.prepared.is_whole or self.prepared.num_segments > DEFAULT_BATCH

    @property
    def continues(self) -> bool:
        """Whether its next sentence continues from one that was begun."""
        return self.how.continuation is Continuation.PER_CHUNK and self.num_begun > 0

    @property
    def is_done(self) -> bool:
        """Whether all sentences are kept."""
        return self.is_read and self.num_kept == self.num_begun

    @property
    def warning(self) -> str | None:
        """Warning about what was read so far: what was left out, and what of it is not honored."""
        return "; ".join(filter(None, [self.prepared.warning, self._rate_problem])) or None

    def next_task(self) -> SentenceTask | None:
        """Read the next sentence; None after the last one, and while it waits for the take that it continues from."""
        if not self.is_open:
            self.open()
        while self.num_begun < self.num_skipped and self._has_next():
            next(self.prepared)
            self.num_begun, self.num_kept = self.num_begun + 1, self.num_kept + 1
        is_urgent = self.continues
        if self.has_failed or (is_urgent and self.num_kept < self.num_begun) or not self._has_next():
            return None
        if self.num_begun < self.num_skipped:
            return None
        segment = next(self.prepared)
        if self.on_sentence is not None:
            self.on_sentence(segment)
        if self._rate_problem is None and segment.rate != 1.0:
            self._rate_problem = missing_rates()
        index, self.num_begun = self.num_begun, self.num_begun + 1
        gap = 0.0
        if self.is_in_pieces and index > 0:  # a pause after the sentence before, which is sent now
            gap, segment = segment.lead_seconds, replace(segment, lead_seconds=0.0)
        rate = clamped(self.how.speed * (1.0 if self._rate_problem else segment.rate))
        top_p = self.session.sampling.top_p if self.how.top_p is None else self.how.top_p
        sentence = Sentence(segment, top_p, (self.how.seed, index), self.session.backoff)
        voice = self._voice_of(segment.voice)
        is_last = not self.is_in_pieces and self.is_read
        return SentenceTask(self, index, segment, voice, rate, sentence, is_last, is_urgent, gap)

    def _has_next(self) -> bool:
        """Whether a sentence is left and certain."""
        return not self.is_read and (not isinstance(self.prepared, TextInPieces) or self.prepared.is_ready)

    def keep(self, task: SentenceTask, take: Take) -> None:
        """Note that a sentence is done: the next one of its voice may continue from it."""
        self.num_kept += 1
        name = task.segment.voice
        self._voices[name] = next_voice(self._voices[name], take, self.how.continuation)

    def _voice_of(self, name: str | None) -> Voice:
        if name not in self._voices:
            assert name is not None
            self._voices[name] = self._first_voice(named_voice(self.session, name, self.how.voices))
        return self._voices[name]

    def _first_voice(self, voice: Voice) -> Voice:
        return first_voice(adapt_voice(self.session, voice), self.how.continuation)


def whole_text(text: Text) -> str:
    """A text in one piece; TextError for what is no text."""
    if isinstance(text, str):
        return text
    if isinstance(text, (bytes, bytearray, Mapping)) or not isinstance(text, Iterable):
        raise TextError(f"expected a text, but this is a {type(text).__name__}; `speak_many` takes several texts")
    pieces = list(text)
    if not all(isinstance(piece, str) for piece in pieces):
        odd = next(piece for piece in pieces if not isinstance(piece, str))
        raise TextError(f"expected a text in pieces, but one of them is a {type(odd).__name__}")
    return "".join(pieces)


def missing_rates() -> str | None:
    """The warning where no rate can be made, because PyAV is not installed."""
    try:
        require("av", "formats")
    except MissingExtraError as error:
        return f"the speaking rate is not honored: {error}"
    return None
