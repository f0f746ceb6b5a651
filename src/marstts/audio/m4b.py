"""Audio books in one file: AAC in an MP4 container with chapter marks (m4b), written by PyAV (extra `formats`).

Upstream: sound files, one a chapter.  Downstream: players of audio books.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import soundfile

from marstts.errors import AudioError, require
from marstts.io.files import atomic_path
from marstts.io.reading import printable_name

BIT_RATE = 64_000
PICTURES = {b"\xff\xd8\xff": "jpeg_pipe", b"\x89PNG\r\n": "png_pipe"}
"""First bytes of a picture, and its format: no other format may be tried on what a book holds."""
BLOCK_SAMPLES = 65_536
MILLISECONDS = Fraction(1, 1000)


def write_m4b(
    path: Path,
    chapters: Sequence[tuple[str, Path]],
    *,
    title: str,
    author: str,
    cover: bytes = b"",
    description: str = "",
    date: str = "",
) -> None:
    """Write the sound files of `chapters` (title, file) one after another, with a chapter mark each.

    `date` is a year or an ISO date; empty strings make no tags. All files have the sample rate of the first;
    `is_picture` is true for the cover, if there is one. Raises MissingExtraError without PyAV, AudioError where a file
    cannot be read or written.
    """
    av = require("av", "formats")
    try:
        rate = soundfile.info(chapters[0][1]).samplerate
        with atomic_path(path, AudioError) as temporary, _open(av, temporary) as container:
            tags = {"title": title, "album": title, "artist": author, "genre": "Audiobook", "date": date}
            tags |= {"description": description, "synopsis": description, "comment": description}
            container.metadata.update({name: value for name, value in tags.items() if value})
            stream = container.add_stream("aac", rate=rate, layout="mono", bit_rate=BIT_RATE)
            container.set_chapters(_chapter_marks(chapters, rate))
            if cover:
                container.mux(_add_cover(av, container, cover))
            _encode(av, container, stream, [file for _, file in chapters], rate)
    except (av.FFmpegError, soundfile.SoundFileError) as error:
        raise AudioError(f"{printable_name(path)}: the audio book cannot be written: {error}") from error


def _open(av: Any, path: Path) -> Any:
    """An MP4 of the brand that players of audio books know; PyAV lets the format `ipod` have no picture."""
    return av.open(str(path), "w", format="mp4", options={"brand": "M4B "})


def is_picture(cover: bytes) -> bool:
    """Whether the bytes are a JPEG or PNG that can be the cover."""
    av = require("av", "formats")
    try:
        with _open_picture(av, cover) as picture:
            return len(picture.streams.video) == 1 and next(picture.demux()).size > 0
    except (av.FFmpegError, ValueError, StopIteration):
        return False


def _open_picture(av: Any, cover: bytes) -> Any:
    kind = next((kind for start, kind in PICTURES.items() if cover.startswith(start)), None)
    if kind is None:
        raise ValueError("expected a JPEG or a PNG")
    return av.open(io.BytesIO(cover), format=kind)


def _add_cover(av: Any, container: Any, cover: bytes) -> Any:
    """Add the stream of the cover; returns its packet."""
    with _open_picture(av, cover) as picture:
        source = picture.streams.video[0]
        stream = container.add_stream_from_template(source)
        stream.disposition = av.stream.Disposition.attached_pic
        packet = next(picture.demux(source))
    packet.stream, packet.pts, packet.dts = stream, 0, 0
    return packet


def _chapter_marks(chapters: Sequence[tuple[str, Path]], rate: int) -> list[dict[str, Any]]:
    """Start and end of each chapter in milliseconds."""
    marks: list[dict[str, Any]] = []
    start = 0
    for number, (title, file) in enumerate(chapters, start=1):
        end = start + round(1000 * soundfile.info(file).frames / rate)
        marks.append(
            {"id": number, "start": start, "end": end, "time_base": MILLISECONDS, "metadata": {"title": title}}
        )
        start = end
    return marks


def _encode(av: Any, container: Any, stream: Any, files: Sequence[Path], rate: int) -> None:
    samples_written = 0
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=rate, frame_size=stream.frame_size or 1024)
    for file in files:
        for block in soundfile.blocks(file, BLOCK_SAMPLES, dtype="float32", always_2d=True):
            frame = av.AudioFrame.from_ndarray(block[:, :1].T.copy(), format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = rate, samples_written, Fraction(1, rate)
            samples_written += block.shape[0]
            for part in resampler.resample(frame):
                container.mux(stream.encode(part))
    for part in resampler.resample(None):
        container.mux(stream.encode(part))
    container.mux(stream.encode(None))
