"""Formats of phones, browsers and videos, which FFmpeg decodes, are read whole or refused."""

from __future__ import annotations

import builtins
import io
import shutil
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from marstts import audio
from marstts.audio import decoders
from marstts.errors import AudioError

pytestmark = pytest.mark.slow

RATE = 24_000


def ffmpeg_encoded(
    container: str, codec: str, *, video: bool = False, seconds: float = 2.0, silent: float = 0.0, **options: str
) -> bytes:
    av = pytest.importorskip("av")
    path = Path(mkdtemp()) / "recorded"  # PyAV reopens it to move its index to the front
    with av.open(path, "w", format=container, options=options) as output:
        rate = 48_000 if codec == "libopus" else RATE
        sound = output.add_stream(codec, rate=rate, layout="stereo")
        picture = output.add_stream("mpeg4", rate=10, width=32, height=32, pix_fmt="yuv420p") if video else None
        for number in range(round(10 * seconds) if picture else 0):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), number, np.uint8), format="rgb24")
            output.mux(picture.encode(frame))
        mono = np.sin(2 * np.pi * 220 * np.arange(round(seconds * rate)) / rate).astype(np.float32)
        mono[: round(silent * rate)] = 0.0
        whole = np.stack([0.2 * mono, 0.4 * mono])
        size = sound.codec_context.frame_size or 1024
        for start in range(0, whole.shape[1], size):
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(whole[:, start : start + size]), format="fltp", layout="stereo"
            )
            frame.sample_rate, frame.pts = rate, start
            resampler = av.AudioResampler(format=sound.codec_context.format, layout="stereo", rate=rate)
            for piece in resampler.resample(frame):
                output.mux(sound.encode(piece))
        for stream in (sound, picture):
            output.mux(stream.encode(None)) if stream else None
    content = path.read_bytes()
    shutil.rmtree(path.parent)
    return content


RECORDED = [
    ("mp4", "aac", False),  # m4a
    ("webm", "libopus", False),
    ("adts", "aac", False),
    ("mp4", "aac", True),
    ("matroska", "aac", True),
    ("avi", "aac", True),
]


def test_a_length_that_is_estimated_makes_no_recording_short():
    """Of ADTS, FFmpeg estimates the length from the first frames, which are small where it begins with silence."""
    content = ffmpeg_encoded("adts", "aac", seconds=8.0, silent=2.0)
    assert audio.read(content).seconds == pytest.approx(8.0, abs=0.12)


def test_an_mpeg_recording_of_layer_two_is_whole():
    content = ffmpeg_encoded("mp2", "mp2")
    assert audio.read(content).seconds == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("video", [False, True])
@pytest.mark.parametrize("kept", [0.2, 0.5, 0.95])
def test_a_cut_mpeg4_file_without_its_index_is_refused_as_cut_short(video: bool, kept: float):
    content = ffmpeg_encoded("mp4", "aac", video=video)
    index = content.rindex(b"moov") - 4
    for cut in (content[: int(kept * len(content))], content[:index], content[: index + 40]):
        with pytest.raises(AudioError, match=r"cut short.*index.*missing"):
            audio.read(cut)


@pytest.mark.parametrize(("container", "codec", "video"), RECORDED)
def test_formats_of_phones_and_browsers_are_read(tmp_path, container, codec, video):
    content = ffmpeg_encoded(container, codec, video=video)
    waveform = audio.read(content)
    assert waveform.seconds == pytest.approx(2.0, abs=0.12)
    middle = waveform.samples[waveform.sample_rate // 2 : waveform.sample_rate]
    assert np.abs(middle).max() == pytest.approx(0.3, abs=0.03)  # the mean of both channels
    spectrum = np.abs(np.fft.rfft(middle))
    assert np.argmax(spectrum) * waveform.sample_rate / len(middle) == pytest.approx(220, abs=3)
    (tmp_path / "recorded").write_bytes(content)
    resampled = audio.read(tmp_path / "recorded", sample_rate=16_000)
    assert resampled.sample_rate == 16_000 and resampled.seconds == pytest.approx(waveform.seconds, abs=0.01)
    span = audio.read_span(content, 0.5, 0.25)
    start = round(0.5 * waveform.sample_rate)
    np.testing.assert_array_equal(span.samples, waveform.samples[start : start + len(span.samples)])
    assert span.seconds == pytest.approx(0.25)


@pytest.mark.parametrize("options", [{}, {"movflags": "faststart"}])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.8])
def test_an_mpeg4_file_that_is_cut_short_is_refused(options, kept):
    content = ffmpeg_encoded("mp4", "aac", **options)
    with pytest.raises(AudioError):
        audio.read(content[: int(kept * len(content))])


def test_a_webm_file_that_is_cut_short_is_refused():
    content = ffmpeg_encoded("webm", "libopus")
    with pytest.raises(AudioError, match="cut short"):
        audio.read(content[: len(content) // 2])


def test_a_video_without_sound_is_refused():
    av = pytest.importorskip("av")
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as output:
        picture = output.add_stream("mpeg4", rate=10, width=32, height=32, pix_fmt="yuv420p")
        output.mux(picture.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")))
        output.mux(picture.encode(None))
    with pytest.raises(AudioError, match="no sound track"):
        audio.read(buffer.getvalue())


def test_without_the_extra_the_error_names_it(monkeypatch):
    content, imported = ffmpeg_encoded("mp4", "aac"), builtins.__import__

    def fail(name, *arguments, **more):
        if name == "av":
            raise ImportError(name)
        return imported(name, *arguments, **more)

    monkeypatch.setattr("importlib.import_module", lambda name: fail(name))
    with pytest.raises(AudioError, match=r"reading MPEG-4 .* pip install 'marstts\[formats\]', or convert"):
        audio.read(content)


@pytest.mark.parametrize(
    "content",
    [
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n",
        b"<?xml version='1.0'?><MPD><Period/></MPD>",
    ],
)
def test_texts_that_name_other_files_or_addresses_are_never_given_to_ffmpeg(tmp_path, monkeypatch, content):
    monkeypatch.setattr(decoders, "FFmpegDecoder", None)  # calling it would be a TypeError
    for name in ("list.m3u8", "list.m4a", "list"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(AudioError, match="cannot be decoded"):
            audio.read(tmp_path / name)
