import io
import math
import os

import numpy as np
import pytest
import soundfile

from marstts import audio
from marstts.audio import Waveform, reader
from marstts.errors import AudioError


def tone(seconds=0.5, sample_rate=24_000, frequency=440.0, amplitude=0.3):
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    return Waveform((amplitude * np.sin(2 * np.pi * frequency * time)).astype(np.float32), sample_rate)


def file_bytes(samples, sample_rate=24_000, kind="WAV", subtype="PCM_16"):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, sample_rate, format=kind, subtype=subtype)
    return buffer.getvalue()


class Pipe(io.RawIOBase):
    """A stream that gives a few bytes at a time and cannot go back, like standard input."""

    def __init__(self, content):
        self.rest = content

    def readable(self):
        return True

    def read(self, size=-1):
        piece, self.rest = self.rest[: min(size, 1000)], self.rest[min(size, 1000) :]
        return piece


# Reading


def test_paths_bytes_and_streams_give_the_same_waveform(tmp_path):
    content = audio.encode(tone())
    path = tmp_path / "tone.wav"
    path.write_bytes(content)
    expected = soundfile.read(str(path), dtype="float32")[0]
    for source in (path, str(path), content, io.BytesIO(content), Pipe(content)):
        read = audio.read(source)
        assert read.sample_rate == 24_000
        assert read.samples.dtype == np.float32
        np.testing.assert_array_equal(read.samples, expected)


@pytest.mark.parametrize("sample_rate", [8_000, 11_025, 44_100, 48_000, 192_000])
def test_common_rates_are_read_and_resampled(sample_rate):
    waveform = audio.resample(audio.read(audio.encode(tone(0.5, sample_rate))), 24_000)
    assert waveform.sample_rate == 24_000
    assert abs(waveform.seconds - 0.5) < 1e-3
    inside = slice(2_000, 10_000)
    np.testing.assert_allclose(waveform.samples[inside], tone().samples[inside], atol=2e-3)


def test_channels_that_cancel_each_other_are_named_instead_of_read_as_silence():
    left = np.random.default_rng(0).uniform(-0.5, 0.5, size=3_001).astype(np.float32)
    with pytest.raises(AudioError, match="cancel each other; export one of them alone"):
        audio.read(file_bytes(np.stack([left, -left], axis=1), subtype="FLOAT"))
    assert np.abs(audio.read(file_bytes(np.stack([left, -0.9 * left], axis=1), subtype="FLOAT")).samples).max() > 0
    assert not audio.read(file_bytes(np.zeros((3_001, 2)), subtype="FLOAT")).samples.any()  # silence is none of them


def test_channels_are_averaged_across_blocks(monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_VALUES", 64)
    rng = np.random.default_rng(0)
    channels = rng.uniform(-0.5, 0.5, size=(1_001, 3)).astype(np.float32)
    waveform = audio.read(file_bytes(channels, subtype="FLOAT"))
    np.testing.assert_allclose(waveform.samples, channels.mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"])
def test_usual_sample_formats_are_read(subtype):
    waveform = audio.read(file_bytes(tone().samples, subtype=subtype))
    np.testing.assert_allclose(waveform.samples, tone().samples, atol=0.02)


def test_clipped_and_silent_recordings_are_read_as_they_are():
    assert np.abs(audio.read(file_bytes(np.sign(tone().samples))).samples).max() > 0.99
    assert not audio.read(file_bytes(np.zeros(2_400))).samples.any()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "empty"),
        (b"Dear diary, today I recorded nothing.\n" * 50, "cannot be decoded"),
        (b"RIFF", "cannot be decoded"),
        (file_bytes(np.zeros(0)), "no samples"),
        (file_bytes(np.array([0.1, np.nan, 0.2]), subtype="FLOAT"), "not numbers"),
        (file_bytes(np.array([0.1, np.inf, 0.2]), subtype="FLOAT"), "not numbers"),
        (file_bytes(np.array([0.1, 20_000.0]), subtype="FLOAT"), "within -1 to 1"),
        (file_bytes(np.zeros(100), sample_rate=4_000), "4000 Hz"),
        (file_bytes(np.zeros(100), sample_rate=1_000_000), "1000000 Hz"),
    ],
    ids=["empty", "text", "header", "no samples", "nan", "inf", "too loud", "4 kHz", "1 MHz"],  # headers hold the time
)
def test_unfit_content_is_refused_in_one_sentence(tmp_path, content, sentence):
    path = tmp_path / "reference.wav"
    path.write_bytes(content)
    with pytest.raises(AudioError, match=sentence) as by_path:
        audio.read(path)
    assert str(path) in str(by_path.value) and "\n" not in str(by_path.value)
    with pytest.raises(AudioError, match=sentence):
        audio.read(content)


@pytest.mark.parametrize("kept", [0.3, 0.7, 0.95])
def test_a_truncated_flac_is_refused(kept):
    noise = np.random.default_rng(0).normal(scale=0.1, size=48_000)
    content = file_bytes(noise, kind="FLAC")
    with pytest.raises(AudioError, match="corrupt or cut short"):
        audio.read(content[: int(kept * len(content))])


def test_missing_files_folders_pipes_and_headerless_files_are_refused(tmp_path):
    with pytest.raises(AudioError, match="no such audio file"):
        audio.read(tmp_path / "missing.wav")
    with pytest.raises(AudioError, match="folder"):
        audio.read(tmp_path)
    with pytest.raises(AudioError, match="cannot be opened"):
        audio.read(tmp_path / ("x" * 5_000))
    (tmp_path / "samples.raw").write_bytes(bytes(1_000))
    with pytest.raises(AudioError, match="cannot be decoded"):
        audio.read(tmp_path / "samples.raw")
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(AudioError, match="not a regular file"):
        audio.read(tmp_path / "pipe.wav")


def test_a_header_that_hides_the_length_does_not_lift_the_limit(monkeypatch):
    monkeypatch.setattr(reader, "check_promise", lambda *arguments: None)
    monkeypatch.setattr(reader, "BLOCK_VALUES", 1_000)
    with pytest.raises(AudioError, match="longer than"):
        audio.read(audio.encode(tone(1.0)), max_seconds=0.9)


# Writing


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".WAV"])
def test_written_files_read_back(tmp_path, suffix):
    audio.write(tone(), tmp_path / f"tone{suffix}")
    stream = io.BytesIO()
    audio.write(tone(), stream, suffix=suffix)
    for source in (tmp_path / f"tone{suffix}", stream.getvalue()):
        np.testing.assert_allclose(audio.read(source).samples, tone().samples, atol=1 / 32_000)


def test_loud_samples_are_clipped_rather_than_wrapped():
    loud = audio.read(audio.encode(Waveform(np.array([2.0, -2.0], np.float32), 24_000)))
    np.testing.assert_allclose(loud.samples, [1.0, -1.0], atol=1e-4)


def test_what_cannot_be_written_is_refused(tmp_path):
    for name in ("speech.xyz", "speech"):
        with pytest.raises(AudioError, match=r"use \.wav, \.flac, \.ogg, \.opus or \.mp3"):
            audio.write(tone(), tmp_path / name)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(AudioError, match="cannot be written"):
        audio.write(tone(), tmp_path / "file" / "speech.wav")
    (tmp_path / "file").unlink()
    with pytest.raises(AudioError, match="NaN"):
        audio.write(Waveform(np.array([np.nan]), 24_000), tmp_path / "speech.wav")
    assert list(tmp_path.iterdir()) == []


# Loudness


def test_loudness_of_short_and_empty_audio_is_a_number_or_minus_infinity():
    assert audio.loudness_lufs(Waveform(np.zeros(0, np.float32), 24_000)) == -math.inf
    assert audio.loudness_lufs(Waveform(np.zeros(48_000, np.float32), 24_000)) == -math.inf
    assert audio.loudness_lufs(Waveform(np.full(50_000, 1e-6, np.float32), 24_000)) == -math.inf
    short, longer, whole = (audio.loudness_lufs(tone(seconds)) for seconds in (0.1, 0.39, 0.41))
    assert -30 < short < longer < whole + 0.5


def test_normalizing_reaches_the_loudness_unless_the_peak_forbids():
    quiet = audio.normalize_loudness(tone(1.0), -30.0)
    assert audio.loudness_lufs(quiet) == pytest.approx(-30.0, abs=0.05)
    limited = audio.normalize_loudness(tone(1.0), 20.0, peak=0.5)
    assert np.abs(limited.samples).max() == pytest.approx(0.5, abs=1e-3)
    silence = Waveform(np.zeros(24_000, np.float32), 24_000)
    assert audio.normalize_loudness(silence, -23.0) is silence


# Trimming and joining


def test_trimming_leaves_silence_and_nothing_alone():
    for samples in (np.zeros(30_000, np.float32), np.zeros(0, np.float32)):
        assert len(audio.trim_silence(Waveform(samples, 24_000)).samples) == len(samples)


@pytest.mark.parametrize(("tail", "kept"), [(0.2, 0.2), (1.0, 0.4)])
def test_a_quiet_tail_is_cut_after_its_longest_length(tail: float, kept: float):
    seconds = np.repeat([0.5, 0.02], [24_000, round(tail * 24_000)]).astype(np.float32)
    start, end = audio.audible_span(Waveform(seconds, 24_000), below_peak_db=40.0, max_tail_seconds=0.4)
    assert start == 0 and end / 24_000 == pytest.approx(1.0 + kept, abs=0.07)
    spoken_again = np.concatenate([seconds, seconds[:24_000]])
    _, end = audio.audible_span(Waveform(spoken_again, 24_000), below_peak_db=40.0, max_tail_seconds=0.4)
    assert end == len(spoken_again)


def test_joined_waveforms_stand_apart_and_do_not_click():
    first = Waveform(np.full(1_000, 0.5, np.float32), 24_000)
    second = Waveform(np.full(700, -0.5, np.float32), 24_000)
    joined = audio.join([first, second], gap_seconds=0.01).samples
    assert len(joined) == 1_000 + 240 + 700
    assert not joined[1_000:1_240].any()
    assert np.abs(np.diff(joined)).max() < 0.01
    np.testing.assert_array_equal(joined[200:800], first.samples[200:800])
    assert first.samples[0] == 0.5


def test_each_gap_may_have_its_own_length():
    pieces = [Waveform(np.ones(100, np.float32), 1_000) for _ in range(3)]
    joined = audio.join(pieces, [0.02, 0.05]).samples
    assert len(joined) == 370
    assert np.flatnonzero(joined == 0).tolist() == [*range(100, 120), *range(220, 270)]


def test_joining_keeps_even_the_shortest_pieces():
    shortest = [Waveform(np.full(n, 0.1, np.float32), 24_000) for n in (0, 1, 3)]
    assert len(audio.join(shortest).samples) == 4
