"""Inference of SNAC: ONNX graphs, without PyTorch.

Upstream: a folder written by `snac_graphs.export_snac`.  Downstream: synthesis. Codes, audio and name are those of
`snac.SnacCodec`.
Long codes are decoded in windows that fit into the processor's cache. A window is padded by its receptive field, and
each stage of the decoder keeps only what the next stage needs.
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
from marstts.codec.base import Codes, check_codes, noise_of
from marstts.codec.snac import SnacConfig, SnacFolder, whole_patches
from marstts.errors import CheckpointError
from marstts.io.config import read_config
from marstts.onnx.session import CheckedGraph, Shape

WINDOW_PATCHES = 8
"""Patches decoded at a time: the activations of a block then take a few megabytes."""

MAX_THREADS = 2
"""More threads were not measured."""

OUTER_FIELD = 3
"""Receptive field on each side of the first and the last convolution: they are 7 wide."""

UNITS_FIELD = 3 * (1 + 3 + 9)
"""Receptive field on each side of a block's three residual units together."""


class Span(NamedTuple):
    """Positions from `first` up to, not including, `last`."""

    first: int
    last: int

    def widened(self, by: int, size: int) -> Span:
        """The span extended by this many positions on each side, within 0 to `size`."""
        return Span(max(0, self.first - by), min(size, self.last + by))

    def inside(self, start: int) -> Span:
        """The span counted from `start`."""
        return Span(self.first - start, self.last - start)


class SnacOnnx:
    """A `codec.base.Codec` over the graphs in `folder`.

    `seed` is that of the decoder's noise. Raises CheckpointError where files are missing or malformed.
    """

    def __init__(self, folder: Path, *, seed: int = 0, threads: int | None = None) -> None:
        described = read_config(SnacFolder, folder / "config.json", CheckpointError)
        self._config, self.spec = described.model, described.spec
        self.lookahead_patches = self._config.lookahead_patches
        self._seed = seed
        threads = min(MAX_THREADS, os.cpu_count() or 1) if threads is None else threads
        levels = range(len(self.spec.hop_lengths))
        self._level_names = tuple(f"codes.{level}" for level in levels)
        codes: dict[str, Shape] = dict.fromkeys(self._level_names, (1, None))
        blocks = range(len(self._config.decoder_rates) if self._config.noise else 0)
        noise: dict[str, Shape] = {f"noise.{index}": (1, 1, None) for index in blocks}
        spans: dict[str, Shape] = {"spans": (2 * len(self._config.decoder_rates),)}
        samples: dict[str, Shape] = {"samples": (1, 1, None)}
        outputs: dict[str, Shape] = dict.fromkeys(self._level_names, (None, None))
        self._encoder = CheckedGraph(folder / "encoder.onnx", samples, outputs, threads)
        self._decoder = CheckedGraph(folder / "decoder.onnx", {**codes, **spans, **noise}, samples, threads)

    def encode(self, waveform: Waveform) -> Codes:
        """Codes of the waveform, padded with silence to whole patches; resampled if its rate differs."""
        samples = whole_patches(waveform, self.spec)
        shapes = [(1, len(samples) // hop) for hop in self.spec.hop_lengths]
        levels = self._encoder.run({"samples": samples[None, None]}, shapes)
        return tuple(check_codes(level[0], self.spec) for level in levels)

    def decode(self, codes: Sequence[NDArray[np.int64]], first: int = 0) -> Waveform:
        """The audio of whole patches, `len(codes[0]) * spec.patch_samples` samples; `first` as in `base.Codec`."""
        return Waveform(self.decode_window(codes, 0, len(codes[0]), first), self.spec.sample_rate)

    def decoding(self) -> SnacDecoding:
        """Start decoding a new utterance; see `codec.base.IncrementalCodec`."""
        return SnacDecoding(self)

    def decode_window(
        self, codes: Sequence[NDArray[np.int64]], start: int, stop: int, first: int = 0
    ) -> NDArray[np.float32]:
        """The samples of patches `start` to `stop` as they are in the audio of all `codes`; `first` as in `decode`."""
        self._check(codes)
        edges = [*range(start, stop, WINDOW_PATCHES), stop]
        pieces = [self._decode_span(codes, Span(*pair), first) for pair in pairwise(edges)]
        return np.concatenate([np.zeros(0, np.float32), *pieces])

    def _decode_span(self, codes: Sequence[NDArray[np.int64]], window: Span, first: int) -> NDArray[np.float32]:
        config, layout = self._config, self.spec.patch_layout
        patches, spans = receptive_field(config, window, len(codes[0]))
        feed: dict[str, NDArray[np.generic]] = {
            f"codes.{level}": np.asarray(values[patches.first * count : patches.last * count], np.int64)[None]
            for level, (values, count) in enumerate(zip(codes, layout, strict=True))
        }
        size, begin = config.vq_strides[0], patches.first * config.vq_strides[0]
        edges: list[int] = []
        for index, (rate, span) in enumerate(zip(config.decoder_rates, spans, strict=True)):
            size *= rate
            edges += span.inside(begin * rate)
            begin = span.first
            if config.noise:
                feed[f"noise.{index}"] = self._noise(index, span, size, first)
        shape = (1, 1, spans[-1].last - spans[-1].first)
        samples = self._decoder.run({**feed, "spans": np.array(edges, np.int64)}, [shape])[0][0, 0]
        kept = Span(window.first * self.spec.patch_samples, window.last * self.spec.patch_samples).inside(begin)
        return samples[kept.first : kept.last]

    def _noise(self, block: int, span: Span, size: int, first: int) -> NDArray[np.float32]:
        """(1, 1, N) for the samples in `span`, of which there are `size` per patch."""
        patches = Span(span.first // size, -(-span.last // size))
        drawn = [noise_of((self._seed, block), first + patch, size) for patch in range(*patches)]
        inside = span.inside(patches.first * size)
        return np.concatenate(drawn)[None, None, inside.first : inside.last]

    def _check(self, codes: Sequence[NDArray[np.int64]]) -> None:
        layout = self.spec.patch_layout
        if len(codes) != len(layout) or any(
            len(level) != n * len(codes[0]) for level, n in zip(codes, layout, strict=True)
        ):
            raise CheckpointError(
                f"{self.spec.name} decodes levels of T x {layout} codes, not {[len(level) for level in codes]}"
            )
        for level in codes:
            check_codes(np.asarray(level), self.spec)


class SnacDecoding:
    """A `codec.base.Decoding` by windows, each padded by its receptive field only."""

    def __init__(self, codec: SnacOnnx) -> None:
        self._codec, self._decoded_patches = codec, 0

    def decode_until(self, codes: Sequence[NDArray[np.int64]], stop: int) -> NDArray[np.float32]:
        """The samples from the end of the last call to patch `stop`."""
        start, self._decoded_patches = self._decoded_patches, stop
        return self._codec.decode_window(codes, start, stop)


def receptive_field(config: SnacConfig, window: Span, patches: int) -> tuple[Span, list[Span]]:
    """The patches that influence a window of an utterance of `patches` patches, and the span of each block's samples.

    Followed from the samples back to the codes, within the utterance.
    """
    size = patches * config.hop_lengths[0]
    span = Span(window.first * config.hop_lengths[0], window.last * config.hop_lengths[0]).widened(OUTER_FIELD, size)
    spans = []
    for rate in reversed(config.decoder_rates):
        span = span.widened(UNITS_FIELD, size)
        spans.append(span)
        padding, size = -(-rate // 2), size // rate
        span = Span((span.first + padding) // rate - 1, (span.last - 1 + padding) // rate + 1).widened(0, size)
    span = span.widened(OUTER_FIELD, size)
    latents = config.vq_strides[0]
    return Span(span.first // latents, -(-span.last // latents)), spans[::-1]
