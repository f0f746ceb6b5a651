"""Opening a recording: a bounded, seekable stream, and the library that decodes what is in it.

Upstream: paths, bytes and streams from users.  Downstream: `reader`.
libsndfile decodes WAV, FLAC, Ogg, MP3 and the like. What phones and browsers record (m4a, webm, aac, video files) is
decoded by FFmpeg through PyAV, an extra. FFmpeg gets the container's name, found by its first bytes, and does not
probe: some of its formats are texts that name other files or addresses.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

import numpy as np
import soundfile
from numpy.typing import NDArray

from marstts.audio import completeness
from marstts.audio.completeness import is_cut_short, ogg_is_cut_short
from marstts.errors import AudioError, IncompleteAudioError, MissingExtraError, require
from marstts.io.reading import describe_os_error, open_regular, printable_name

MAX_BYTES = 2**30
"""Largest file or stream that is opened (1 GiB: a quarter of an hour of the largest common format)."""

MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 8_000, 192_000
"""Hz; outside of these a header is more likely wrong than true."""

FORMATS = ("WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "CAF", "FLAC", "OGG", "MP3")
"""Formats of libsndfile that show whether a recording is complete."""

BEGINNINGS = re.compile(
    rb"(RIFF|RIFX|RF64)....WAVE|riff\x2e\x91\xcf\x11|FORM....AIF[FC]|\.snd|dns\.|caff|fLaC|OggS|\xff[\xe0-\xff]",
    re.DOTALL,
)
"""First bytes of these formats; libsndfile's other parsers, of old and rare formats, never get a file."""

CONTAINERS = (
    (rb".{4}ftyp", "mov", "MPEG-4 (m4a, mp4, mov, 3gp)"),
    (rb"\x1a\x45\xdf\xa3", "matroska", "WebM or Matroska"),
    (rb"\xff[\xf0\xf1\xf8\xf9]", "aac", "AAC"),
    (rb"#!AMR", "amr", "AMR"),
    (rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf", "Windows Media"),
    (rb"RIFF....AVI ", "avi", "AVI"),
    (rb"FLV\x01", "flv", "Flash video"),
)
"""First bytes of containers that FFmpeg may decode, its name for the container, and the usual one."""

WITHOUT_LENGTH = ("aac", "amr")
"""Containers that do not state a length; FFmpeg estimates one from the first frames, too long or too short."""

EXTRA = "formats"

UNKNOWN_WAV_LENGTH = b"\xff" * 4

_UNKNOWN_LENGTH = 2**62
"""Formats that are written as a stream may lack their length; libsndfile then reports a huge one."""

Source: TypeAlias = "Path | str | bytes | BinaryIO"


class ForgivingStream:
    """A stream for libsndfile, which seeks to offsets of corrupt headers: an error there would be printed by cffi."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.read, self.tell = file.read, file.tell

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to this position if it exists; otherwise keep the position."""
        with suppress(OSError, ValueError, OverflowError):
            self._file.seek(offset, whence)
        return self._file.tell()


class PatchedStream:
    """A stream in which some bytes are replaced."""

    def __init__(self, file: BinaryIO, place: int, content: bytes) -> None:
        self._file, self._place, self._content = file, place, content
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most this many."""
        start = self._file.tell()
        found = bytearray(self._file.read(size))
        first, last = max(start, self._place), min(start + len(found), self._place + len(self._content))
        if first < last:
            found[first - start : last - start] = self._content[first - self._place : last - self._place]
        return bytes(found)


class CorruptStream(Exception):
    """A stream whose frames or pages are broken or end too early."""


class DecodingFailed(Exception):
    """The next block cannot be decoded."""


class Decoder(Protocol):
    """A recording, decoded from its beginning on."""

    sample_rate: int
    channels: int

    frames: int | None
    """Number of frames, where it is known before decoding; fewer decoded frames then mean a corrupt file."""

    def read(self, frames: int) -> NDArray[np.float32]:
        """The next frames (N, channels), at most this many; none at the end. Raises DecodingFailed."""
        ...

    def skip_to(self, frame: int) -> None:
        """Move to this frame, which is not before the current one. Raises DecodingFailed."""
        ...


class SoundfileDecoder:
    """A decoder for the formats of libsndfile."""

    def __init__(self, name: str, file: BinaryIO, *, whole: bool, first: int = 0) -> None:
        """`first`: where the first frame begins of an MP3 whose beginning is missing."""
        try:
            self._file = open_rest_of_mp3(file, whole, first) if first else open_soundfile(file, whole)
            log = self._file.extra_info
        except (soundfile.SoundFileError, OSError) as error:
            raise undecodable(name) from error
        except CorruptStream as error:
            raise IncompleteAudioError(f"{name}: corrupt or cut short; {error}") from error
        if self._file.format not in FORMATS:
            raise undecodable(name)
        if whole and is_cut_short(log):
            raise IncompleteAudioError(f"{name}: corrupt or cut short; its header states more audio than is there")
        self.sample_rate, self.channels = self._file.samplerate, self._file.channels
        self.frames = None if self._file.frames >= _UNKNOWN_LENGTH else self._file.frames

    def read(self, frames: int) -> NDArray[np.float32]:
        try:
            return self._file.read(frames, dtype="float32", always_2d=True)
        except (soundfile.SoundFileError, OSError) as error:
            raise DecodingFailed from error

    def skip_to(self, frame: int) -> None:
        try:
            self._file.seek(frame)
        except (soundfile.SoundFileError, OSError) as error:
            raise DecodingFailed from error

    def close(self) -> None:
        self._file.close()


def open_soundfile(file: BinaryIO, whole: bool) -> soundfile.SoundFile:
    """A stream, opened by libsndfile; an MP3 without its length gets a header with it.

    Version 1.2.2 refuses good MP3 streams, depending on what the process did before, but takes them by name.
    Raises CorruptStream where parts of an MP3 or Ogg file are missing.
    """
    start = file.read(4)
    if whole and start == b"OggS" and ogg_is_cut_short(file, file.seek(0, io.SEEK_END)):
        raise CorruptStream("its last page is missing")
    is_padded = start[:1] == b"\0"
    if is_padded:
        file.seek(completeness.after_tag(file))
        start = file.read(4)
    if not completeness.is_mpeg(start):
        return open_in_place(file)
    found = completeness.walk(file)
    if whole and found.is_cut_short:
        raise CorruptStream("its last frame is not whole")
    file.seek(found.first)
    is_layer_three = completeness.is_layer_three(file.read(4).ljust(4, b"\0"))
    if is_layer_three and not completeness.has_frame_count(file) and found.frames:
        if whole and found.is_broken:
            raise CorruptStream("something else than audio lies within it")
        return open_mp3_copy(completeness.missing_header(file, found), file, found.first)
    if is_padded:
        return open_mp3_copy(b"", file, found.first)
    try:
        return open_in_place(file)
    except soundfile.SoundFileError:
        return open_mp3_copy(b"", file, found.first)


def open_rest_of_mp3(file: BinaryIO, whole: bool, first: int) -> soundfile.SoundFile:
    """An MP3 whose beginning is missing, from its first frame on; CorruptStream where it should be whole."""
    if whole:
        raise CorruptStream("its beginning is missing")
    return open_mp3_copy(completeness.missing_header(file, completeness.walk(file, first)), file, first)


def open_in_place(file: BinaryIO) -> soundfile.SoundFile:
    """A stream, opened by a file descriptor where it is a file, else through Python.

    An interrupt within a function of Python that libsndfile calls is lost, and the recording then seems cut short.
    """
    place = completeness.missing_wav_length(file)
    file.seek(0)
    if place is not None:
        return soundfile.SoundFile(ForgivingStream(cast(BinaryIO, PatchedStream(file, place, UNKNOWN_WAV_LENGTH))))
    descriptor = opened_again(file)
    return soundfile.SoundFile(ForgivingStream(file) if descriptor is None else descriptor)


def opened_again(file: BinaryIO) -> int | None:
    """Another descriptor of the same file, with another position; None where the system gives none."""
    if not isinstance(file, io.BufferedReader):
        return None
    with suppress(OSError):
        return os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
    return None


def open_mp3_copy(header: bytes, file: BinaryIO, first: int) -> soundfile.SoundFile:
    """A copy of a stream from its byte `first` on, with a header before it, opened by its name."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps open files, and their folder
        path = Path(folder) / "recording.mp3"
        file.seek(first)
        with path.open("wb") as copy:
            copy.write(header)
            shutil.copyfileobj(file, copy)
        return soundfile.SoundFile(path)


class FFmpegDecoder:
    """A decoder by FFmpeg: the first audio track of a container."""

    LENGTH_TOLERANCE_SECONDS = 0.25
    """Containers round their lengths, and count what encoders add before and behind."""

    def __init__(self, name: str, file: BinaryIO, container: str) -> None:
        self._av = require("av", EXTRA)
        if container == "mov" and completeness.mp4_lacks_its_index(file):
            raise IncompleteAudioError(
                f"{name}: cut short; the index that this MPEG-4 file had at its end is missing, and without it "
                "nothing can be decoded; copy or record the file again"
            )
        file.seek(0)
        try:
            self._container = self._av.open(file, mode="r", format=container, metadata_errors="replace")
        except (self._av.FFmpegError, ValueError) as error:
            raise undecodable(name) from error
        if not self._container.streams.audio:
            self.close()
            raise AudioError(f"{name}: expected a recording, but there is no sound track in this file")
        stream = self._container.streams.audio[0]
        if stream.codec_context is None:
            self.close()
            raise AudioError(f"{name}: the sound track of this file is in a format that cannot be decoded")
        self.sample_rate, self.channels = int(stream.rate or 0), int(stream.channels or 0)
        stated = 0.0 if container in WITHOUT_LENGTH else self._stated_seconds(stream)
        seconds = stated - self.LENGTH_TOLERANCE_SECONDS
        self.frames = round(seconds * self.sample_rate) if seconds > 0.0 else None
        self._blocks = self._decode(stream)
        self._rest = np.zeros((0, max(1, self.channels)), np.float32)

    def _stated_seconds(self, stream: Any) -> float:
        if stream.duration is not None and stream.time_base is not None:
            return float(stream.duration * stream.time_base)
        alone = len(self._container.streams) == 1
        return float(self._container.duration or 0) / self._av.time_base if alone else 0.0

    def _decode(self, stream: Any) -> Iterator[NDArray[np.float32]]:
        resampler = self._av.AudioResampler(format="fltp", layout=stream.layout, rate=self.sample_rate)
        try:
            for frame in self._container.decode(stream):
                for piece in resampler.resample(frame):
                    yield piece.to_ndarray().T
        except (self._av.FFmpegError, ValueError, RuntimeError) as error:
            raise DecodingFailed from error

    def read(self, frames: int) -> NDArray[np.float32]:
        pieces, count = [self._rest], len(self._rest)
        while count < frames and (piece := next(self._blocks, None)) is not None:
            pieces.append(piece)
            count += len(piece)
        whole = np.concatenate(pieces)
        self._rest = whole[frames:]
        return whole[:frames]

    def skip_to(self, frame: int) -> None:
        """Skip frames by decoding them: FFmpeg seeks to packets, not to samples."""
        while frame > 0 and (skipped := len(self.read(min(frame, 2**18)))):
            frame -= skipped

    def close(self) -> None:
        with suppress(self._av.FFmpegError):
            self._container.close()


@contextmanager
def open_decoder(source: Source, *, whole: bool) -> Iterator[tuple[str, Decoder]]:
    """A name for messages, and the decoder; AudioError where there is none, or the sample rate is out of bounds.

    `whole`: refuse a file that is shorter than its headers; where only a part is read, the rest may be missing.
    """
    name, file = open_source(source)
    with file:
        decoder = choose_decoder(name, file, whole)
        try:
            check_rate(name, decoder)
            yield name, decoder
        finally:
            decoder.close()


def choose_decoder(name: str, file: BinaryIO, whole: bool) -> Any:
    """libsndfile where it can decode the file, else FFmpeg where it may, by the first bytes."""
    start = file.read(16)
    container = next((names for pattern, *names in CONTAINERS if re.match(pattern, start, re.DOTALL)), None)
    file.seek(completeness.after_tag(file))
    if BEGINNINGS.match(file.read(16)):
        file.seek(0)
        try:
            return SoundfileDecoder(name, file, whole=whole)
        except AudioError:
            if container is None:
                raise
    if container is None and (first := completeness.first_frame(file)) is not None:
        return SoundfileDecoder(name, file, whole=whole, first=first)
    if container is None:
        raise undecodable(name)
    file.seek(0)
    try:
        return FFmpegDecoder(name, file, container[0])
    except MissingExtraError as error:
        raise AudioError(
            f"{name}: reading {container[1]} needs the package 'av', which is not installed: pip install "
            f"'marstts[{EXTRA}]', or convert the recording to WAV or FLAC"
        ) from error


def undecodable(name: str) -> AudioError:
    """The error for a file that no decoder reads."""
    return AudioError(
        f"{name}: expected an audio file (such as WAV, FLAC, OGG or MP3), but it cannot be decoded as one"
    )


def check_rate(name: str, decoder: Decoder) -> None:
    """AudioError for sample rates and channels that no recording has."""
    if not MIN_SAMPLE_RATE <= decoder.sample_rate <= MAX_SAMPLE_RATE:
        raise AudioError(
            f"{name}: its sample rate is {decoder.sample_rate} Hz; expected {MIN_SAMPLE_RATE} to {MAX_SAMPLE_RATE} Hz"
        )
    if decoder.channels < 1:
        raise undecodable(name)


def open_source(source: Source) -> tuple[str, BinaryIO]:
    """A name for messages, and a seekable stream of at most MAX_BYTES."""
    if isinstance(source, (str, Path)):
        return printable_name(source), open_path(Path(source))
    content = source if isinstance(source, bytes) else read_bounded(source)
    check_size("the recording", len(content))
    return "the recording", io.BytesIO(content)


def open_path(path: Path) -> BinaryIO:
    """The file, open for reading; AudioError where it is missing, empty, too large, or no regular file."""
    name = printable_name(path)
    try:
        if path.is_dir():
            raise AudioError(f"{name}: expected an audio file, but this is a folder")
        if not path.exists():
            raise AudioError(f"{name}: no such audio file")
        if not path.is_file():
            raise AudioError(f"{name}: expected an audio file, but this is not a regular file")
        check_size(name, path.stat().st_size)
    except OSError as error:
        raise AudioError(f"{name}: cannot be opened: {describe_os_error(error)}") from error
    except ValueError as error:
        raise AudioError(f"{name}: no file can have this name") from error
    return open_regular(path, MAX_BYTES, AudioError)


def read_bounded(stream: BinaryIO) -> bytes:
    """All of a stream, which may be a pipe, but never much more than MAX_BYTES."""
    content = bytearray()
    try:
        while len(content) <= MAX_BYTES and (piece := stream.read(2**20)):
            content += piece
    except OSError as error:
        raise AudioError(f"the recording cannot be read to its end: {describe_os_error(error)}") from error
    return bytes(content)


def check_size(name: str, num_bytes: int) -> None:
    """AudioError for files without content, and for those beyond the bound."""
    if num_bytes == 0:
        raise AudioError(f"{name}: expected an audio file, but it is empty")
    if num_bytes > MAX_BYTES:
        raise AudioError(f"{name}: larger than {MAX_BYTES / 2**20:.0f} MiB; cut the recording or compress it to FLAC")
