"""Edges, tempo and peaks of a sentence that is sent while it is being made.

Upstream: `runner`, which decodes the sentence piece by piece.  Downstream: loudspeakers, pipes, servers.
A sentence begins with the first frame louder than `SILENCE_DB`. It ends with the last one that is louder than that and
less than `EDGE_BELOW_PEAK_DB` below the loudest so far, and at most `MAX_TAIL_SECONDS` after the last loud one; quiet
audio waits until something louder follows it. The ends are faded and peaks limited as in a whole take.
"""

from __future__ import annotations

import numpy as np

from marstts.audio import FADE_SECONDS, TAIL_BELOW_PEAK_DB, TRIM_FRAME, TRIM_HOP
from marstts.audio.limiter import Limiter
from marstts.audio.tempo import TempoFilter
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, MAX_TAIL_SECONDS, Samples

SILENCE_DB = -60.0
"""RMS of a frame, full scale = 0 dB: quieter ones are silence at the edges of a sentence."""


class Outlet:
    """What is sent of one take: trimmed, at its tempo, limited."""

    def __init__(self, sample_rate: int, tempo: float) -> None:
        self._trimmer, self._limiter = StreamingTrimmer(sample_rate), Limiter(sample_rate)
        self._tempo = None if tempo == 1.0 else TempoFilter(tempo, sample_rate)
        self._pieces: list[Samples] = []
        self._num_taken = 0
        self._num_trimmed = 0
        """Samples that were not trimmed away, before the tempo is changed."""

    @property
    def start(self) -> int | None:
        """First sample of the sentence, once there is one."""
        return self._trimmer.start

    @property
    def span(self) -> tuple[int, int]:
        """First sample of what can be sent, and last + 1, of the decoded ones."""
        start = self.start or 0
        return start, start + self._num_trimmed

    @property
    def ready_at(self) -> int | None:
        """Decoded samples with which there is something to send, however they come in; None until then."""
        return self._trimmer.ready_at

    @property
    def all_samples(self) -> Samples:
        """All that can be sent, or was sent."""
        return np.concatenate(self._pieces)

    def take(self) -> Samples:
        """What can be sent, and was not taken before."""
        taken = self._pieces[self._num_taken :]
        self._num_taken = len(self._pieces)
        return np.concatenate(taken) if taken else np.zeros(0, np.float32)

    def push(self, decoded: Samples, *, is_last: bool) -> None:
        """Add the next decoded samples (N,); with the last, all that are left can be sent."""
        samples = self._trimmer.push(decoded)
        if is_last:
            samples = np.concatenate([samples, self._trimmer.finish()])
        self._num_trimmed += len(samples)
        if self._tempo is not None and self._num_trimmed:
            samples = self._tempo.push(samples, is_last=is_last)
        samples = self._limiter.push(samples)
        if is_last:
            samples = np.concatenate([samples, self._limiter.finish()])
        self._pieces.append(samples)


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
        self._last_loud = 0
        self._start: int | None = None
        """First sample of the sentence."""
        self._end = 0
        """End of the sentence, if nothing louder follows."""
        self._sent = 0
        self.ready_at: int | None = None
        """Samples with which the first ones are ready to be sent."""

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
            if power > self._peak * 10.0 ** (-TAIL_BELOW_PEAK_DB / 10.0):
                self._last_loud = center
            if power > max(10.0 ** (SILENCE_DB / 10.0), self._peak * 10.0 ** (-EDGE_BELOW_PEAK_DB / 10.0)):
                self._start = center if self._start is None else self._start
                if center - self._last_loud <= MAX_TAIL_SECONDS * self.sample_rate:
                    self._end = center + TRIM_HOP
                if self.ready_at is None and self._end - self._fade >= self._start + 2 * self._fade:
                    self.ready_at = center + TRIM_FRAME // 2
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
