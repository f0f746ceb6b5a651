"""Every format that libsndfile reads is read whole or refused, in bounded memory."""

from __future__ import annotations

import io
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from marstts import audio
from marstts.audio import completeness, decoders, reader
from marstts.errors import AudioError

RATE = 24_000
TONE = (0.3 * np.sin(2 * np.pi * 220 * np.arange(2 * RATE) / RATE)).astype(np.float32)
NOISE = np.random.default_rng(0).normal(scale=0.1, size=2 * RATE).astype(np.float32)

WHOLE_FORMATS = [
    ("WAV", "PCM_16"),
    ("WAV", "FLOAT"),
    ("WAVEX", "PCM_24"),
    ("RF64", "PCM_16"),
    ("W64", "PCM_16"),
    ("AIFF", "PCM_16"),
    ("AU", "PCM_16"),
    ("CAF", "PCM_16"),
    ("FLAC", "PCM_16"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]


def encoded(samples: Any, container: str, encoding: str, **more: Any) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE, format=container, subtype=encoding, **more)
    return buffer.getvalue()


@pytest.mark.parametrize(("container", "encoding"), WHOLE_FORMATS)
def test_a_whole_recording_is_read_and_one_that_is_cut_short_is_not(tmp_path, container, encoding):
    content = encoded(NOISE, container, encoding)
    assert audio.read(content).seconds == pytest.approx(2.0, abs=0.01)
    for kept in (0.99, 0.9, 0.6, 0.3, 0.1):
        cut = content[: int(kept * len(content)) | 1]
        with pytest.raises(AudioError, match=r"cut short|cannot be decoded"):
            audio.read(cut)
        (tmp_path / "cut").write_bytes(cut)
        with pytest.raises(AudioError, match=r"cut short|cannot be decoded"):
            list(audio.read_blocks(tmp_path / "cut"))


@pytest.mark.parametrize(("container", "endian"), [("WAV", "BIG"), ("AU", "LITTLE"), ("AIFF", "LITTLE")])
def test_the_other_byte_order_is_checked_too(container, endian):
    content = encoded(NOISE, container, "PCM_16", endian=endian)
    assert audio.read(content).seconds == 2.0
    with pytest.raises(AudioError, match="cut short"):
        audio.read(content[: len(content) // 2])


RARE = ("PVF", "PAF", "VOC", "IRCAM", "AVR", "SVX", "NIST", "HTK", "SDS", "MAT4", "MAT5")


@pytest.mark.parametrize("tag", [b"", b"ID3\x03\0\0\0\0\0\x10" + bytes(16)])
@pytest.mark.parametrize("container", RARE)
def test_formats_that_do_not_show_their_length_are_refused_without_a_parser(container, tag, monkeypatch):
    content = tag + encoded(NOISE, container, "PCM_16")
    monkeypatch.setattr(decoders.soundfile, "SoundFile", None)  # calling it would be a TypeError
    with pytest.raises(AudioError, match="cannot be decoded"):
        audio.read(content)


@pytest.mark.parametrize("length", [0xFFFF_FFFF, 0x7FFF_FFFF, 0x7FFF_F000])
def test_streamed_wav_files_of_unknown_length_are_read(length):
    content = bytearray(encoded(NOISE, "WAV", "PCM_16"))
    place = content.index(b"data") + 4
    content[4:8] = content[place : place + 4] = length.to_bytes(4, "little")
    assert audio.read(bytes(content)).seconds == 2.0


@pytest.mark.parametrize("encoding", ["PCM_16", "PCM_24", "FLOAT"])
@pytest.mark.parametrize("endian", ["LITTLE", "BIG"])
@pytest.mark.parametrize("riff", [True, False])
def test_wav_files_whose_length_was_never_written_are_read(tmp_path, encoding, endian, riff):
    content = bytearray(encoded(NOISE, "WAV", encoding, endian=endian))
    place = content.index(b"data") + 4
    content[place : place + 4] = bytes(4)
    if riff:
        content[4:8] = bytes(4)
    (tmp_path / "stream.wav").write_bytes(content)
    for source in (bytes(content), tmp_path / "stream.wav"):
        read = audio.read(source)
        assert read.seconds == 2.0
        np.testing.assert_allclose(read.samples, NOISE, atol=2**-15)


def test_a_wav_file_that_is_empty_holds_no_samples():
    wav = encoded(np.zeros(0), "WAV", "PCM_16")
    for content in (wav, wav + b"LIST\x04\0\0\0abcd"):
        with pytest.raises(AudioError, match="holds no samples"):
            audio.read(content)


def test_data_after_the_audio_is_ignored():
    wav = encoded(NOISE, "WAV", "PCM_16")
    assert audio.read(wav + b"LIST\x04\0\0\0abcd").seconds == 2.0
    mp3 = encoded(NOISE, "MP3", "MPEG_LAYER_III")
    tag = b"TAG" + b"\xff\xfb" * 62 + b"\0"
    assert audio.read(mp3 + tag).seconds == pytest.approx(2.0, abs=0.01)


def without_xing(content: bytes) -> bytes:
    """An MP3 without its first frame, which holds the header with its length and no sound."""
    assert b"Xing" in content[:200] or b"Info" in content[:200]
    return content[completeness.frame_length(content[:4]) :]


@pytest.mark.parametrize("tag", [b"", b"ID3\x03\0\0\0\0\0\x10" + bytes(16)])
@pytest.mark.parametrize("samples", [TONE, NOISE, np.concatenate([np.zeros(RATE, np.float32), NOISE])])
def test_an_mp3_without_a_length_is_read(samples, tag):
    content = tag + without_xing(encoded(samples, "MP3", "MPEG_LAYER_III"))
    assert not completeness.has_frame_count(io.BytesIO(content))
    assert audio.read(content).seconds == pytest.approx(len(samples) / RATE, abs=0.15)
    for corrupt in (content[:-30], content[: len(content) // 2] + bytes(range(1, 250)) + content[len(content) // 2 :]):
        with pytest.raises(AudioError, match="cut short"):
            audio.read(corrupt)


@pytest.mark.parametrize("tag", [b"", b"ID3\3\0\0\0\0\0\x0a" + bytes(10)])
@pytest.mark.parametrize("num_zeros", [1, 4, 5_000, 60_000])
def test_an_mp3_behind_zero_bytes_is_read(num_zeros, tag):
    mp3 = encoded(NOISE, "MP3", "MPEG_LAYER_III")
    for start in (bytes(num_zeros) + tag, tag + bytes(num_zeros)):
        assert audio.read(start + mp3).seconds == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("count", [2, 3])
def test_an_mp3_behind_several_tags_is_read(count):
    tags = b"".join(b"ID3\4\0\0\0\0\1\0" + bytes(128) for _ in range(count))
    assert audio.read(tags + encoded(NOISE, "MP3", "MPEG_LAYER_III")).seconds == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("lost", [50, 1001, 9001])
def test_an_mp3_without_its_beginning_is_said_to_be_cut_and_the_rest_can_be_used(lost):
    content = encoded(NOISE, "MP3", "MPEG_LAYER_III")
    rest = content[lost:]
    with pytest.raises(AudioError, match="cut short; its beginning is missing"):
        audio.read(rest)
    blocks = list(audio.read_blocks(rest, whole=False))
    share = len(rest) / len(content)
    assert sum(block.seconds for block in blocks) == pytest.approx(2.0 * share, abs=0.2)


def test_zero_bytes_alone_are_no_audio():
    with pytest.raises(AudioError):
        audio.read(bytes(100_000))


def test_an_mp3_is_read_where_libsndfile_refuses_the_stream(monkeypatch):
    content, opened = encoded(NOISE, "MP3", "MPEG_LAYER_III"), soundfile.SoundFile
    wav = encoded(NOISE, "WAV", "PCM_16")

    def refuse_streams(file, *arguments, **more):
        if hasattr(file, "read"):
            raise soundfile.LibsndfileError(149)
        return opened(file, *arguments, **more)

    monkeypatch.setattr(decoders.soundfile, "SoundFile", refuse_streams)
    assert audio.read(content).seconds == pytest.approx(2.0, abs=0.01)
    with pytest.raises(AudioError, match="cannot be decoded"):
        audio.read(wav)


@pytest.mark.parametrize("version", [3, 2, 0])
@pytest.mark.parametrize("layer", [1, 2, 3])
def test_frame_lengths_follow_the_standard(version, layer):
    """Layer I: 384 samples in slots of 4 bytes; II: 1152; III: 1152, or 576 at low sampling frequencies."""
    for bitrate in range(1, 15):
        for rate in range(3):
            kilobits = completeness._BITRATES[1 if version == 3 else 2, layer][bitrate]
            hertz = completeness._RATES[version][rate]
            samples = 384 if layer == 1 else 1152 if layer == 2 or version == 3 else 576
            slot = 4 if layer == 1 else 1
            expected = samples * kilobits * 1000 // 8 // hertz // slot * slot
            header = 0x7FF << 21 | version << 19 | (4 - layer) << 17 | bitrate << 12 | rate << 10
            assert completeness.frame_length(header.to_bytes(4, "big")) == expected
            assert completeness.frame_length((header | 1 << 9).to_bytes(4, "big")) == expected + slot


# Block by block


def test_resampling_while_reading_equals_resampling_afterward(monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_VALUES", 1_000)
    content = encoded(NOISE, "WAV", "PCM_16")
    for rate in (16_000, 44_100, RATE):
        while_reading = audio.read(content, sample_rate=rate)
        after = audio.resample(audio.read(content), rate)
        assert while_reading.sample_rate == rate and abs(len(while_reading.samples) - len(after.samples)) <= 1
        length = min(len(while_reading.samples), len(after.samples))
        np.testing.assert_allclose(while_reading.samples[:length], after.samples[:length], atol=1e-5)


def test_a_span_before_the_cut_is_read():
    content = encoded(NOISE, "WAV", "PCM_16")
    cut = content[: len(content) // 2]
    assert audio.read_span(cut, 0.2, 0.5).seconds == 0.5
    with pytest.raises(AudioError, match=r"ends after 1\.00 s"):
        audio.read_span(cut, 0.8, 0.5)


def test_blocks_together_are_the_recording(monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_VALUES", 5_000)
    content = encoded(NOISE, "FLAC", "PCM_16")
    blocks = list(audio.read_blocks(content, sample_rate=16_000))
    assert len(blocks) > 5 and {block.sample_rate for block in blocks} == {16_000}
    joined = np.concatenate([block.samples for block in blocks])
    np.testing.assert_array_equal(joined, audio.read(content, sample_rate=16_000).samples)


def test_reading_may_stop_at_any_block(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_VALUES", 5_000)
    path = tmp_path / "long.wav"
    path.write_bytes(encoded(NOISE, "WAV", "PCM_16"))
    blocks = audio.read_blocks(path, max_seconds=1.0)
    assert next(blocks).seconds == pytest.approx(5_000 / RATE)
    blocks.close()
    with pytest.raises(AudioError, match="longer than"):
        list(audio.read_blocks(path, max_seconds=1.0))
    with pytest.raises(AudioError, match="no samples"):
        list(audio.read_blocks(encoded(NOISE[:0], "WAV", "PCM_16")))


@pytest.mark.skipif(sys.platform != "linux", reason="only here a file is opened without functions of Python")
def test_an_interrupt_while_a_recording_is_decoded_is_not_lost(tmp_path: Path) -> None:
    """Within a function of Python that libsndfile calls it would be printed, and the recording taken for corrupt."""
    path = tmp_path / "long.flac"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, 240_000), 24_000)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before, lost = signal.signal(signal.SIGALRM, interrupt), 0
    try:
        for attempt in range(60):
            until = time.monotonic() + 2.0
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0001 * attempt)
                while time.monotonic() < until:
                    audio.read(path)
                lost += 1
            except KeyboardInterrupt:
                pass
    finally:
        signal.signal(signal.SIGALRM, before)
    assert lost <= 1  # one that comes within `SoundFile.__del__`, where Python ignores it: about one in 3,000
