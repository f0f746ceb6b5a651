"""Streaming: audio is sent after the first few patches, while the rest is still being generated.

Upstream: `Synthesizer.stream`, `generation.scheduler.AsyncScheduler` (tokens, on a separate thread).
Downstream: loudspeakers, pipes, servers.

Tokens are those of `Synthesizer.speak`, and so is the decoded audio, although it is decoded in chunks. Where `speak`
works on a whole take, a stream differs:

- *Edges.* A sentence begins with the first frame louder than `SILENCE_DB`. It ends with the last one that is louder
  than that and less than `EDGE_BELOW_PEAK_DB` below the loudest so far; quiet audio waits until something louder
  follows it. The ends are faded and the pauses set as in `speak`.
- *Loudness.* Nothing is scaled; samples beyond ±1 are clipped.
- *Backoff.* A take that fails before any of it was sent is sampled again, as in `speak`. The first chunk is sent once
  it is audible and `StreamConfig.first_chunk_patches` and the codec's lookahead are generated. What was sent is not
  taken back: a flaw that is found later comes as a warning with the sentence's last chunk.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from marstts.audio import FADE_SECONDS, TRIM_FRAME, TRIM_HOP, Waveform
from marstts.generation.request import Request, RequestState
from marstts.generation.scheduler import AsyncScheduler
from marstts.synthesis.backoff import RejectReason, best_of, rejection_reason
from marstts.synthesis.continuation import Continuation, first_voice, next_voice
from marstts.synthesis.guard import TakeGuard
from marstts.synthesis.incremental_decoder import ChunkSizes, IncrementalDecoder, Samples
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.prepared_text import PreparedText
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, Take, pause_after, silence
from marstts.synthesis.streamed_words import StreamedWords
from marstts.synthesis.word_times import Word
from marstts.text.segments import Segment
from marstts.voice import Voice

SILENCE_DB = -60.0
"""RMS of a frame, full scale = 0 dB: quieter ones are silence at the trimmer of a sentence."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Chunk:
    """The next piece of a stream."""

    samples: Samples
    """(N,) float32, at most 1 in magnitude; chunks joined are the speech. May be empty where a chunk reports `take`."""

    sample_rate: int

    sentence: int
    """Number of its sentence, from 1."""

    take: Take | None = None
    """The whole sentence as it was sent, with its last chunk."""

    warning: str | None = None
    """Warning for the listener: text left out (first chunk), a flawed take (last chunk of its sentence)."""

    is_last: bool = False
    """Whether no chunk follows."""

    words: tuple[Word, ...] = ()
    """Words that were finished since the last chunk, times from the beginning of the stream; none from a model without
    word times. The audio of a word may still follow with the next chunk."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    def pcm(self) -> bytes:
        """The samples as 16-bit integers, little-endian."""
        return np.rint(self.samples * 32767.0).astype("<i2").tobytes()


def stream_text(
    session: ModelSession,
    text: PreparedText,
    voice: Voice,
    *,
    seed: int,
    top_p: float,
    continuation: Continuation,
    config: ChunkSizes,
    scheduler: AsyncScheduler | None,
) -> Generator[Chunk, None, None]:
    """Yield the audio of all sentences. Closing the iterator stops all work within a patch.

    Without a `scheduler` that is shared with other callers the stream creates one.
    """
    sample_rate = session.codec.spec.sample_rate
    voice = first_voice(voice, continuation)
    text_warning = text.warning if text.is_whole else None
    num_sent = 0
    with nullcontext(scheduler) if scheduler else AsyncScheduler(session.engine, capacity=1) as rows:
        for index, (segment, is_last) in enumerate(with_last(text)):
            requests = session.requests(segment.text, voice, top_p, (seed, index))
            sentence_start = num_sent / sample_rate
            for samples, words, take in stream_sentence(session, rows, segment, voice, requests, config):
                if take is not None:
                    voice = next_voice(voice, take, continuation)
                    if is_last:
                        text_warning = text_warning if text.is_whole else text.warning
                    else:
                        pause = silence(pause_after(take.text) + take.extra_pause_seconds, sample_rate)
                        samples = np.concatenate([samples, pause.samples])
                warnings = [warning for warning in (text_warning, take and take.warning) if warning]
                text_warning = None
                yield Chunk(
                    samples=np.clip(samples, -1.0, 1.0),
                    sample_rate=sample_rate,
                    sentence=index + 1,
                    take=take,
                    warning="; ".join(warnings) or None,
                    is_last=is_last and take is not None,
                    words=tuple(word.shifted(sentence_start) for word in words),
                )
                num_sent += len(samples)


def with_last(segments: Iterable[Segment]) -> Iterator[tuple[Segment, bool]]:
    """Yield each segment, and whether it is the last one."""
    iterator = iter(segments)
    segment = next(iterator, None)
    while segment is not None:
        following = next(iterator, None)
        yield segment, following is None
        segment = following


def stream_sentence(
    session: ModelSession,
    scheduler: AsyncScheduler,
    segment: Segment,
    voice: Voice,
    requests: Iterator[Request],
    config: ChunkSizes,
) -> Iterator[tuple[Samples, tuple[Word, ...], Take | None]]:
    """Pieces of one sentence, and the words finished with each; its take comes with the last of them."""
    refused: list[tuple[Take, Samples]] = []
    for attempt in requests:
        request = session.lengthened(attempt, [take for take, _ in refused])
        decoder = IncrementalDecoder(session, voice, config)
        trimmer = StreamingTrimmer(session.codec.spec.sample_rate)
        sent: list[Samples] = []
        spoken = StreamedWords(session, segment)
        guard = TakeGuard(session, segment.text, may_give_up=False)
        with closing(scheduler.stream(request, lambda decoder=decoder: decoder.needed)) as rows:  # type: ignore[misc]
            for row in takewhile_running(rows, guard):
                with scheduler.decode_turn():
                    decoded = decoder.decode_until(row)
                piece = trimmer.push(decoded)
                if row.stop is None and len(piece):
                    sent.append(piece)
                    yield piece, spoken.finished(row, trimmer.start) if config.checks_sent else (), None
        rest = np.concatenate([piece, trimmer.finish()])
        whole = np.concatenate([*sent, rest])
        if sent and not config.checks_sent:
            yield rest, (), unchecked_take(segment, row, decoder, whole, attempts=len(refused) + 1)
            return
        take = session.decode_take(segment, row, voice, decoder.decoded, guard.search)
        flaw = rejection_reason(take, session.backoff)
        if flaw is None or sent:
            warning = None if flaw is None else phrase_late_warning(take, flaw)
            streamed = Waveform(whole, trimmer.sample_rate)
            timing = session.row_timing(segment, row, trimmer.start or 0, (trimmer.start or 0) + len(whole))
            take = replace(take, waveform=streamed, attempts=len(refused) + 1, warning=warning, timing=timing)
            yield rest, spoken.rest(take.words), take
            return
        refused.append((take, whole))
    best = best_of([take for take, _ in refused], session.backoff)
    [whole] = [samples for take, samples in refused if take.codes is best.codes]
    yield whole, best.words or (), replace(best, waveform=Waveform(whole, best.waveform.sample_rate))


def unchecked_take(
    segment: Segment, row: RequestState, decoder: IncrementalDecoder, samples: Samples, attempts: int
) -> Take:
    """The take of a sentence of which `samples` were sent, without its flaws and words."""
    assert decoder.decoded is not None and row.stop is not None
    codes, waveform = decoder.decoded
    return Take(
        text=segment.text,
        codes=codes,
        waveform=Waveform(samples, waveform.sample_rate),
        stop=row.stop,
        top_p=row.request.top_p,
        attempts=attempts,
        extra_pause_seconds=segment.pause_seconds,
    )


def takewhile_running(rows: Iterable[RequestState], guard: TakeGuard) -> Iterator[RequestState]:
    """The rows up to the one that has ended, by itself or by the guard."""
    for made in rows:
        row = guard.judge(made)
        yield row
        if row.stop is not None:
            return


def phrase_late_warning(take: Take, flaw: RejectReason) -> str:
    """The warning for a flawed take whose beginning was sent already."""
    return f"“{take.text}”: was flawed, but its beginning had been sent already: {flaw.value} ({take.seconds:.1f} s)"


class StreamingTrimmer:
    """Trims and fades the ends of a sentence that is still being made.

    Frames are those of `audio.trim_silence`. What is pushed comes back as soon as it is certain to belong to the
    sentence and not to its fading end.
    """

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._fade = round(FADE_SECONDS * sample_rate)
        self._samples = np.zeros(0, np.float32)
        self._num_frames = 0
        self._peak = 0.0
        self._start: int | None = None
        """First sample of the sentence."""
        self._end = 0
        """End of the sentence, if nothing louder follows."""
        self._sent = 0

    @property
    def start(self) -> int | None:
        """First sample of the sentence, once there is one."""
        return self._start

    def push(self, samples: Samples) -> Samples:
        """The samples that are ready to be sent."""
        self._samples = np.concatenate([self._samples, samples])
        self._look(len(self._samples) - TRIM_FRAME // 2)
        end = min(self._end, len(self._samples)) - self._fade
        if self._start is None or end < max(self._start + 2 * self._fade, self._sent):
            return np.zeros(0, np.float32)
        return self._release(self._start, end)

    def finish(self) -> Samples:
        """Return the rest of the sentence, faded out."""
        self._look(len(self._samples))
        end = min(self._end, len(self._samples))
        if self._start is None or end <= self._start:
            return np.zeros(0, np.float32)
        length = min(self._fade, (end - self._start) // 2)
        released = self._release(self._start, end)
        released[len(released) - length :] *= ramp(length)[::-1]
        return released

    def _look(self, last: int) -> None:
        """Check the frames whose center is not after sample `last`."""
        while (center := self._num_frames * TRIM_HOP) <= last:
            frame = self._samples[max(0, center - TRIM_FRAME // 2) : center + TRIM_FRAME // 2].astype(np.float64)
            power = float(frame @ frame) / TRIM_FRAME
            self._peak = max(self._peak, power)
            if power > max(10.0 ** (SILENCE_DB / 10.0), self._peak * 10.0 ** (-EDGE_BELOW_PEAK_DB / 10.0)):
                self._start = center if self._start is None else self._start
                self._end = center + TRIM_HOP
            self._num_frames += 1

    def _release(self, start: int, end: int) -> Samples:
        """The samples up to `end` that have not left yet, the first of all faded in."""
        released = self._samples[max(start, self._sent) : end].copy()
        if self._sent <= start:
            length = min(self._fade, (end - start) // 2)
            released[:length] *= ramp(length)
        self._sent = end
        return released


def ramp(length: int) -> Samples:
    """(length,) rising evenly, as `audio.join` fades."""
    return ((np.arange(length) + 0.5) / max(1, length)).astype(np.float32)
