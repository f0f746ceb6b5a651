"""Incremental decoding: the audio of an utterance that is still being generated.

Upstream: rows of a running batch, `ModelSession`.  Downstream: `runner`.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts.audio import Waveform
from marstts.codec.base import Codes, check_samples, start_decoding
from marstts.generation.request import RequestState
from marstts.io.config import Config
from marstts.synthesis.model_session import ModelSession
from marstts.voice import Voice

Samples = NDArray[np.float32]


class ChunkSizes(Protocol):
    """Chooses the sizes of chunks, in patches, and what is checked after them."""

    @property
    def checks_sent(self) -> bool:
        """Whether words are timed, and flaws looked for even in a sentence of which some was sent, to warn of them."""
        ...

    def first(self) -> int:
        """Return the size of the first chunk of an utterance; asked again until that chunk is decoded."""
        ...

    def following(self, size: int) -> int:
        """Return the size of the chunk after one of `size`."""
        ...

    @property
    def least(self) -> StreamConfig:
        """The smallest chunks that these sizes can be, whoever else listens; no sentence is sent before them."""
        ...

    def may_wait(self, seconds: float) -> bool:
        """Whether a listener has enough to play until so many more seconds of audio are made and checked.

        A sentence of which nothing was sent is then held back until it has ended: a flaw can still be repaired.
        """
        ...


class StreamConfig(Config):
    """Sizes of the chunks of a stream."""

    first_chunk_patches: int = Field(2, ge=1)
    """Decoded for the first chunk of a sentence; with more, more flaws are found in time to sample again."""

    max_chunk_patches: int = Field(24, ge=1)
    """Chunks double until they are this long."""

    checks_sent: bool = True
    """Time words, and look for flaws even in a sentence of which some was sent already, to warn of them."""

    def first(self) -> int:
        """Return the size of the first chunk of an utterance."""
        return self.first_chunk_patches

    def following(self, size: int) -> int:
        """Return the size of the chunk after one of `size`."""
        return min(2 * size, self.max_chunk_patches)

    @property
    def least(self) -> StreamConfig:
        """These sizes, which depend on nothing."""
        return self

    def chunk_end(self, patches: int) -> int:
        """Patches up to the end of the first chunk with which `patches` or more are decoded."""
        end = size = self.first()
        while end < patches:
            size = self.following(size)
            end += size
        return end

    def may_wait(self, seconds: float) -> bool:
        """Return False: it is not known what a listener has to play."""
        return False


class IncrementalDecoder:
    """Decodes a growing row in ever larger chunks; concatenated they are the audio of all its codes.

    A model whose codes are not final patch by patch (`SpeechModel.is_incremental`) is decoded when the row has ended.
    """

    def __init__(self, session: ModelSession, voice: Voice, sizes: ChunkSizes) -> None:
        self._session, self._sizes = session, sizes
        self._following: int | None = None
        self._decoded = 0
        self._decoding = start_decoding(session.codec_of(voice))
        self._pieces: list[Samples] = []
        self._codes: Codes | None = None

    def decode_until(self, row: RequestState) -> Samples:
        """Decode what can be decoded of the row by now and fills a chunk; the rest, once it has ended."""
        known = len(row.patches)
        stop = known if row.stop is not None else self._decoded + self._size()
        if stop == self._decoded or (row.stop is None and not self._is_ready(known, stop)):
            return np.zeros(0, np.float32)
        self._codes = self._session.codes_of(row)
        if not self._session.model.is_incremental:
            stop = len(self._codes[0])  # frames of the codec, of which a token may stand for several
        self._pieces.append(check_samples(self._decoding.decode_until(self._codes, stop)))
        self._decoded, self._following = stop, self._sizes.following(stop - self._decoded)
        return self._pieces[-1]

    @property
    def needed(self) -> float:
        """Patches that a row must have for the next chunk, unless it has ended."""
        is_incremental = self._session.model.is_incremental
        return self._decoded + self._size() + self._session.codec.lookahead_patches if is_incremental else math.inf

    def _size(self) -> int:
        """Return the patches of the next chunk. The first one is chosen late, since more callers may have come."""
        return self._sizes.first() if self._following is None else self._following

    def _is_ready(self, known: int, stop: int) -> bool:
        """Return True where `known` patches are enough to decode up to patch `stop`."""
        return self._session.model.is_incremental and known >= stop + self._session.codec.lookahead_patches

    @property
    def decoded(self) -> tuple[Codes, Waveform] | None:
        """Codes and audio of a row that has ended; None if it has no patches."""
        if self._codes is None:
            return None
        return self._codes, Waveform(np.concatenate(self._pieces), self._session.codec.spec.sample_rate)
