"""Reading recordings block by block: lengths in headers are not trusted until they have been decoded.

Upstream: `decoders`.  Downstream: every module that reads a recording.
Whatever comes in is averaged to mono, checked, and if asked resampled while it is decoded, so that memory is bounded by
what is returned and one block. A broken file, or a small one that unpacks to hours, can do no harm.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress

import numpy as np
import soxr
from numpy.typing import NDArray

from marstts.audio.decoders import Decoder, DecodingFailed, Source, open_decoder
from marstts.audio.waveform import Waveform
from marstts.errors import AudioError, IncompleteAudioError

MAX_SECONDS = 15 * 60.0
"""Longest recording that is decoded."""

MAX_AMPLITUDE = 100.0
"""Floating-point samples far beyond ±1 are another scale (usually that of 16-bit integers), not loud audio."""

SPAN_TOLERANCE_SECONDS = 0.02
"""A span may end this much after the file: lists of spans are rounded."""

CANCELED = 1e-4
"""Power of the mean of channels, relative to theirs (-40 dB), below which they cancel each other."""

BLOCK_VALUES = 2**18
"""Values (frames times channels) decoded at a time: a few seconds of mono."""

SMALL_BLOCK_VALUES = 2**12
"""The same for recordings that are cut short: a block with a fault in it is lost."""


def read(source: Source, *, sample_rate: int | None = None, max_seconds: float = MAX_SECONDS) -> Waveform:
    """Read a recording from a path, bytes or a binary stream; channels are averaged to mono.

    `sample_rate` resamples while reading; without one, the recording's is kept.
    Raises AudioError if it is missing, no audio, empty, cut short, longer than `max_seconds`, or not finite.
    """
    with open_decoder(source, whole=True) as (name, decoder):
        check_promise(name, decoder, max_seconds)
        rate = sample_rate or decoder.sample_rate
        blocks = resampled(mono_blocks(name, decoder, max_seconds), decoder.sample_rate, rate)
        samples = gather(blocks, int((decoder.frames or 0) / decoder.sample_rate * rate))
    if len(samples) == 0:
        raise AudioError(f"{name}: expected a recording, but the file holds no samples")
    return Waveform(samples, rate)


def read_blocks(
    source: Source, *, sample_rate: int | None = None, max_seconds: float = MAX_SECONDS, whole: bool = True
) -> Generator[Waveform, None, None]:
    """Read a recording in blocks of a few seconds; the caller may stop at any block.

    Arguments and errors are those of `read`. A recording beyond `max_seconds` is refused when the bound is reached, one
    that is shorter than its header at once (IncompleteAudioError), unless `whole` is False: it then ends with what is
    intact.
    """
    with open_decoder(source, whole=whole) as (name, decoder):
        rate = sample_rate or decoder.sample_rate
        nothing = True
        blocks = mono_blocks(name, decoder, max_seconds, block_values=BLOCK_VALUES if whole else SMALL_BLOCK_VALUES)
        for block in resampled(blocks if whole else up_to_a_fault(blocks), decoder.sample_rate, rate):
            nothing = False
            yield Waveform(block, rate)
    if nothing:
        raise AudioError(f"{name}: expected a recording, but the file holds no samples")


def read_span(source: Source, start: float, seconds: float, *, sample_rate: int | None = None) -> Waveform:
    """The `seconds` from second `start` on, of a recording of any length; the rest of it is not decoded.

    Raises AudioError as `read` does, and where the recording ends before the span does.
    """
    with open_decoder(source, whole=False) as (name, decoder):
        if seconds > MAX_SECONDS:
            raise AudioError(too_long(name, MAX_SECONDS))
        first, num_frames = round(start * decoder.sample_rate), round(seconds * decoder.sample_rate)
        if decoder.frames is not None:
            check_span(name, decoder.frames / decoder.sample_rate, start, seconds)
            first = min(first, decoder.frames)
        rate = sample_rate or decoder.sample_rate
        try:
            decoder.skip_to(first)
        except DecodingFailed as error:
            raise corrupt(name, 0.0) from error
        blocks = resampled(mono_blocks(name, decoder, MAX_SECONDS, num_frames), decoder.sample_rate, rate)
        samples = gather(blocks, round(seconds * rate))
    if len(samples) == 0:
        raise AudioError(f"{name}: expected a recording, but the file holds no samples")
    return Waveform(samples, rate)


def check_span(name: str, length: float, start: float, seconds: float) -> None:
    """AudioError where a recording of `length` seconds ends before the span does."""
    if start + seconds > length + SPAN_TOLERANCE_SECONDS:
        raise AudioError(
            f"{name}: ends after {length:.2f} s; expected audio from {start:.2f} to {start + seconds:.2f} s"
        )


def check_promise(name: str, decoder: Decoder, max_seconds: float) -> None:
    """AudioError, before anything is decoded, where its header gives too long a duration."""
    if decoder.frames is not None and decoder.frames > max_seconds * decoder.sample_rate:
        raise AudioError(too_long(name, max_seconds))


def mono_blocks(
    name: str, decoder: Decoder, max_seconds: float, num_frames: int | None = None, *, block_values: int | None = None
) -> Iterator[NDArray[np.float32]]:
    """Checked samples (N,) in blocks: all; or the next `num_frames`, of which rounding may drop some.

    They are the mean of the channels; AudioError at the end where that leaves nothing of them.
    """
    block_frames = max(1, (block_values or BLOCK_VALUES) // decoder.channels)
    done = 0
    power = power_of_mean = 0.0
    try:
        while len(block := decoder.read(block_frames if num_frames is None else min(block_frames, num_frames - done))):
            done += len(block)
            if done > max_seconds * decoder.sample_rate:
                raise AudioError(too_long(name, max_seconds))
            mean = check_samples(name, block.mean(axis=1, dtype=np.float32))
            if decoder.channels > 1:
                power += float(np.vdot(block, block)) / decoder.channels
                power_of_mean += float(np.vdot(mean, mean))
            yield mean
    except DecodingFailed as error:
        raise corrupt(name, done / decoder.sample_rate) from error
    expected = decoder.frames if num_frames is None else num_frames - int(SPAN_TOLERANCE_SECONDS * decoder.sample_rate)
    if expected is not None and done < expected:
        seconds, came = expected / decoder.sample_rate, done / decoder.sample_rate
        raise IncompleteAudioError(
            f"{name}: corrupt or cut short; expected {seconds:.1f} s, but only {came:.1f} s are intact"
        )
    if power_of_mean < CANCELED * power:
        raise AudioError(f"{name}: its channels have opposite signs and cancel each other; export one of them alone")


def up_to_a_fault(blocks: Iterable[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
    """The blocks before the place from which on a recording is corrupt or missing."""
    with suppress(IncompleteAudioError):
        yield from blocks


def resampled(blocks: Iterable[NDArray[np.float32]], before: int, after: int) -> Iterator[NDArray[np.float32]]:
    """The same audio at another rate (soxr, high quality); empty blocks are left out."""
    if before == after:
        yield from blocks
        return
    stream = soxr.ResampleStream(before, after, 1, dtype="float32")
    for block in blocks:
        if len(made := stream.resample_chunk(block)):
            yield made
    if len(made := stream.resample_chunk(np.zeros(0, np.float32), last=True)):
        yield made


def gather(blocks: Iterable[NDArray[np.float32]], expected: int) -> NDArray[np.float32]:
    """All blocks in one array, which is copied only where it must grow beyond the `expected` samples."""
    samples = np.empty(expected, np.float32)  # its pages are taken from the system when they are written
    count = 0
    for block in blocks:
        if count + len(block) > len(samples):
            grown = np.empty(max(count + len(block), len(samples) * 3 // 2), np.float32)
            grown[:count] = samples[:count]
            samples = grown
        samples[count : count + len(block)] = block
        count += len(block)
    return samples[:count] if count > len(samples) * 3 // 4 else samples[:count].copy()


def check_samples(name: str, samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same samples; AudioError where they are no audio."""
    if not np.isfinite(samples).all():
        raise AudioError(f"{name}: holds samples that are not numbers (NaN or infinite); export the recording again")
    peak = float(np.abs(samples).max(initial=0.0))
    if peak > MAX_AMPLITUDE:
        raise AudioError(f"{name}: samples reach {peak:.3g}; expected floating-point audio within -1 to 1")
    return samples


def too_long(name: str, max_seconds: float) -> str:
    """The message for a recording beyond the bound."""
    bound = f"{max_seconds:g} s" if max_seconds < 120 else f"{max_seconds / 60:g} minutes"
    return f"{name}: longer than {bound}; cut out the part that matters"


def corrupt(name: str, seconds: float) -> IncompleteAudioError:
    """The error where decoding fails after this many seconds."""
    return IncompleteAudioError(f"{name}: corrupt or cut short; {seconds:.1f} s are intact")
