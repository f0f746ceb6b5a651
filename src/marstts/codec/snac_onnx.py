"""SNAC, ready to run: ONNX graphs, no PyTorch.

Upstream: a folder written by `snac_graphs.export_snac`.  Downstream: synthesis, as with `snac.SnacCodec`, whose codes,
audio and name these are.
Long codes are decoded in windows, for what lies in the processor's cache is computed faster. A window hears a little
more than itself on either side, and of that each stage of the decoder keeps what the next one can hear.
Shapes: T patches · N samples.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marstts.audio import Waveform
from marstts.codec.base import Codes, noise_of
from marstts.codec.snac import SnacConfig, SnacFolder, whole_patches
from marstts.config import read_config
from marstts.errors import CheckpointError
from marstts.onnx_session import open_session

WINDOW_PATCHES = 8
"""Decoded at a time: what a block then holds fits into a megabyte or a few."""

MOST_THREADS = 2
"""More were not measured."""

LAST_REACH = 3
"""Samples to each side that the first and the last convolution hear: they are 7 wide."""

UNITS_REACH = 3 * (1 + 3 + 9)
"""Samples to each side that a block's three residual units hear together."""


class Span(NamedTuple):
    """Places `first` up to, not including, `last`."""

    first: int
    last: int

    def widened(self, by: int, size: int) -> Span:
        """With so many more on each side, within a whole of `size`."""
        return Span(max(0, self.first - by), min(size, self.last + by))

    def inside(self, start: int) -> Span:
        """Counted from `start`."""
        return Span(self.first - start, self.last - start)


class SnacOnnx:
    """A `codec.base.Codec` over the graphs in `folder`.

    `seed` is that of the decoder's noise. Raises ConfigError or CheckpointError where files are missing or damaged.
    """

    def __init__(self, folder: Path, *, seed: int = 0, threads: int | None = None) -> None:
        described = read_config(SnacFolder, folder / "config.json")
        self._config, self.spec = described.model, described.spec
        self.reach_patches = self._config.reach_patches
        self._seed = seed
        threads = min(MOST_THREADS, os.cpu_count() or 1) if threads is None else threads
        self._encoder = open_session(folder / "encoder.onnx", threads)
        self._decoder = open_session(folder / "decoder.onnx", threads)

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        levels = self._encoder.run(None, {"samples": whole_patches(waveform, self.spec)[None, None]})
        return tuple(level[0] for level in levels)

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches, `first` of the utterance's before them: `len(codes[0]) * spec.patch_samples`
        samples.
        """
        return Waveform(self.decode_window(codes, 0, len(codes[0]), first), self.spec.sample_rate)

    def decoding(self) -> SnacDecoding:
        """A new utterance, of which nothing has been heard; `codec.base.DecodesInOrder`."""
        return SnacDecoding(self)

    def decode_window(
        self, codes: Sequence[NDArray[np.int64]], start: int, stop: int, first: int = 0
    ) -> NDArray[np.float32]:
        """The samples of patches `start` to `stop` as they are in the audio of all `codes`; `first` as in `decode`."""
        self._check(codes)
        edges = [*range(start, stop, WINDOW_PATCHES), stop]
        pieces = [self._decode_some(codes, Span(*pair), first) for pair in pairwise(edges)]
        return np.concatenate([np.zeros(0, np.float32), *pieces])

    def _decode_some(self, codes: Sequence[NDArray[np.int64]], window: Span, first: int) -> NDArray[np.float32]:
        config, layout = self._config, self.spec.patch_layout
        patches, spans = heard_by(config, window, len(codes[0]))
        feed: dict[str, NDArray[np.generic]] = {
            f"codes.{level}": np.asarray(own[patches.first * count : patches.last * count], np.int64)[None]
            for level, (own, count) in enumerate(zip(codes, layout, strict=True))
        }
        size, begin = config.vq_strides[0], patches.first * config.vq_strides[0]
        edges: list[int] = []
        for index, (rate, span) in enumerate(zip(config.decoder_rates, spans, strict=True)):
            size *= rate
            edges += span.inside(begin * rate)
            begin = span.first
            if config.noise:
                feed[f"noise.{index}"] = self._noise(index, span, size, first)
        samples = self._decoder.run(None, {**feed, "spans": np.array(edges, np.int64)})[0][0, 0]
        wanted = Span(window.first * self.spec.patch_samples, window.last * self.spec.patch_samples).inside(begin)
        return samples[wanted.first : wanted.last]

    def _noise(self, block: int, span: Span, size: int, first: int) -> NDArray[np.float32]:
        """(1, 1, N) for the samples in `span`, of which there are `size` per patch."""
        patches = Span(span.first // size, -(-span.last // size))
        drawn = [noise_of((self._seed, block), first + patch, size) for patch in range(*patches)]
        inside = span.inside(patches.first * size)
        return np.concatenate(drawn)[None, None, inside.first : inside.last]

    def _check(self, codes: Sequence[NDArray[np.int64]]) -> None:
        layout = self.spec.patch_layout
        if len(codes) != len(layout) or any(
            len(own) != n * len(codes[0]) for own, n in zip(codes, layout, strict=True)
        ):
            raise CheckpointError(
                f"{self.spec.name} decodes levels of T x {layout} codes, not {[len(level) for level in codes]}"
            )


class SnacDecoding:
    """A `codec.base.Decoding`: windows, each with as little of its surroundings as can be heard."""

    def __init__(self, codec: SnacOnnx) -> None:
        self._codec, self._heard = codec, 0

    def hear(self, codes: Sequence[NDArray[np.int64]], stop: int) -> NDArray[np.float32]:
        """The samples between where the last call stopped and patch `stop`."""
        start, self._heard = self._heard, stop
        return self._codec.decode_window(codes, start, stop)


def heard_by(config: SnacConfig, window: Span, patches: int) -> tuple[Span, list[Span]]:
    """Which patches have a say in a window of an utterance of so many, and what must be known of each block's samples.

    Followed from the samples back to the codes; where the utterance ends, so does what can be heard.
    """
    size = patches * config.hop_lengths[0]
    span = Span(window.first * config.hop_lengths[0], window.last * config.hop_lengths[0]).widened(LAST_REACH, size)
    spans = []
    for rate in reversed(config.decoder_rates):
        span = span.widened(UNITS_REACH, size)
        spans.append(span)
        padding, size = -(-rate // 2), size // rate
        span = Span((span.first + padding) // rate - 1, (span.last - 1 + padding) // rate + 1).widened(0, size)
    span = span.widened(LAST_REACH, size)
    latents = config.vq_strides[0]
    return Span(span.first // latents, -(-span.last // latents)), spans[::-1]
