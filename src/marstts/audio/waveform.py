"""Waveforms, and what is done to them: resampling, loudness, trimming, joining.

Upstream: `reader`, codecs.  Downstream: codecs, speaker encoders, synthesis, `writer`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.typing import NDArray

from marstts.audio.loudness import BLOCK_SECONDS, integrated_loudness
from marstts.errors import AudioError

TRIM_FRAME, TRIM_HOP = 2048, 512
"""Samples; the frames in which `trim_silence` looks for sound (as in the published MARS6 inference)."""

TAIL_BELOW_PEAK_DB = 20.0
"""Frames this much below the loudest one of a take are its tail if no louder one follows."""

FADE_SECONDS = 0.005
"""Takes are faded in and out by this much where they are joined, so that no step between them can click."""


@dataclass(frozen=True, eq=False)
class Waveform:
    """Mono audio: `samples` (N,) float32, nominally in [-1, 1], at `sample_rate` Hz."""

    samples: NDArray[np.float32]
    sample_rate: int

    def __post_init__(self) -> None:
        samples = np.asarray(self.samples)
        if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
            raise AudioError(
                f"a waveform is one row of floating-point samples within -1 to 1, not {samples.dtype} of shape"
                f" {samples.shape}: average the channels, divide integers by their full scale"
            )
        object.__setattr__(self, "samples", samples.astype(np.float32, copy=False))

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


def resample(waveform: Waveform, sample_rate: int) -> Waveform:
    """The same audio at another rate (soxr, high quality)."""
    if waveform.sample_rate == sample_rate:
        return waveform
    samples = soxr.resample(waveform.samples, waveform.sample_rate, sample_rate)
    return Waveform(samples.astype(np.float32, copy=False), sample_rate)


def loudness_lufs(waveform: Waveform) -> float:
    """Integrated loudness after BS.1770-4; -inf for digital silence and whatever lies below the -70 LUFS gate.

    Audio shorter than one 0.4 s block is measured as if silence filled that block.
    """
    num_samples = math.ceil(BLOCK_SECONDS * waveform.sample_rate)
    missing = max(0, num_samples - len(waveform.samples))
    samples = np.pad(waveform.samples.astype(np.float64), (0, missing))
    if not samples.any():
        return -math.inf
    return integrated_loudness(samples, waveform.sample_rate)


def normalize_loudness(waveform: Waveform, lufs: float, *, peak: float = 0.99) -> Waveform:
    """The same audio at a loudness of `lufs`, or as near to it as a highest sample of `peak` allows.

    Audio without measurable loudness comes back as it is: no gain makes silence speak.
    """
    loudness = loudness_lufs(waveform)
    if loudness == -math.inf:
        return waveform
    gain = min(10.0 ** ((lufs - loudness) / 20.0), peak / float(np.abs(waveform.samples).max()))
    return Waveform(waveform.samples * np.float32(gain), waveform.sample_rate)


def trim_silence(waveform: Waveform, *, below_peak_db: float = 33.0) -> Waveform:
    """Trim the frames before and after that are more than `below_peak_db` quieter than the loudest frame.

    Digital silence has no loudest frame and comes back as it is.
    """
    start, end = audible_span(waveform, below_peak_db=below_peak_db)
    return Waveform(waveform.samples[start:end], waveform.sample_rate)


def audible_span(
    waveform: Waveform, *, below_peak_db: float = 33.0, max_tail_seconds: float = math.inf
) -> tuple[int, int]:
    """The first sample and last + 1 that `trim_silence` keeps.

    A tail of frames that are more than TAIL_BELOW_PEAK_DB quieter than the loudest, as of breath after the last word,
    is cut off after `max_tail_seconds`.
    """
    power = _frame_power(waveform.samples)
    if power.max(initial=0.0) == 0.0:
        return 0, len(waveform.samples)
    audible = np.flatnonzero(power > power.max() * 10.0 ** (-below_peak_db / 10.0))
    loud = np.flatnonzero(power > power.max() * 10.0 ** (-TAIL_BELOW_PEAK_DB / 10.0))
    last = min(float(audible[-1]), float(loud[-1]) + max_tail_seconds * waveform.sample_rate / TRIM_HOP)
    return int(audible[0]) * TRIM_HOP, min((int(last) + 1) * TRIM_HOP, len(waveform.samples))


def shorten_pauses(
    waveform: Waveform, max_seconds: float, to_seconds: float, *, below_peak_db: float = 28.0
) -> Waveform:
    """Shorten pauses between sounds that last more than `max_seconds` to `to_seconds`; the ends stay.

    A pause is a run of frames that are more than `below_peak_db` quieter than the loudest frame (less than for ends,
    because only long runs count). Frames that reach into a sound count as sound: TRIM_FRAME samples of each pause are
    kept in addition. The middle is removed, and the rest is joined by a cross-fade of FADE_SECONDS.
    """
    assert 0 < to_seconds <= max_seconds
    power = _frame_power(waveform.samples)
    audible = np.flatnonzero(power > power.max(initial=0.0) * 10.0 ** (-below_peak_db / 10.0))
    fade = max(1, round(FADE_SECONDS * waveform.sample_rate))
    kept = max(round(to_seconds * waveform.sample_rate), 2 * fade)
    ramp = (np.arange(fade, dtype=np.float32) + 0.5) / fade
    pieces, begin = [], 0
    for first, last in zip(audible[:-1] + 1, audible[1:], strict=True):  # silent frames first to last - 1
        start, length = int(first) * TRIM_HOP, int(last - first) * TRIM_HOP
        if length <= max(max_seconds * waveform.sample_rate, kept):
            continue
        left, right = start + kept // 2, start + length - (kept - kept // 2)
        joint = waveform.samples[left - fade : left] * (1 - ramp) + waveform.samples[right - fade : right] * ramp
        pieces += [waveform.samples[begin : left - fade], joint]
        begin = right
    return Waveform(np.concatenate([*pieces, waveform.samples[begin:]]), waveform.sample_rate)


def _frame_power(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """samples (N,) -> (N // TRIM_HOP + 1,) mean squares of frames centered on every TRIM_HOP-th sample."""
    squares = np.pad(samples.astype(np.float64) ** 2, TRIM_FRAME // 2)
    hops = squares[: len(squares) // TRIM_HOP * TRIM_HOP].reshape(-1, TRIM_HOP).sum(axis=1)
    return np.lib.stride_tricks.sliding_window_view(hops, TRIM_FRAME // TRIM_HOP).sum(axis=1) / TRIM_FRAME


def join(waveforms: Sequence[Waveform], gap_seconds: float | Sequence[float] = 0.0) -> Waveform:
    """One waveform after another, each faded at its ends against clicks, with silence between.

    `gap_seconds` is one length for all gaps, or one for each of the `len(waveforms) - 1` gaps.
    """
    assert waveforms, "nothing to join"
    sample_rate = waveforms[0].sample_rate
    assert all(waveform.sample_rate == sample_rate for waveform in waveforms), "one rate for all"
    gaps = np.broadcast_to(np.asarray(gap_seconds, dtype=np.float64), len(waveforms) - 1)
    pieces = [_fade_ends(waveforms[0]).samples]
    for gap, waveform in zip(gaps, waveforms[1:], strict=True):
        pieces += [np.zeros(round(gap * sample_rate), np.float32), _fade_ends(waveform).samples]
    return Waveform(np.concatenate(pieces), sample_rate)


def _fade_ends(waveform: Waveform) -> Waveform:
    """Linear fades of FADE_SECONDS, shorter where the waveform has less than two times that."""
    length = min(round(FADE_SECONDS * waveform.sample_rate), len(waveform.samples) // 2)
    ramp = (np.arange(length, dtype=np.float32) + 0.5) / max(1, length)
    samples = waveform.samples.copy()
    samples[:length] *= ramp
    samples[len(samples) - length :] *= ramp[::-1]
    return Waveform(samples, waveform.sample_rate)
