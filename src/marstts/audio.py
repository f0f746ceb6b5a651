"""Waveforms, and the one bounded door through which recordings enter.

Upstream: files and byte streams that people bring.  Downstream: codecs, speaker encoders, synthesis.

Whatever comes in (a path, bytes, a stream) is decoded by `read` alone, block by block and within stated limits, so
that neither a broken file nor a small file that unpacks to hours can do harm.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from marstts.errors import AudioError
from marstts.loudness import BLOCK_SECONDS, integrated_loudness

MAX_SECONDS = 15 * 60.0
"""Longest recording that is decoded."""

MAX_BYTES = 2**30
"""Largest file or stream that is opened (1 GiB: a quarter of an hour of the largest common format)."""

MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 8_000, 192_000
"""Hz; outside of these a header is more likely wrong than true."""

MAX_AMPLITUDE = 100.0
"""Floating-point samples far beyond ±1 are another scale (usually that of 16-bit integers), not loud audio."""

SPAN_TOLERANCE_SECONDS = 0.02
"""A span may end this much after the file: lists of spans are rounded."""

BLOCK_VALUES = 2**20
"""Values (frames times channels) decoded at a time; memory for the channels never exceeds one block."""

SUFFIXES = (".wav", ".flac")
"""Formats that can be written."""

TRIM_FRAME, TRIM_HOP = 2048, 512
"""Samples; the frames in which `trim_silence` looks for sound (as in the published MARS6 inference)."""

FADE_SECONDS = 0.005
"""Takes are faded in and out by this much where they are joined, so that no step between them can click."""

_UNKNOWN_LENGTH = 2**62
"""Formats that are written as a stream may not know their length; libsndfile then promises a huge one."""

Source: TypeAlias = "Path | str | bytes | BinaryIO"


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


def read(source: Source, *, max_seconds: float = MAX_SECONDS) -> Waveform:
    """Read a recording from a path, bytes or a binary stream; channels are averaged to mono, the rate is kept.

    Raises AudioError if it is missing, no audio, empty, cut short, longer than `max_seconds`, or not finite.
    """
    name, file = _open(source)
    with file, _decoder(name, file) as decoder:
        _check_header(name, decoder, max_seconds)
        samples = _decode(name, decoder, max_seconds)
    _check_samples(name, samples)
    return Waveform(samples, decoder.samplerate)


def read_span(source: Source, start: float, seconds: float) -> Waveform:
    """The `seconds` from second `start` on, of a recording of any length; the rest of it is not decoded.

    Raises AudioError as `read` does, and where the recording ends before the span does.
    """
    name, file = _open(source)
    with file, _decoder(name, file) as decoder:
        sample_rate = decoder.samplerate
        _check_rate(name, sample_rate)
        if seconds > MAX_SECONDS:
            raise AudioError(_too_long(name, MAX_SECONDS))
        first, wanted = round(start * sample_rate), round(seconds * sample_rate)
        if first + wanted > decoder.frames + SPAN_TOLERANCE_SECONDS * sample_rate:
            raise AudioError(
                f"{name}: ends after {decoder.frames / sample_rate:.2f} s; expected audio from {start:.2f} to "
                f"{start + seconds:.2f} s"
            )
        decoder.seek(min(first, decoder.frames))
        samples = _decode(name, decoder, MAX_SECONDS, wanted)
    _check_samples(name, samples)
    return Waveform(samples, sample_rate)


def _open(source: Source) -> tuple[str, BinaryIO]:
    """A name for messages, and a seekable stream of at most MAX_BYTES."""
    if isinstance(source, (str, Path)):
        return str(source), _open_path(Path(source))
    if isinstance(source, bytes):
        name, content = "the recording", source
    else:
        name, content = "the recording", _read_bounded(source)
    _check_size("the recording", len(content))
    return name, io.BytesIO(content)


def _open_path(path: Path) -> BinaryIO:
    try:
        if path.is_dir():
            raise AudioError(f"{path}: expected an audio file, but this is a folder")
        if not path.exists():
            raise AudioError(f"{path}: no such audio file")
        if not path.is_file():
            raise AudioError(f"{path}: expected an audio file, but this is not a regular file")
        _check_size(str(path), path.stat().st_size)
        return path.open("rb")
    except OSError as error:
        raise AudioError(f"{path}: cannot be opened: {error.strerror or error}") from error


def _read_bounded(stream: BinaryIO) -> bytes:
    """All of a stream, which may be a pipe, but never much more than MAX_BYTES."""
    content = bytearray()
    try:
        while len(content) <= MAX_BYTES and (piece := stream.read(2**20)):
            content += piece
    except OSError as error:
        raise AudioError(f"the recording cannot be read to its end: {error.strerror or error}") from error
    return bytes(content)


def _check_size(name: str, num_bytes: int) -> None:
    if num_bytes == 0:
        raise AudioError(f"{name}: expected an audio file, but it is empty")
    if num_bytes > MAX_BYTES:
        raise AudioError(f"{name}: larger than {MAX_BYTES / 2**20:.0f} MiB; cut the recording or compress it to FLAC")


def _decoder(name: str, file: BinaryIO) -> soundfile.SoundFile:
    try:
        return soundfile.SoundFile(file)
    except (soundfile.SoundFileError, TypeError) as error:  # TypeError: a .raw file has no header to tell its rate
        raise AudioError(
            f"{name}: expected an audio file (such as WAV, FLAC, OGG or MP3), but it cannot be decoded as one"
        ) from error


def _check_header(name: str, decoder: soundfile.SoundFile, max_seconds: float) -> None:
    sample_rate = decoder.samplerate
    _check_rate(name, sample_rate)
    if decoder.frames < _UNKNOWN_LENGTH and decoder.frames > max_seconds * sample_rate:
        raise AudioError(_too_long(name, max_seconds))


def _check_rate(name: str, sample_rate: int) -> None:
    if not MIN_SAMPLE_RATE <= sample_rate <= MAX_SAMPLE_RATE:
        raise AudioError(
            f"{name}: its sample rate is {sample_rate} Hz; expected {MIN_SAMPLE_RATE} to {MAX_SAMPLE_RATE} Hz"
        )


def _too_long(name: str, max_seconds: float) -> str:
    return f"{name}: longer than {max_seconds / 60:g} minutes; cut out the part that matters"


def _decode(
    name: str, decoder: soundfile.SoundFile, max_seconds: float, wanted: int | None = None
) -> NDArray[np.float32]:
    """(N,) float32, block by block: what a header promises is not believed until it has been decoded.

    All of it; or the next `wanted` frames, of which only rounding may be missing at the file's end.
    """
    block_frames = max(1, BLOCK_VALUES // decoder.channels)
    blocks: list[NDArray[np.float32]] = []
    num_frames = 0
    try:
        while len(
            block := decoder.read(_next_block(block_frames, num_frames, wanted), dtype="float32", always_2d=True)
        ):
            num_frames += len(block)
            if num_frames > max_seconds * decoder.samplerate:
                raise AudioError(_too_long(name, max_seconds))
            blocks.append(block.mean(axis=1, dtype=np.float32))
    except soundfile.SoundFileError as error:
        raise AudioError(f"{name}: damaged or cut short; {num_frames / decoder.samplerate:.1f} s are intact") from error
    expected_frames = decoder.frames if wanted is None else wanted - int(SPAN_TOLERANCE_SECONDS * decoder.samplerate)
    if num_frames < expected_frames < _UNKNOWN_LENGTH:
        expected, came = expected_frames / decoder.samplerate, num_frames / decoder.samplerate
        raise AudioError(f"{name}: damaged or cut short; expected {expected:.1f} s, but only {came:.1f} s are intact")
    return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)


def _next_block(block_frames: int, num_frames: int, wanted: int | None) -> int:
    return block_frames if wanted is None else min(block_frames, wanted - num_frames)


def _check_samples(name: str, samples: NDArray[np.float32]) -> None:
    if len(samples) == 0:
        raise AudioError(f"{name}: expected a recording, but the file holds no samples")
    if not np.isfinite(samples).all():
        raise AudioError(f"{name}: holds samples that are not numbers (NaN or infinite); export the recording again")
    peak = float(np.abs(samples).max())
    if peak > MAX_AMPLITUDE:
        raise AudioError(f"{name}: samples reach {peak:.3g}; expected floating-point audio within -1 to 1")


def encode(waveform: Waveform, suffix: str = ".wav") -> bytes:
    """The bytes of a 16-bit PCM file in the format of `suffix` (.wav, .flac); samples beyond ±1 are clipped."""
    if suffix.lower() not in SUFFIXES:
        raise AudioError(f"cannot write audio as {suffix or 'a file without suffix'!r}; use {' or '.join(SUFFIXES)}")
    if not np.isfinite(waveform.samples).all():
        raise AudioError("cannot write audio that holds NaN or infinite samples")
    buffer = io.BytesIO()
    kind = suffix.lower().removeprefix(".").upper()
    soundfile.write(buffer, waveform.samples, waveform.sample_rate, format=kind, subtype="PCM_16")
    return buffer.getvalue()


def write(waveform: Waveform, target: Path | str | BinaryIO, *, suffix: str = ".wav") -> None:
    """Write 16-bit PCM: to a path in the format of its own suffix, to a binary stream in that of `suffix`."""
    if not isinstance(target, (str, Path)):
        target.write(encode(waveform, suffix))
        return
    path = Path(target)
    try:
        content = encode(waveform, path.suffix)
        path.write_bytes(content)
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from error
    except OSError as error:
        raise AudioError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def open_writer(path: Path, sample_rate: int) -> Iterator[Callable[[NDArray[np.float32]], None]]:
    """Write 16-bit PCM piece by piece, in the format of the path's suffix; the file is complete when it is closed."""
    kind = path.suffix.lower().removeprefix(".").upper()
    try:
        with soundfile.SoundFile(path, "w", sample_rate, channels=1, subtype="PCM_16", format=kind) as file:

            def write_piece(samples: NDArray[np.float32]) -> None:
                file.write(samples)
                file.flush()

            yield write_piece
    except (soundfile.SoundFileError, OSError) as error:
        raise AudioError(f"{path}: cannot be written: {error}") from error


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
    """Without the frames before and after that are more than `below_peak_db` quieter than the loudest frame.

    Digital silence has no loudest frame and comes back as it is.
    """
    power = _frame_power(waveform.samples)
    if power.max(initial=0.0) == 0.0:
        return waveform
    audible = np.flatnonzero(power > power.max() * 10.0 ** (-below_peak_db / 10.0))
    start, end = audible[0] * TRIM_HOP, (audible[-1] + 1) * TRIM_HOP
    return Waveform(waveform.samples[start:end], waveform.sample_rate)


def _frame_power(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """samples (N,) -> (N // TRIM_HOP + 1,) mean squares of frames centred on every TRIM_HOP-th sample."""
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
    """Linear fades of FADE_SECONDS, shorter where the waveform has not twice that."""
    length = min(round(FADE_SECONDS * waveform.sample_rate), len(waveform.samples) // 2)
    ramp = (np.arange(length, dtype=np.float32) + 0.5) / max(1, length)
    samples = waveform.samples.copy()
    samples[:length] *= ramp
    samples[len(samples) - length :] *= ramp[::-1]
    return Waveform(samples, waveform.sample_rate)
