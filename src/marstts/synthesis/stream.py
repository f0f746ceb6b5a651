"""Streaming: audio leaves after the first few patches, while the rest is still being made.

Upstream: `Synthesizer.stream`, `engine.batcher.LiveBatcher` (tokens, on a thread of its own).
Downstream: loudspeakers, pipes, servers.  It owes nothing to the paper.

Tokens are those of `Synthesizer.speak`, and so is the decoded audio, though it is decoded in windows. What `speak` does
with a whole take has to be done differently where the take is not whole yet:

- *Edges.* A sentence begins with the first frame louder than `SILENCE_DB`. It ends with the last one that is louder
  than that and less than `EDGE_BELOW_PEAK_DB` quieter than the loudest so far; quiet audio waits until something louder
  follows it. The ends are faded and the pauses set as in `speak`.
- *Loudness.* Nothing is scaled; samples beyond ±1 are clipped.
- *Backoff.* A take that fails before any of it has left is sampled again, as in `speak`; the first portion leaves once
  it can be heard and `StreamConfig.first_patches` and the codec's reach are made. What has left is not taken back: a
  flaw that is found later comes as a warning with the sentence's last chunk.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.audio import FADE_SECONDS, TRIM_FRAME, TRIM_HOP, Waveform
from marstts.codec.base import Codec, start_decoding
from marstts.config import Config
from marstts.engine.batcher import LiveBatcher
from marstts.mars6.config import Mars6Config
from marstts.mars6.generate import Job, Row
from marstts.mars6.patches import unpatchify
from marstts.synthesis.backoff import Flaw, best_of, find_flaw
from marstts.synthesis.continuation import Continuation, carry
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, Take, pause_after, silence
from marstts.voice import Voice

if TYPE_CHECKING:
    from marstts.synthesis.synthesizer import Synthesizer

SILENCE_DB = -60.0
"""RMS of a frame, full scale = 0 dB: quieter ones are silence at the edges of a sentence."""

Samples = NDArray[np.float32]


class StreamConfig(Config):
    """In which portions audio leaves."""

    first_patches: int = Field(2, ge=1)
    """Decoded for the first portion of a sentence; more of them find more flaws in time to try again."""

    largest_patches: int = Field(24, ge=1)
    """Portions double until they are as long as this."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Chunk:
    """The next piece of a stream."""

    samples: Samples
    """(N,) float32, at most 1 in magnitude; chunks joined are the speech. May be empty where only `take` is told."""

    sample_rate: int

    sentence: int
    """Which sentence it belongs to, from 1."""

    take: Take | None = None
    """The whole sentence as it was sent, with its last chunk."""

    warning: str | None = None
    """What the listener should know: text left out (first chunk), a flawed take (last chunk of its sentence)."""

    is_last: bool = False
    """Nothing follows."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    def pcm(self) -> bytes:
        """The samples as 16-bit integers, little-endian."""
        return np.rint(self.samples * 32767.0).astype("<i2").tobytes()


def stream_sentences(
    synthesizer: Synthesizer,
    sentences: Sequence[str],
    voice: Voice,
    *,
    seed: int,
    top_p: float,
    continuation: Continuation,
    config: StreamConfig,
    batcher: LiveBatcher | None,
    text_warning: str | None,
) -> Generator[Chunk, None, None]:
    """The sentences one after another. Closing the iterator stops all work within a patch.

    Without a `batcher` to share with others the stream has one of its own.
    """
    sample_rate = synthesizer.codec.spec.sample_rate
    with nullcontext(batcher) if batcher else LiveBatcher(synthesizer.stepper, capacity=1) as rows:
        for index, sentence in enumerate(sentences):
            is_last = index + 1 == len(sentences)
            jobs = synthesizer.jobs(sentence, voice, top_p, (seed, index))
            for samples, take in stream_sentence(synthesizer, rows, sentence, jobs, config):
                warnings = [warning for warning in (text_warning, take and take.warning) if warning]
                text_warning = None
                if take is not None:
                    voice = carry(voice, take, continuation)
                    if not is_last:
                        samples = np.concatenate([samples, silence(pause_after(sentence), sample_rate).samples])
                yield Chunk(
                    samples=np.clip(samples, -1.0, 1.0),
                    sample_rate=sample_rate,
                    sentence=index + 1,
                    take=take,
                    warning="; ".join(warnings) or None,
                    is_last=is_last and take is not None,
                )


def stream_sentence(
    synthesizer: Synthesizer, batcher: LiveBatcher, sentence: str, jobs: Iterator[Job], config: StreamConfig
) -> Iterator[tuple[Samples, Take | None]]:
    """Pieces of one sentence; its take comes with the last of them."""
    refused: list[tuple[Take, Samples]] = []
    for job in jobs:
        windows = Windows(synthesizer.codec, synthesizer.stepper.config, config)
        edges = Edges(synthesizer.codec.spec.sample_rate)
        sent: list[Samples] = []
        with closing(batcher.watch(job)) as rows:
            for row in rows:
                piece = edges.push(windows.hear(row))
                if row.stop is None and len(piece):
                    sent.append(piece)
                    yield piece, None
        rest = np.concatenate([piece, edges.finish()])
        whole = np.concatenate([*sent, rest])
        take = synthesizer.listen(sentence, row.result(synthesizer.stepper.config), job.top_p, windows.waveform)
        flaw = find_flaw(take, synthesizer.backoff)
        if flaw is None or sent:
            warning = None if flaw is None else phrase_late_warning(take, flaw)
            heard = Waveform(whole, edges.sample_rate)
            yield rest, replace(take, waveform=heard, attempts=len(refused) + 1, warning=warning)
            return
        refused.append((take, whole))
    best = best_of([take for take, _ in refused], synthesizer.backoff)
    [whole] = [samples for take, samples in refused if take.codes is best.codes]
    yield whole, replace(best, waveform=Waveform(whole, best.waveform.sample_rate))


def phrase_late_warning(take: Take, flaw: Flaw) -> str:
    """One sentence for the person who has heard a flawed take begin."""
    return f"“{take.text}”: was flawed, but had been heard already: {flaw.value} ({take.seconds:.1f} s)"


class Windows:
    """Decodes a row that grows, ever larger windows at a time; joined they are the audio of all its codes."""

    def __init__(self, codec: Codec, model: Mars6Config, config: StreamConfig) -> None:
        self._codec, self._model, self._largest = codec, model, config.largest_patches
        self._size, self._decoded = config.first_patches, 0
        self._decoding = start_decoding(codec)
        self._pieces: list[Samples] = []

    def hear(self, row: Row) -> Samples:
        """What can be decoded of the row by now and is worth it; the rest, once it has ended."""
        known = len(row.patches)
        stop = known if row.stop is not None else self._decoded + self._size
        if stop == self._decoded or (row.stop is None and known < stop + self._codec.reach_patches):
            return np.zeros(0, np.float32)
        tokens = np.stack(row.patches)
        codes = unpatchify(tokens, self._model.patch_layout, self._model.codebook_size)
        self._pieces.append(self._decoding.hear(codes, stop))
        self._decoded, self._size = stop, min(2 * self._size, self._largest)
        return self._pieces[-1]

    @property
    def waveform(self) -> Waveform:
        """All that was decoded."""
        return Waveform(np.concatenate([np.zeros(0, np.float32), *self._pieces]), self._codec.spec.sample_rate)


class Edges:
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
        """Where the sentence begins."""
        self._end = 0
        """Where it ends, if nothing louder follows."""
        self._sent = 0

    def push(self, samples: Samples) -> Samples:
        """Of all samples so far, what may leave now."""
        self._samples = np.concatenate([self._samples, samples])
        self._look(len(self._samples) - TRIM_FRAME // 2)
        end = min(self._end, len(self._samples)) - self._fade
        if self._start is None or end < max(self._start + 2 * self._fade, self._sent):
            return np.zeros(0, np.float32)
        return self._release(self._start, end)

    def finish(self) -> Samples:
        """No more samples: the rest of the sentence, faded out."""
        self._look(len(self._samples))
        end = min(self._end, len(self._samples))
        if self._start is None or end <= self._start:
            return np.zeros(0, np.float32)
        length = min(self._fade, (end - self._start) // 2)
        released = self._release(self._start, end)
        released[len(released) - length :] *= ramp(length)[::-1]
        return released

    def _look(self, last: int) -> None:
        """Judge the frames whose centre is not after sample `last`."""
        while (centre := self._num_frames * TRIM_HOP) <= last:
            frame = self._samples[max(0, centre - TRIM_FRAME // 2) : centre + TRIM_FRAME // 2].astype(np.float64)
            power = float(frame @ frame) / TRIM_FRAME
            self._peak = max(self._peak, power)
            if power > max(10.0 ** (SILENCE_DB / 10.0), self._peak * 10.0 ** (-EDGE_BELOW_PEAK_DB / 10.0)):
                self._start = centre if self._start is None else self._start
                self._end = centre + TRIM_HOP
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
