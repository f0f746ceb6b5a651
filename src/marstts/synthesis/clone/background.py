"""What sounds under the voice of a reference: noise and music.

Upstream: `clone`.  Downstream: the waveform.
Two measures of the quietest frames: how far they are below the loudest ones, and how much of them is tones. Frames of
64 ms at 16 kHz, of which the tones are bins well above the median of their neighbors. Between the beats of drums or of
a pulsed bass it is quiet: they are found by the autocorrelation of the onsets in bands that voices leave free, or in
which no voice is as regular.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform

MIN_CONTRAST_DB, MIN_CONTRAST_SECONDS = 20.0, 2.0
"""Least difference between the loudest frames of a recording and its pauses. In 24 recordings of
people in quiet rooms it is 25 to 65 dB; with a chord 12 dB below the voice, 13 to 18 dB."""

MAX_TONE_RATIO = 0.45
"""Largest share of tones in the pauses. In 33 recordings of people it is at most 0.31, and mostly below 0.1; with
chords 20 dB below the voice it is above 0.45 in 31, and with chords that change and fade in 32."""

MAX_TONE_DISTANCE_DB = 45.0
"""Tones that are further below the loudest frames than this, such as the hum of a good amplifier, do no harm."""

MIN_BEAT_SECONDS = 4.0
"""Least length in which a beat can be told from chance: eight beats of 120 a minute."""

BEATS = (((30.0, 75.0), 0.6), ((75.0, 105.0), 0.65), ((105.0, 150.0), 0.65), ((4500.0, 8000.0), 0.5))
"""Bands, Hz, and the least autocorrelation of their onsets that is a beat. In 117 recordings of people it is at most
0.52, 0.43, 0.32 and 0.25; with a pulsed bass or drums 8 dB below the voice it is above these bounds in most."""

BEAT_DEPTH_DB = 42.0
"""What is further below the loudest frames than this does no harm, and is no onset."""

_BEAT_LAGS = (0.2, 1.2)
"""Seconds from beat to beat."""

_RATE, _FRAME, _HOP = 16_000, 1024, 320
_TONE_DB, _NEIGHBORS, _BAND_HERTZ = 12.0, 12, (120.0, 4000.0)
_QUIET_RATIO, _MIN_QUIET = 8, 5


def loudness_contrast(waveform: Waveform) -> float:
    """How many dB the quietest frames are below the loudest ones; infinite for a recording too short to tell."""
    if waveform.seconds < MIN_CONTRAST_SECONDS:
        return math.inf
    samples = waveform.samples.astype(np.float64)
    hop = waveform.sample_rate // 50
    power = (samples[: len(samples) // hop * hop].reshape(-1, hop) ** 2).mean(axis=1)
    quiet, loud = np.percentile(10.0 * np.log10(power + 1e-12), (2, 90))
    return float(loud - quiet)


def tones(waveform: Waveform) -> tuple[float, float]:
    """The ratio of tones (0 to 1) in the quietest eighth of the frames, and how many dB those are below the loudest.

    0 and infinity for a recording too short to tell.
    """
    if waveform.seconds < MIN_CONTRAST_SECONDS:
        return 0.0, math.inf
    samples = audio.resample(waveform, _RATE).samples.astype(np.float64)
    frames = np.lib.stride_tricks.sliding_window_view(samples, _FRAME)[::_HOP]  # (T, _FRAME)
    power = (frames**2).mean(axis=1)
    quiet = np.argsort(power)[: max(_MIN_QUIET, len(frames) // _QUIET_RATIO)]
    distance = 10.0 * np.log10((np.percentile(power, 90) + 1e-12) / (np.median(power[quiet]) + 1e-12))
    spectrum = np.abs(np.fft.rfft(frames[quiet] * np.hanning(_FRAME), axis=1)) ** 2 + 1e-9  # (Q, F)
    first, last = (round(hertz * _FRAME / _RATE) for hertz in _BAND_HERTZ)
    is_tone = spectrum > 10 ** (_TONE_DB / 10) * _median_of_neighbors(spectrum)
    band, is_tone = spectrum[:, first:last], is_tone[:, first:last]
    return float(np.median((band * is_tone).sum(axis=1) / band.sum(axis=1))), float(distance)


def beat_seconds(waveform: Waveform) -> float | None:
    """Seconds from beat to beat where something sounds as regularly as drums or a pulsed bass; None where nothing does.

    Onsets must recur after one beat and after two.
    """
    if waveform.seconds < MIN_BEAT_SECONDS:
        return None
    samples = audio.resample(waveform, _RATE).samples.astype(np.float64)
    samples = samples[: len(samples) // _HOP * _HOP]
    spectrum = np.fft.rfft(samples, size := 1 << (len(samples) - 1).bit_length())
    hertz = np.fft.rfftfreq(size, 1 / _RATE)
    loud = np.percentile(_decibels(samples), 90)
    for (low, high), least in BEATS:
        band = np.fft.irfft(np.where((hertz >= low) & (hertz < high), spectrum, 0), size)[: len(samples)]
        levels = np.maximum(_decibels(band), loud - BEAT_DEPTH_DB)
        similarity, lag = _recurrence(np.maximum(levels[2:] - levels[:-2], 0.0))
        if similarity >= least:
            return lag * _HOP / _RATE
    return None


def _decibels(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """(T * _HOP,) -> (T,): power of frames, each with half of its neighbors."""
    power = np.pad((samples.reshape(-1, _HOP) ** 2).mean(axis=1), 1, mode="edge")
    return np.asarray(10.0 * np.log10((power[:-2] + 2.0 * power[1:-1] + power[2:]) / 4.0 + 1e-12))


def _recurrence(onsets: NDArray[np.float64]) -> tuple[float, int]:
    """The largest autocorrelation of onsets (T,) at a beat's lag and at twice that lag, and the lag in frames."""
    centered = onsets - onsets.mean()
    spectrum = np.fft.rfft(centered, 2 * len(centered))
    products = np.fft.irfft(np.abs(spectrum) ** 2)[: len(centered)]
    if products[0] < 1.0:
        return 0.0, 0
    count = len(centered) - np.arange(len(centered))
    similarity = products / products[0] * len(centered) / np.maximum(count, len(centered) / 3)
    first, last = (round(seconds * _RATE / _HOP) for seconds in _BEAT_LAGS)
    lags = range(first, min(last, len(centered) // 3))
    return max((float(min(similarity[lag], similarity[2 * lag - 1 : 2 * lag + 2].max())), lag) for lag in lags)


def _median_of_neighbors(spectrum: NDArray[np.float64]) -> NDArray[np.float64]:
    """(Q, F) -> (Q, F): of each bin and _NEIGHBORS on both sides."""
    padded = np.pad(spectrum, ((0, 0), (_NEIGHBORS, _NEIGHBORS)), mode="edge")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBORS + 1, axis=1), axis=-1))


def describe_background(waveform: Waveform) -> str | None:
    """What sounds under the voice, as a part of a sentence; None where nothing does."""
    if (contrast := loudness_contrast(waveform)) < MIN_CONTRAST_DB:
        below = f"{max(0.0, contrast):.0f} dB below its loudest parts"
        return f"something sounds under the voice, {below}, such as music or noise"
    ratio, distance = tones(waveform)
    if ratio > MAX_TONE_RATIO and distance < MAX_TONE_DISTANCE_DB:
        return f"tones sound under the voice, {distance:.0f} dB below its loudest parts, such as music or a hum"
    if (seconds := beat_seconds(waveform)) is not None:
        return f"a beat sounds under the voice, every {seconds:.1f} s, such as music or a machine"
    return None
