"""Short prefixes: the part of a reference that a deep clone continues from, cut between words by the model's attention.

Upstream: `clone`, with a prepared reference and its transcript.  Downstream: `voice.Prefix`.
MARS6 (arXiv:2501.05787), Sec. IV: a deep clone continues from its reference.  Deviation: from about four seconds of it;
takes that continue from more lose words where the reference is a person's. The model is made to say the reference, and
its attention shows which word each patch belongs to (`attention_path`). The recording is cut at a pause near that
boundary, if there is one.
Shapes: T patches of the reference · S text tokens · F frames of a hundredth of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec, Codes
from marstts.generation.engine import AttentionEngine, text_attention
from marstts.generation.request import Prompt
from marstts.generation.speech_model import SpeechModel
from marstts.synthesis.words.attention_path import SHORT_WORD, PathSearch, SentencePlaces, search_path
from marstts.synthesis.words.word_times import LAG_SECONDS, TimedSpan, timed_spans
from marstts.voice import Prefix, Voice

PART_SECONDS = 4.0
"""Length that a prefix is cut to."""

MIN_PART_SECONDS, MAX_PART_SECONDS = 2.4, 5.2
"""Bounds on that length; shorter references stay whole."""

MIN_CONFIDENCE = 0.3
"""Least mean attention to the words of a part, and to both words at a cut; with less, times are doubtful."""

SECONDS_PER_PAUSE = 4.0
"""A cut in a pause may bring the part this much further from PART_SECONDS, for each second of the pause."""

LONG_PAUSE_SECONDS = 0.3
"""Longer pauses are no better to cut in."""

SECONDS_PER_MARK = 0.5
"""The same for a cut at punctuation."""

SEARCHED_SECONDS = 0.12
"""So far around a boundary of words a pause is searched for."""

QUIET_DB = -33.0
"""A frame that is this much quieter than the loudest one belongs to a pause."""

FRAMES_PER_SECOND = 100

MIN_CHARACTERS_PER_SECOND, MAX_CHARACTERS_PER_SECOND = 5.0, 25.0
"""Nobody speaks faster; a transcript's words behind this many belong to a part of the recording that is not used. A
part with fewer has sound whose words the transcript lacks."""


@dataclass(frozen=True)
class Cut:
    """A place between two words of a reference, or one of its ends."""

    seconds: float

    pause_seconds: float
    """0 where the words run together."""

    first_character: int
    """Start of the word after, in the transcript; its length where there is none."""

    has_mark: bool
    """Whether punctuation lies between the words."""

    is_usable: bool = True
    """False where the times of a word next to it are doubtful."""

    @property
    def gain(self) -> float:
        """Seconds by which a part that is cut here may miss its length."""
        pause = min(self.pause_seconds, LONG_PAUSE_SECONDS)
        return SECONDS_PER_PAUSE * pause + SECONDS_PER_MARK * self.has_mark


class ReferencePart(NamedTuple):
    """A part of a reference with its words."""

    waveform: Waveform
    words: str


@dataclass(frozen=True, eq=False)
class AlignedReference:
    """A reference and the places between its words."""

    waveform: Waveform
    transcript: str

    runs: tuple[tuple[Cut, ...], ...]
    """Runs of words that were all found, by the cuts before, between and after them."""

    spans: tuple[TimedSpan, ...]

    def part(self, begin: Cut, end: Cut) -> ReferencePart:
        """The sound between two cuts without the silence at its edges, and its words."""
        first, last = (round(cut.seconds * self.waveform.sample_rate) for cut in (begin, end))
        sound = Waveform(self.waveform.samples[first:last], self.waveform.sample_rate)
        words = self.transcript[begin.first_character : end.first_character].strip()
        return ReferencePart(audio.trim_silence(sound), words)

    def best_part(self) -> ReferencePart | None:
        """The part to continue from, at the start if possible; None where no words were found with certainty."""
        pairs = list(self.pairs(MIN_PART_SECONDS, MAX_PART_SECONDS))
        if not pairs:
            return None
        return self.part(*min(pairs, key=lambda pair: (pair[0].seconds > 0, cost(*pair, seconds=PART_SECONDS))))

    def longest_part(self, max_seconds: float) -> ReferencePart | None:
        """A part of nearly this length, cut in pauses; None where no words were found with certainty."""
        pairs = list(self.pairs(MIN_PART_SECONDS, max_seconds))
        return self.part(*min(pairs, key=lambda pair: cost(*pair, seconds=max_seconds))) if pairs else None

    def pairs(self, least: float, most: float) -> Iterator[tuple[Cut, Cut]]:
        """Cuts before and after each part of this length whose words were found."""
        for run in self.runs:
            usable = [cut for cut in run if cut.is_usable]
            for index, begin in enumerate(usable):
                for end in usable[index + 1 :]:
                    seconds, characters = end.seconds - begin.seconds, end.first_character - begin.first_character
                    has_all_words = characters >= MIN_CHARACTERS_PER_SECOND * seconds
                    if least <= seconds <= most and has_all_words and self.confidence(begin, end) >= MIN_CONFIDENCE:
                        yield begin, end

    def confidence(self, begin: Cut, end: Cut) -> float:
        """Mean attention to the words between two cuts."""
        inside = [s.confidence for s in self.spans if begin.first_character <= s.first_character < end.first_character]
        return float(np.mean(inside)) if inside else 0.0


def cost(begin: Cut, end: Cut, *, seconds: float) -> float:
    """Difference from the wanted length, less what pauses and punctuation at the cuts are worth."""
    return abs(end.seconds - begin.seconds - seconds) - begin.gain - end.gain


def follows_text(model: SpeechModel) -> bool:
    """Return True where the attention of a model shows which word it says."""
    nobody = {role: np.zeros(size, np.float32) for role, size in model.embedding_sizes.items()}
    voice = Voice("", nobody, None, codec="", encoders=dict.fromkeys(nobody, ""), source_sha256="", consent="")
    return model.text_spans(model.prompt("a", voice)) is not None and isinstance(model.engine, AttentionEngine)


def align_reference(
    waveform: Waveform, transcript: str, voice: Voice, model: SpeechModel, codec: Codec
) -> AlignedReference | None:
    """Find the words of a prepared reference; None for a model whose attention does not follow the text.

    `voice` has the embeddings of the reference. The transcript may continue after the end of the recording.
    """
    shallow, words = voice.without_prefix(), possible_words(transcript, waveform.seconds)
    prompt = model.prompt(words, shallow)
    spans = model.text_spans(prompt)
    if spans is None:
        return None
    attention = attention_to(model, prompt, prefix_tokens(model, shallow, codec.encode(waveform)))
    if attention is None:
        return None
    search = search_path(SentencePlaces.of(words, spans), attention)
    runs = cut_runs(waveform, words, search, codec.spec.patch_rate)
    return AlignedReference(waveform, words, runs, timed_spans(search))


def possible_words(transcript: str, seconds: float) -> str:
    """The words of a transcript that can be said in this time."""
    limit = int(MAX_CHARACTERS_PER_SECOND * seconds)
    if len(transcript) <= limit:
        return transcript
    return transcript[:limit].rsplit(maxsplit=1)[0] if " " in transcript[:limit].strip() else transcript


def prefix_tokens(model: SpeechModel, voice: Voice, codes: Codes) -> NDArray[np.int64]:
    """Codes as the tokens (T, P) of a prompt."""
    prompt: Prompt = model.prompt("a", replace(voice, prefix=Prefix(transcript="a", codes=codes)))
    return prompt.prefix_tokens


def attention_to(
    model: SpeechModel, prompt: Prompt, tokens: NDArray[np.int64]
) -> tuple[NDArray[np.float32], ...] | None:
    """Attention (S or more,) to the text by each step of a model that is made to say tokens (T, P), and by the next.

    None where the engine reports none.
    """
    engine, steps = model.engine, []
    state = engine.start([prompt])
    for patch in (*tokens, None):
        attention = text_attention(engine, state)
        if attention is None:  # some engines compute a step when it is asked for
            _, state = engine.next_logits(state, np.zeros((1, 0), np.int64))
            attention = text_attention(engine, state)
        if attention is None:
            return None
        steps.append(attention[0])
        if patch is not None:
            state = engine.append(state, patch[None])
    return tuple(steps)


def cut_runs(waveform: Waveform, transcript: str, search: PathSearch, patch_rate: float) -> tuple[tuple[Cut, ...], ...]:
    """Runs of words that were found, by the cuts around them; a word that is missing ends a run, unless it is short."""
    spans, words = timed_spans(search), search.places.words
    if not spans:
        return ()
    places = [search.places.places[index] for index in words]
    long_words = [place.start for place in places if place.num_letters > SHORT_WORD]
    loudness = frame_loudness(waveform)
    runs, run = [], []
    if spans[0].first_character == places[0].start:
        run.append(Cut(0.0, LONG_PAUSE_SECONDS, places[0].start, has_mark=True))
    for before, after in pairwise(spans):
        if any(before.last_character <= start < after.first_character for start in long_words):
            runs.append(run)
            run = []
            continue
        run.append(cut_between(before, after, transcript, loudness, patch_rate))
    if spans[-1].first_character == places[-1].start:
        run.append(Cut(waveform.seconds, LONG_PAUSE_SECONDS, len(transcript), has_mark=True))
    return tuple(tuple(cuts) for cuts in (*runs, run) if len(cuts) > 1)


def cut_between(
    before: TimedSpan, after: TimedSpan, transcript: str, loudness: NDArray[np.float64], patch_rate: float
) -> Cut:
    """The place between two words: the middle of the pause around their boundary, or the quietest frame near it."""
    times = [max(0.0, steps / patch_rate - LAG_SECONDS) for steps in (before.end, after.start)]
    first = max(0, int((min(times) - SEARCHED_SECONDS) * FRAMES_PER_SECOND))
    last = max(first + 1, int((max(times) + SEARCHED_SECONDS) * FRAMES_PER_SECOND))
    begin, end = pause_around(loudness, first + int(np.argmin(loudness[first:last])) if first < len(loudness) else -1)
    between = transcript[before.last_character : after.first_character]
    return Cut(
        seconds=(begin + end) / 2 / FRAMES_PER_SECOND,
        pause_seconds=(end - begin) / FRAMES_PER_SECOND,
        first_character=after.first_character,
        has_mark=bool(between.strip()),
        is_usable=not any(map(str.isalnum, between)) and min(before.confidence, after.confidence) >= MIN_CONFIDENCE,
    )


def frame_loudness(waveform: Waveform) -> NDArray[np.float64]:
    """(F,) dB of frames of two hundredths of a second, below the loudest one."""
    hop = waveform.sample_rate // FRAMES_PER_SECOND
    squares = np.pad(waveform.samples.astype(np.float64) ** 2, (hop, 2 * hop))
    sums = squares[: len(squares) // hop * hop].reshape(-1, hop).sum(axis=1)
    power = sums[:-1] + sums[1:]
    return 10.0 * np.log10(np.maximum(power, 1e-10) / max(power.max(), 1e-10))


def pause_around(loudness: NDArray[np.float64], frame: int) -> tuple[int, int]:
    """First quiet frame and last + 1 around this one; the frame itself, as an empty pause, if it is not quiet."""
    if loudness[frame] > QUIET_DB:
        return frame, frame
    begin = end = frame
    while begin > 0 and loudness[begin - 1] <= QUIET_DB:
        begin -= 1
    while end < len(loudness) and loudness[end] <= QUIET_DB:
        end += 1
    return begin, end
