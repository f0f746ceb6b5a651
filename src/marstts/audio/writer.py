"""Writing waveforms: whole files, which are there completely or not at all, and files that grow while speech is made.

Upstream: synthesis.  Downstream: files and streams.
The format is that of the suffix: WAV and FLAC in 16 bits, Ogg Vorbis, Opus and MP3 as libsndfile encodes them.
"""

from __future__ import annotations

import io
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast
from unicodedata import category

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from marstts.audio.waveform import Waveform, resample
from marstts.errors import AudioError, MarsError
from marstts.io.files import atomic_path, claim_file, growing_path, write_file
from marstts.io.reading import disk_problem, os_errors, printable_name

FORMATS = {
    ".wav": ("WAV", "PCM_16"),
    ".flac": ("FLAC", "PCM_16"),
    ".ogg": ("OGG", "VORBIS"),
    ".opus": ("OGG", "OPUS"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
}
"""libsndfile's container and encoding of each suffix."""

SUFFIXES = tuple(FORMATS)
"""Formats that can be written."""

RATES = {
    ".opus": (8_000, 12_000, 16_000, 24_000, 48_000),
    ".mp3": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
}
"""Hz; what else is written in these formats is resampled to the next higher rate."""


@dataclass(frozen=True, kw_only=True)
class Tags:
    """Tags of an audio file; formats without tags (WAV) leave them out."""

    title: str
    artist: str
    """Empty where it is not known; the file then has no such tag."""

    album: str
    track: int

    date: str = ""
    """A year or an ISO date; empty where it is not known."""

    def write_to(self, file: soundfile.SoundFile) -> None:
        """Set the tags of an open file, before its first sample."""
        file.title, file.album = self.title, self.album
        if self.artist:  # libsndfile refuses a tag without characters
            file.artist = self.artist
        if self.date:
            file.date = self.date
        file.tracknumber, file.genre = str(self.track), "Audiobook"

    def id3(self) -> bytes:
        """An ID3v2.3 tag, whose texts are UTF-16: https://id3.org/id3v2.3.0."""
        texts = {"TIT2": self.title, "TPE1": self.artist, "TALB": self.album, "TRCK": str(self.track)}
        texts |= {"TCON": "Audiobook", "TYER": self.date[:4]}
        frames = b"".join(id3_frame(name, text) for name, text in texts.items() if text)
        size = bytes(len(frames) >> shift & 0x7F for shift in (21, 14, 7, 0))
        return b"ID3\3\0\0" + size + frames


MAX_TAG_CHARACTERS = 1000
"""Longer texts of tags are cut."""


def id3_frame(name: str, text: str) -> bytes:
    """A text frame of ID3v2.3: in Latin-1 where that is ASCII, else in UTF-16 with its byte order."""
    plain = "".join(" " if category(each) in ("Cc", "Cs") else each for each in text[:MAX_TAG_CHARACTERS])
    content = b"\0" + plain.encode() if plain.isascii() else b"\1" + plain.encode("utf-16")
    return name.encode() + len(content).to_bytes(4, "big") + b"\0\0" + content


Write = Callable[[NDArray[np.float32]], None]
"""Takes the next samples (N,) of a file."""

BLOCK_SAMPLES = 65_536
"""Samples that are encoded at a time."""

BLOCK_BYTES = 2**20
"""Bytes that are moved at a time."""

HEADER_BYTES = 44
"""Length of `wav_header`."""


def encode(waveform: Waveform, suffix: str = ".wav") -> bytes:
    """The bytes of a file in the format of `suffix` (see SUFFIXES); samples beyond ±1 are clipped."""
    container, encoding = format_of(suffix)
    check_finite(waveform.samples)
    written = resample(waveform, rate_for(suffix, waveform.sample_rate))
    buffer = io.BytesIO()
    samples = np.clip(written.samples, -1.0, 1.0)  # which encoders other than PCM's do not do
    try:
        soundfile.write(buffer, samples, written.sample_rate, format=container, subtype=encoding)
    except (soundfile.SoundFileError, ValueError) as error:
        raise AudioError(f"audio at {written.sample_rate} Hz cannot be written as {suffix}: {error}") from error
    return buffer.getvalue()


def format_of(suffix: str) -> tuple[str, str]:
    """libsndfile's container and encoding; AudioError where there is no such format, here or in this libsndfile."""
    found = FORMATS.get(suffix.lower())
    if found is None:
        names = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise AudioError(f"cannot write audio as {suffix or 'a file without suffix'!r}; use {names}")
    if not soundfile.check_format(*found):
        raise AudioError(f"this version of libsndfile cannot write {suffix}; use .wav or .flac")
    return found


def rate_for(suffix: str, sample_rate: int) -> int:
    """The rate at which audio of `sample_rate` is written."""
    rates = RATES.get(suffix.lower(), (sample_rate,))
    return min((rate for rate in rates if rate >= sample_rate), default=max(rates))


def write(waveform: Waveform, target: Path | str | BinaryIO, *, suffix: str = ".wav") -> None:
    """Write to a path in the format of its suffix, atomically; to a binary stream in the format of `suffix`."""
    if not isinstance(target, (str, Path)):
        target.write(encode(waveform, suffix))
        return
    path = Path(target)
    try:
        content = encode(waveform, path.suffix)
    except AudioError as error:
        raise AudioError(f"{printable_name(path)}: {error}") from error
    write_file(path, content, AudioError)


@contextmanager
def open_writer(
    path: Path,
    sample_rate: int,
    tags: Tags | None = None,
    *,
    target: Callable[[Path, type[MarsError]], AbstractContextManager[Path]] = growing_path,
) -> Iterator[Write]:
    """A function that takes the next samples of a file in the format of the path's suffix; clipped to ±1.

    The file grows next to `path`, at `files.partial_path(path)`, and becomes `path` when the body ends. Killing
    the process finds there what was written so far: a WAV file that is right after every piece, or what can be played
    of another format. An error of the body keeps it, too. `target`: `atomic_path` for a file that is made at once.
    """
    try:
        container, encoding = format_of(path.suffix)
        rate = rate_for(path.suffix, sample_rate)
    except AudioError as error:
        raise AudioError(f"{printable_name(path)}: {error}") from error
    opened = wav_file if container == "WAV" else encoded_file
    with target(path, AudioError) as partial:
        try:
            with opened(partial, rate, container, encoding, tags) as write_piece:
                write_any = resampling(write_piece, sample_rate, rate)
                yield write_any
                if rate != sample_rate:
                    write_any(np.zeros(0, np.float32))
        except (soundfile.SoundFileError, AssertionError, struct.error) as error:  # soundfile asserts what is written
            problem = disk_problem(RuntimeError(str(error)), partial.parent) or str(error) or "libsndfile failed"
            raise AudioError(f"{printable_name(path)}: cannot be written: {problem}") from error


@contextmanager
def open_kept_wav(path: Path, sample_rate: int, num_kept: int) -> Iterator[Write]:
    """A function that takes the next samples of a WAV file, of which the first `num_kept` are kept.

    AudioError where another process writes the file, where it is no regular file, or the disk is full.
    """
    with claim_file(path, AudioError) as claim:
        os.ftruncate(claim, 0 if not num_kept else HEADER_BYTES + 2 * num_kept)
        with os_errors(path, kind=AudioError), wav_file(path, sample_rate, "WAV", "PCM_16", None, num_kept) as write:
            yield resampling(write, sample_rate, sample_rate)


def encode_file(wav: Path, path: Path, tags: Tags | None = None) -> None:
    """Write the audio of a WAV file in the format of the path's suffix, all or nothing."""
    with open_writer(path, soundfile.info(wav).samplerate, tags, target=atomic_path) as write:
        for block in soundfile.blocks(wav, BLOCK_SAMPLES, dtype="float32"):
            write(block)


@contextmanager
def wav_file(
    path: Path, sample_rate: int, container: str, encoding: str, tags: Tags | None, num_kept: int = 0
) -> Iterator[Write]:
    """A WAV file in 16 bits that can be read at any moment; it holds no tags. Samples that it holds may be kept.

    A killed process leaves the samples up to the header's end, or a piece more: sizes are written at once.
    """
    written = 2 * num_kept
    with path.open("r+b" if num_kept else "wb") as file:

        def write_piece(samples: NDArray[np.float32]) -> None:
            nonlocal written
            file.seek(HEADER_BYTES + written)
            file.write(content := pcm16(samples))
            file.flush()
            written += len(content)
            write_header()

        def write_header() -> None:
            file.seek(0)
            file.write(wav_header(sample_rate, written))
            file.flush()

        write_header()
        yield write_piece


def wav_header(sample_rate: int, num_bytes: int) -> bytes:
    """The header of a WAV file with one channel of 16 bits; struct.error beyond 4 GiB."""
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16)
    riff = struct.pack("<4sI4s", b"RIFF", HEADER_BYTES - 8 + num_bytes, b"WAVE")
    return riff + layout + struct.pack("<4sI", b"data", num_bytes)


@contextmanager
def encoded_file(path: Path, sample_rate: int, container: str, encoding: str, tags: Tags | None) -> Iterator[Write]:
    """A file that libsndfile encodes; it is flushed after every piece and complete at the end.

    libsndfile writes the tags, but not those of MP3: it writes UTF-8 and declares it as Latin-1.
    """
    is_mp3 = container == "MP3"
    with soundfile.SoundFile(path, "w", sample_rate, 1, encoding, format=container) as file:
        if tags is not None and not is_mp3:
            tags.write_to(file)

        def write_piece(samples: NDArray[np.float32]) -> None:
            file.write(np.clip(samples, -1.0, 1.0))
            file.flush()

        yield write_piece
    if tags is not None and is_mp3:
        insert_before(path, tags.id3())


def insert_before(path: Path, content: bytes) -> None:
    """Move all bytes of a file back, and write the content before them."""
    with path.open("r+b") as file:
        for end in range(file.seek(0, os.SEEK_END), 0, -BLOCK_BYTES):
            start = max(0, end - BLOCK_BYTES)
            file.seek(start)
            block = file.read(end - start)
            file.seek(start + len(content))
            file.write(block)
        file.seek(0)
        file.write(content)


def resampling(write_piece: Write, before: int, after: int) -> Write:
    """The same function for samples of another rate; AudioError where they are not finite.

    An empty piece ends the resampling: what the filter holds back is written.
    """
    stream = soxr.ResampleStream(before, after, 1, dtype="float32") if before != after else None

    def write_resampled(samples: NDArray[np.float32]) -> None:
        check_finite(samples)
        write_piece(samples if stream is None else stream.resample_chunk(samples, last=len(samples) == 0))

    return write_resampled


def check_finite(samples: NDArray[np.floating]) -> None:
    """AudioError where a sample is NaN or infinite."""
    if not np.isfinite(samples).all():
        raise AudioError("cannot write audio that holds NaN or infinite samples")


def pcm16(samples: NDArray[np.floating]) -> bytes:
    """Samples (N,) as signed 16-bit integers, little-endian, as libsndfile rounds them; clipped to ±1."""
    full_scale = np.rint(np.asarray(samples, np.float64) * 2.0**31)
    return np.clip(np.floor(full_scale / 2.0**16), -(2.0**15), 2.0**15 - 1).astype("<i2").tobytes()


# Whole files for pipes, whose header says how long they are: nothing is sent before all of the audio is there.
# Until then the encoded file waits in memory while it is small, later on disk without a name, so that hours of speech
# need no memory.

MAX_HELD_BYTES = 16 * 2**20
"""Larger files are held on disk."""

TEMPORARY = "the temporary file of the audio"
"""Its name in messages."""


@contextmanager
def open_held_stream(target: BinaryIO, suffix: str, sample_rate: int) -> Iterator[Write]:
    """Write a whole file in the format of `suffix` to a pipe when the body ends -> takes the next samples (N,)."""
    container, encoding = format_of(suffix)
    rate = rate_for(suffix, sample_rate)
    with cast("IO[bytes]", tempfile.SpooledTemporaryFile(MAX_HELD_BYTES)) as encoded:
        with (
            os_errors(TEMPORARY, kind=AudioError),
            soundfile.SoundFile(encoded, "w", rate, 1, encoding, format=container) as file,
        ):
            write_any = resampling(lambda samples: file.write(np.clip(samples, -1.0, 1.0)), sample_rate, rate)
            yield write_any
            if rate != sample_rate:
                write_any(np.zeros(0, np.float32))
        encoded.seek(0)
        shutil.copyfileobj(encoded, target)
        target.flush()
