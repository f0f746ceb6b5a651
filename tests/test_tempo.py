"""The tempo of audio: its length changes, its pitch does not."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.audio.tempo import change_tempo, check_speed
from marstts.errors import ConfigError

RATE = 24_000


def tone(seconds: float = 1.5, frequency: float = 220.0) -> Waveform:
    return Waveform((0.3 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * RATE)) / RATE)).astype("f4"), RATE)


@pytest.mark.parametrize("speed", [0.8, 0.93, 1.25])
def test_length_follows_the_speed_and_pitch_stays(speed):
    changed = change_tempo(tone(), speed)
    assert changed.seconds == pytest.approx(1.5 / speed, rel=0.01)
    spectrum = np.abs(np.fft.rfft(changed.samples))
    assert np.fft.rfftfreq(len(changed.samples), 1 / RATE)[spectrum.argmax()] == pytest.approx(220.0, abs=2.0)


def test_a_speed_of_one_changes_nothing():
    whole = tone()
    assert change_tempo(whole, 1.0) is whole


def test_silence_of_no_length_stays_so():
    assert len(change_tempo(Waveform(np.zeros(0, np.float32), RATE), 1.2).samples) == 0


@pytest.mark.parametrize("speed", [0.2, 4.1, float("nan")])
def test_other_speeds_are_refused(speed):
    with pytest.raises(ConfigError, match="speed"):
        check_speed(speed)
