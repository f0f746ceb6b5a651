"""A toy codec in NumPy: one sinusoid per level, so that tests of the whole pipeline run offline in seconds.

Upstream: `audio.Waveform`.  Downstream: as for any codec.  Only the geometry is from the paper.

The spectrum is divided into one band per level, low to high. Each level codes, once per hop, the frequency of the
band's maximum and the band's loudness: two small numbers that form one code. Decoding gives one sinusoid per level.
That is sine-wave speech: crude, but rhythm and intonation remain, and a test can measure loudness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform, resample
from marstts.codec.base import CodecSpec, Codes
from marstts.errors import AudioError

LOWEST_HZ = 60.0
QUIETEST_DB = -60.0
"""Bands quieter than this (RMS, full scale = 0 dB) are silent."""

MIN_FFT_SIZE = 256
"""Short hops are padded to this before their spectrum is taken."""


class ToyCodec:
    """Sine-wave speech with the geometry of SNAC 24 kHz, or any other.

    A code is `loudness * frequencies + frequency`. Loudness 0 is silence. Codes beyond the last pair of a
    codebook whose size is not a square are decoded as the loudest.
    """

    lookahead_patches = 1
    """Loudness is interpolated from one code to the next."""

    def __init__(
        self,
        codebook_size: int = 4096,
        hop_lengths: Sequence[int] = (2048, 1024, 512),
        sample_rate: int = 24_000,
    ) -> None:
        assert codebook_size >= 4 and all(hop_lengths[0] % hop == 0 for hop in hop_lengths)
        hops = "-".join(map(str, hop_lengths))
        self.spec = CodecSpec(
            name=f"toy-{sample_rate}-{hops}-{codebook_size}",
            sample_rate=sample_rate,
            codebook_size=codebook_size,
            hop_lengths=tuple(hop_lengths),
        )
        self._loudness_steps = math.isqrt(codebook_size)
        self._frequency_steps = codebook_size // self._loudness_steps
        self._band_edges = np.geomspace(LOWEST_HZ, 0.45 * sample_rate, len(hop_lengths) + 1)

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        samples = resample(waveform, self.spec.sample_rate).samples
        if len(samples) == 0:
            raise AudioError("the toy codec was given no samples to encode")
        padded = np.pad(samples, (0, -len(samples) % self.spec.patch_samples))
        return tuple(self._encode_level(level, padded) for level in range(len(self.spec.hop_lengths)))

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches: `len(codes[0]) * spec.patch_samples` samples."""
        num_samples = len(codes[0]) * self.spec.patch_samples
        samples = np.zeros(num_samples)
        for level, level_codes in enumerate(codes):
            samples += self._synthesize_level(level, np.asarray(level_codes), num_samples)
        return Waveform(samples.astype(np.float32), self.spec.sample_rate)

    def _encode_level(self, level: int, padded: NDArray[np.float32]) -> NDArray[np.int64]:
        """padded (N,), N whole hops -> (N / hop,) codes."""
        hop = self.spec.hop_lengths[level]
        fft_size = max(hop, MIN_FFT_SIZE)
        power = np.abs(np.fft.rfft(padded.reshape(-1, hop), n=fft_size, axis=-1)) ** 2  # (T, bins)
        frequencies = np.fft.rfftfreq(fft_size, 1.0 / self.spec.sample_rate)
        low, high = self._band_edges[level], self._band_edges[level + 1]
        outside = (frequencies < low) | (frequencies >= high)
        power[:, outside] = 0.0

        mean_square = 2.0 * power.sum(axis=-1) / (fft_size * hop)  # Parseval, both halves of the spectrum
        position = np.log(np.clip(frequencies[power.argmax(axis=-1)], low, high) / low) / np.log(high / low)
        frequency = np.minimum((position * self._frequency_steps).astype(np.int64), self._frequency_steps - 1)
        loudness = self._loudness_index(10.0 * np.log10(np.maximum(mean_square, 1e-12)))
        return np.where(loudness > 0, loudness * self._frequency_steps + frequency, 0)

    def _loudness_index(self, decibels: NDArray[np.float64]) -> NDArray[np.int64]:
        """0 for silence, else 1 … steps - 1 for QUIETEST_DB … 0 dB, nearest."""
        fraction = 1.0 - decibels / QUIETEST_DB
        index = 1 + np.rint(fraction * max(1, self._loudness_steps - 2)).astype(np.int64)
        return np.where(decibels < QUIETEST_DB, 0, np.clip(index, 1, self._loudness_steps - 1))

    def _synthesize_level(self, level: int, codes: NDArray[np.int64], num_samples: int) -> NDArray[np.float64]:
        """codes (T_level,) -> (num_samples,): one sinusoid, its loudness interpolated between codes.

        Its frequency makes whole cycles per hop, so that phase is continuous from each code to the next.
        """
        hop = self.spec.hop_lengths[level]
        loudness = np.minimum(codes // self._frequency_steps, self._loudness_steps - 1)
        decibels = QUIETEST_DB * (1.0 - (loudness - 1) / max(1, self._loudness_steps - 2))
        amplitude = np.where(loudness > 0, math.sqrt(2.0) * 10.0 ** (decibels / 20.0), 0.0)

        low, high = self._band_edges[level], self._band_edges[level + 1]
        position = (codes % self._frequency_steps + 0.5) / self._frequency_steps
        frequency = low * (high / low) ** position

        cycles = np.maximum(1, np.rint(frequency * hop / self.spec.sample_rate))
        phase = 2.0 * np.pi * (cycles[:, None] * np.arange(hop) / hop).reshape(-1)
        centers = np.arange(len(codes)) * hop + hop / 2
        return np.interp(np.arange(num_samples), centers, amplitude) * np.sin(phase) if len(codes) else np.zeros(0)
