"""Synthetic speakers and styles: drawn from base voices, and rendered by changing an engine's waveform.

Upstream: `tts_engines`, one reading of a sentence.  Downstream: `synthetic`, which writes it to disk.
There are two methods. Where the engine controls rate and pitch, resampling changes the vocal tract (all formants move
by one factor) and a filter the timbre: fast, and without vocoder artifacts. Where it does not, and for whispering, the
WORLD vocoder (`pyworld`) separates F0, spectral envelope and aperiodicity.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import require
from marstts_lab.data.corpora.tts_engines import BASE_VOICES, BaseVoice, read_twice

SAMPLE_RATE = 24000
EDGE_SECONDS = 0.09
"""Quiet kept before and after each utterance."""
NOISE_DB = -76.0
"""Level of the noise floor of every utterance: real recordings are never digitally silent."""
RATE_SPREAD = 0.08
"""Standard deviation of the logarithm of the rate, over utterances of an engine with many voices."""
TIMBRE_TERMS = 6
TIMBRE_DB = 3.0
FILTER_TAPS = 511
FRAME_MS = 5.0
"""Frames of WORLD."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """Changes of a reading style, relative to the speaker's regular voice."""

    semitones: float = 0.0
    pitch_range: float = 1.0
    rate: float = 1.0
    tilt_db: float = 0.0
    """dB per octave above 600 Hz."""
    formants: float = 1.0
    lufs: float = -23.0
    whispered: bool = False


STYLES = {
    "regular": Style(),
    "loud": Style(semitones=3, pitch_range=1.4, rate=0.95, tilt_db=2.5, formants=1.02, lufs=-16),
    "whisper": Style(rate=0.9, tilt_db=1.0, formants=1.03, lufs=-31, whispered=True),
    "high": Style(semitones=5, pitch_range=1.2, tilt_db=0.5, formants=1.03),
    "low": Style(semitones=-4, pitch_range=0.8, rate=0.95, tilt_db=-0.5, formants=0.98),
    "fast": Style(semitones=0.5, pitch_range=1.1, rate=1.4),
    "slow": Style(semitones=-0.5, pitch_range=0.9, rate=0.7),
}
"""The seven reading styles of EARS."""


@dataclass(frozen=True, kw_only=True)
class SyntheticSpeaker:
    """A speaker drawn from a base voice; all draws are functions of (base, number, seed)."""

    id: str
    base: str
    formants: float
    """Vocal-tract factor: formant frequencies are multiplied by it."""
    semitones: float
    """Pitch relative to the base voice."""
    pitch_range: float
    rate: float
    timbre_db: tuple[float, ...]
    """Cosine terms of an equalizer over the mel scale."""
    engine_voice: str = ""
    """The engine's voice, where the engine has many; empty = that of the base voice."""


def draw_rng(*key: object) -> np.random.Generator:
    """A random generator that depends on the key alone, on every machine."""
    digest = hashlib.sha256("|".join(map(str, key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def draw_speaker(base: BaseVoice, number: int, per_voice: int, seed: int) -> SyntheticSpeaker:
    """Speaker `number` of `per_voice`; number 0 keeps the engine's voice. Vocal tracts are stratified over draws.

    Deep male voices break below a factor of 0.92, which is why ranges differ by sex. Speakers of an engine with many
    voices are its voices.
    """
    unchanged: dict[str, Any] = {"formants": 1.0, "semitones": 0.0, "pitch_range": 1.0, "rate": 1.0}
    unchanged["timbre_db"] = (0.0,) * TIMBRE_TERMS
    if base.draw_voice is not None:
        voice = base.draw_voice(number, seed)
        name = f"{base.name}.{number}"
        return SyntheticSpeaker(id=name, base=base.name, engine_voice=voice, **unchanged)
    if number == 0:
        return SyntheticSpeaker(id=f"{base.name}.0", base=base.name, **unchanged)
    rng = draw_rng("speaker", base.name, number, seed)
    low, high = (0.80, 1.14) if base.female else (0.92, 1.26)
    place = (number - 1 + rng.uniform()) / max(1, per_voice - 1)
    formants = float(low * (high / low) ** place)
    shift = 12 * np.log2(formants) * 1.6 + rng.normal(0, 3.0)
    return SyntheticSpeaker(
        id=f"{base.name}.{number}",
        base=base.name,
        formants=formants,
        semitones=float(np.clip(shift, -7, 8)),
        pitch_range=float(np.exp(rng.normal(0, 0.2))),
        rate=float(np.exp(np.clip(rng.normal(0, 0.08), -0.15, 0.15))),
        timbre_db=tuple(float(term) for term in rng.normal(0, TIMBRE_DB, TIMBRE_TERMS)),
    )


def render(speaker: SyntheticSpeaker, style_name: str, text: str, rng: np.random.Generator) -> Waveform:
    """Render a sentence in the speaker's voice and the style, at 24 kHz; DataError if the engine fails."""
    base, style = BASE_VOICES[speaker.base], STYLES[style_name]
    if speaker.engine_voice:
        base = replace(base, engine_voice=speaker.engine_voice)
        speaker = replace(speaker, rate=float(np.exp(np.clip(rng.normal(0, RATE_SPREAD), -0.2, 0.2))))
    if needs_vocoder(base, style):
        samples = render_by_vocoder(speaker, style, base, text)
    else:
        samples = render_by_resampling(speaker, style, base, text)
    samples = trim_edges(equalize(samples, speaker.timbre_db, style.tilt_db))
    samples = samples + 10 ** (NOISE_DB / 20) * rng.standard_normal(len(samples)).astype(np.float32)
    return Waveform(set_loudness(samples, style.lufs + rng.normal(0, 0.7)), SAMPLE_RATE)


def needs_vocoder(base: BaseVoice, style: Style) -> bool:
    """Return True where the style whispers, or changes pitch and the engine does not."""
    return style.whispered or (not base.has_pitch and abs(style.semitones) > 1)


def render_by_resampling(speaker: SyntheticSpeaker, style: Style, base: BaseVoice, text: str) -> NDArray[np.float32]:
    """Samples (N,) at 24 kHz. Resampling by f moves formants and pitch by f; the engine compensates rate and pitch."""
    factor = speaker.formants * style.formants
    rate = speaker.rate * style.rate / factor
    pitch = 2 ** ((speaker.semitones + style.semitones) / 12) / factor
    reading = read_twice(text, base, float(np.clip(rate, 0.45, 2.2)), float(np.clip(pitch, 0.5, 2.0)))
    samples = soxr.resample(reading.samples, reading.sample_rate, SAMPLE_RATE / factor)
    top = 0.46 * base.bandwidth * factor
    return fill_upper_band(samples.astype(np.float32), top) if top < 0.46 * SAMPLE_RATE else samples.astype(np.float32)


def render_by_vocoder(speaker: SyntheticSpeaker, style: Style, base: BaseVoice, text: str) -> NDArray[np.float32]:
    """Samples (N,) at 24 kHz through WORLD analysis and synthesis."""
    world = open_vocoder()
    rate = speaker.rate * style.rate
    reading = audio.resample(read_twice(text, base, rate, 1.0), SAMPLE_RATE)
    samples = reading.samples.astype(np.float64)
    coarse_f0, times = world.dio(samples, SAMPLE_RATE, f0_floor=55, f0_ceil=520)
    f0 = world.stonemask(samples, coarse_f0, times, SAMPLE_RATE)
    envelope = np.log(world.cheaptrick(samples, f0, times, SAMPLE_RATE, fft_size=1024) + 1e-16)
    aperiodicity = world.d4c(samples, f0, times, SAMPLE_RATE, fft_size=1024)
    frequencies = np.linspace(0, SAMPLE_RATE / 2, envelope.shape[1])

    top = 0.46 * base.bandwidth
    if top < 0.46 * SAMPLE_RATE:  # a noise-like continuation of the band just below
        edge, above = (frequencies > top - 1200) & (frequencies <= top), frequencies > top
        envelope[:, above] = envelope[:, edge].mean(axis=1, keepdims=True) - 0.7 * (frequencies[above] - top) / 1000
        aperiodicity[:, above] = np.maximum(aperiodicity[:, above], 0.98)
    envelope, aperiodicity = (
        stretch_frequencies(envelope, speaker.formants * style.formants),
        stretch_frequencies(aperiodicity, speaker.formants * style.formants),
    )
    if style.whispered:
        f0, aperiodicity = np.zeros_like(f0), np.ones_like(aperiodicity)
        envelope = envelope - 1.2 * np.exp(-frequencies / 350) * np.log(10)  # no voicing bar
    else:
        f0 = move_pitch(f0, speaker.semitones + style.semitones, speaker.pitch_range * style.pitch_range)
    voice = world.synthesize(
        f0, np.ascontiguousarray(np.exp(envelope)), np.ascontiguousarray(np.clip(aperiodicity, 1e-3, 1)), SAMPLE_RATE,
        FRAME_MS,
    )  # fmt: skip
    return np.asarray(voice, dtype=np.float32)


def open_vocoder() -> Any:
    """The module `pyworld`; MissingExtraError without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports pkg_resources, which warns
        return require("pyworld", "synthetic")


def stretch_frequencies(frames: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Frames (T, F) with the content of frequency f moved to f * factor."""
    place = np.clip(np.arange(frames.shape[1]) / factor, 0, frames.shape[1] - 1)
    below = np.floor(place).astype(int)
    above, weight = np.minimum(below + 1, frames.shape[1] - 1), place - below
    return frames[:, below] * (1 - weight) + frames[:, above] * weight


def move_pitch(f0: NDArray[np.float64], semitones: float, pitch_range: float) -> NDArray[np.float64]:
    """F0 (T,), 0 = unvoiced, shifted and its range scaled about the mean, on a logarithmic scale."""
    voiced = f0 > 0
    if not voiced.any():
        return f0
    logarithms = np.log(f0[voiced])
    mean = logarithms.mean()
    moved = f0.copy()
    moved[voiced] = np.exp(mean + (logarithms - mean) * pitch_range + semitones / 12 * np.log(2))
    return np.clip(moved, 0, 600)


def fill_upper_band(samples: NDArray[np.float32], top: float) -> NDArray[np.float32]:
    """The samples with noise above `top` Hz that follows the energy of the band below, so that the band is full."""
    spectrum_size = 512
    hop = spectrum_size // 2
    window = np.hanning(spectrum_size + 1)[:-1].astype(np.float32)
    padded = np.pad(samples, (spectrum_size, spectrum_size + hop))
    frames = np.lib.stride_tricks.sliding_window_view(padded, spectrum_size)[::hop] * window
    spectra = np.fft.rfft(frames, axis=-1)
    frequencies = np.fft.rfftfreq(spectrum_size, 1 / SAMPLE_RATE)
    edge, above = (frequencies > top - 1500) & (frequencies <= top - 200), frequencies > top - 200
    level = np.sqrt((np.abs(spectra[:, edge]) ** 2).mean(axis=1, keepdims=True))
    slope = 10 ** (-3.0 * (frequencies[above] - top) / 1000 / 20)  # -3 dB per kHz
    noise = draw_rng("upper band", len(samples)).standard_normal((len(padded),)).astype(np.float32)
    noise_spectra = np.fft.rfft(np.lib.stride_tricks.sliding_window_view(noise, spectrum_size)[::hop] * window, axis=-1)
    unit = noise_spectra[:, above] / np.sqrt((np.abs(noise_spectra[:, above]) ** 2).mean())
    spectra[:, above] = level * slope * unit
    voice = np.zeros(len(padded), np.float32)
    for index, frame in enumerate(np.fft.irfft(spectra, n=spectrum_size, axis=-1)):
        voice[index * hop : index * hop + spectrum_size] += frame
    return voice[spectrum_size : spectrum_size + len(samples)]


def equalize(samples: NDArray[np.float32], timbre_db: tuple[float, ...], tilt_db: float) -> NDArray[np.float32]:
    """The samples through a linear-phase filter: cosines over the mel scale, and a tilt above 600 Hz."""
    frequencies = np.fft.rfftfreq(FILTER_TAPS + 1, 1 / SAMPLE_RATE)
    mel = np.log1p(frequencies / 700) / np.log1p(SAMPLE_RATE / 2 / 700)
    gain_db: NDArray[np.float64] = np.zeros_like(mel)
    for number, term in enumerate(timbre_db, start=1):
        gain_db += term * np.cos(np.pi * number * mel)
    gain_db = gain_db + tilt_db * np.log2(np.clip(frequencies, 600, 6000) / 600)
    taps = np.roll(np.fft.irfft(10 ** (gain_db / 20)), FILTER_TAPS // 2 + 1) * np.hanning(FILTER_TAPS + 1)
    size = 1 << (len(samples) + FILTER_TAPS).bit_length()
    filtered = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(taps, size), size)
    delay = FILTER_TAPS // 2 + 1
    return filtered[delay : delay + len(samples)].astype(np.float32)


def set_loudness(samples: NDArray[np.floating], lufs: float) -> NDArray[np.float32]:
    """The samples at this BS.1770 loudness (blocks of 0.2 s, for short utterances), but no peak above 0.97."""
    pyloudnorm = require("pyloudnorm", "synthetic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyloudnorm warns of clipping, which the peak limit prevents
        loudness = pyloudnorm.Meter(SAMPLE_RATE, block_size=0.2).integrated_loudness(samples.astype(np.float64))
    gain = 10 ** ((lufs - loudness) / 20) if np.isfinite(loudness) else 1.0
    peak = float(np.abs(samples).max(initial=0.0))
    return (samples * min(gain, 0.97 / max(peak, 1e-9))).astype(np.float32)


def trim_edges(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The samples within 40 dB of the loudest 10 ms, with a short silence around them."""
    frame = SAMPLE_RATE // 100
    energy = (samples[: len(samples) // frame * frame].reshape(-1, frame) ** 2).mean(axis=1)
    if not len(energy) or energy.max() <= 0:
        return samples
    loud = np.flatnonzero(energy > energy.max() * 1e-4)
    edge = int(EDGE_SECONDS * SAMPLE_RATE)
    padded = np.pad(samples, edge)
    return padded[loud[0] * frame : (loud[-1] + 1) * frame + 2 * edge]
