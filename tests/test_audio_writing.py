"""Sound files are written whole, in the format of their suffix; growing files have a temporary name."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import wave

import numpy as np
import pytest
import soundfile

from marstts import audio
from marstts.audio import Waveform
from marstts.errors import AudioError
from marstts.io.files import partial_path

pytestmark = pytest.mark.slow

RATE = 24_000
TONE = Waveform((0.3 * np.sin(2 * np.pi * 220 * np.arange(RATE) / RATE)).astype(np.float32), RATE)
posix = pytest.mark.skipif(os.name != "posix", reason="limits and signals of POSIX")


@pytest.mark.parametrize("rate", [RATE, 22_050, 44_100, 96_000])
@pytest.mark.parametrize("suffix", audio.SUFFIXES)
def test_the_suffix_is_the_format(tmp_path, suffix, rate):
    path = tmp_path / f"tone{suffix.upper() if rate == RATE else suffix}"
    tone = audio.resample(TONE, rate)
    audio.write(tone, path)
    info = soundfile.info(str(path))
    expected = {".wav": "WAV", ".flac": "FLAC", ".ogg": "OGG", ".opus": "OGG", ".mp3": "MP3"}
    assert info.format == expected[suffix] and info.channels == 1
    assert suffix not in (".wav", ".flac", ".ogg") or info.samplerate == rate
    back = audio.read(path, sample_rate=rate)
    assert back.seconds == pytest.approx(1.0, abs=0.01)
    middle = slice(rate // 4, rate // 2)
    error = np.abs(back.samples[middle] - tone.samples[middle]).max()
    assert error < (1e-4 if suffix in (".wav", ".flac") else 0.1)


@pytest.mark.parametrize("suffix", audio.SUFFIXES)
def test_loud_samples_are_clipped_in_every_format(suffix):
    loud = Waveform(TONE.samples * 10, RATE)
    assert np.abs(audio.read(audio.encode(loud, suffix)).samples).max() < 2.5  # unclipped it would be 3


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".mp3"])
def test_equal_samples_give_equal_bytes(suffix):
    """As voices need, whose references are kept as MP3; Ogg has random serial numbers."""
    assert audio.encode(TONE, suffix) == audio.encode(TONE, suffix)


def test_an_older_file_stays_where_the_new_one_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "tone.wav"
    audio.write(TONE, path)
    before = path.read_bytes()
    with pytest.raises(AudioError, match="NaN"):
        audio.write(Waveform(np.array([np.nan]), RATE), path)
    assert path.read_bytes() == before
    with pytest.raises(AudioError, match=r"use \.wav, \.flac, \.ogg, \.opus or \.mp3"):
        audio.write(TONE, tmp_path / "tone.xyz")
    monkeypatch.setattr("soundfile.check_format", lambda *_: False)
    with pytest.raises(AudioError, match="cannot write"):
        audio.write(TONE, tmp_path / "tone.mp3")
    assert [p.name for p in tmp_path.iterdir()] == ["tone.wav"]


# Growing files


def pieces():
    return [TONE.samples[start : start + 5_000] for start in range(0, RATE, 5_000)]


@pytest.mark.parametrize("suffix", audio.SUFFIXES)
@pytest.mark.parametrize("rate", [RATE, 22_050])
def test_a_file_written_piece_by_piece_is_that_written_at_once(tmp_path, suffix, rate):
    path = tmp_path / f"grown{suffix}"
    with audio.open_writer(path, rate) as write:
        for piece in pieces():
            write(piece)
        assert not path.exists()
    grown, whole = audio.read(path), audio.read(audio.encode(Waveform(TONE.samples, rate), suffix))
    assert grown.sample_rate == whole.sample_rate and grown.seconds == pytest.approx(whole.seconds, abs=0.005)
    if suffix in (".wav", ".flac"):
        np.testing.assert_allclose(grown.samples, whole.samples, atol=1.1 / 2**15)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_growing_wav_file_is_right_after_every_piece(tmp_path):
    path = tmp_path / "grown.wav"
    path.write_bytes(b"old")
    written = 0
    with audio.open_writer(path, RATE) as write:
        for piece in pieces():
            write(piece)
            written += len(piece)
            with wave.open(str(partial_path(path))) as file:
                assert (file.getnframes(), file.getframerate(), file.getnchannels()) == (written, RATE, 1)
            np.testing.assert_allclose(audio.read(partial_path(path)).samples, TONE.samples[:written], atol=1e-4)
            assert path.read_bytes() == b"old"
    assert audio.read(path).seconds == 1.0 and not partial_path(path).exists()


def test_an_error_keeps_what_was_written_and_the_older_file(tmp_path):
    path = tmp_path / "grown.wav"
    audio.write(TONE, path)
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), audio.open_writer(path, RATE) as write:
        write(pieces()[0])
        raise KeyboardInterrupt
    assert path.read_bytes() == before and len(audio.read(partial_path(path)).samples) == 5_000
    with audio.open_writer(path, RATE) as write:
        write(pieces()[1])
    assert len(audio.read(path).samples) == 5_000 and not partial_path(path).exists()


def test_samples_that_are_not_finite_are_refused_while_writing(tmp_path):
    with pytest.raises(AudioError, match="NaN"), audio.open_writer(tmp_path / "a.wav", RATE) as write:
        write(np.array([np.nan], np.float32))
    for name in ("a.xyz", "a"):
        with pytest.raises(AudioError, match="cannot write audio as"), audio.open_writer(tmp_path / name, RATE):
            pass


@posix
def test_one_process_writes_a_growing_file(tmp_path):
    path = tmp_path / "a.wav"
    with audio.open_writer(path, RATE) as write:
        write(TONE.samples)
        with pytest.raises(AudioError, match="another process is writing"), audio.open_writer(path, RATE):
            pass
    assert audio.read(path).seconds == 1.0


SPEAKER = """
import sys, numpy as np
from pathlib import Path
from marstts import audio
with audio.open_writer(Path(sys.argv[1]), 24_000) as write:
    for number in range(10_000):
        write(np.full(2_400, 0.1, np.float32))
        print(number + 1, flush=True)
"""

LIMITED = """
import resource, sys
import numpy as np
from pathlib import Path
from marstts import audio
from marstts.errors import AudioError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with audio.open_writer(Path(sys.argv[1]), 24_000) as write:
        for number in range(1_000):
            write(np.random.default_rng(number).normal(scale=0.3, size=24_000).astype(np.float32))
except AudioError as error:
    print(error)
"""


@posix
def test_a_killed_process_leaves_the_samples_it_reported(tmp_path):
    path = tmp_path / "speech.wav"
    audio.write(TONE, path)
    rng = random.Random(3)
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", SPEAKER, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0.01, 0.1))
        child.send_signal(signal.SIGKILL)
        output = child.communicate()[0].split()
        kept = audio.read(partial_path(path))
        assert abs(len(kept.samples) - 2_400 * int(output[-1])) <= 2_400 and audio.read(path).seconds == 1.0


@posix
@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg"])
def test_a_growing_file_that_does_not_fit_is_one_sentence(tmp_path, suffix):
    path = tmp_path / f"speech{suffix}"
    path.write_bytes(b"old")
    child = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stdout.startswith(f"{path}: cannot be written: ") and child.stdout.count("\n") == 1
    assert path.read_bytes() == b"old" and partial_path(path).stat().st_size > 50_000
