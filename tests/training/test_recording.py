"""Bad recordings of good segments: each fault does what it says, by choice of the generator alone."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.training.recording import RecordingConfig, record

CLEAN = RecordingConfig(equaliser_db=0, noise_share=0, narrow_share=0, room_share=0)
SAMPLES = np.random.default_rng(0).standard_normal(4800).astype(np.float32)


def recorded(seed: int = 1, **changes: object) -> np.ndarray:
    return record(SAMPLES, 24000, CLEAN.model_copy(update=changes), np.random.default_rng(seed))


def test_a_perfect_recording_changes_nothing() -> None:
    np.testing.assert_allclose(recorded(), SAMPLES, atol=1e-5)


def test_noise_has_the_drawn_level() -> None:
    error = recorded(noise_share=1, noise_db=(20.0, 20.0)) - SAMPLES
    assert 10 * np.log10((SAMPLES**2).mean() / (error**2).mean()) == pytest.approx(20, abs=0.1)


def test_a_narrow_line_ends_at_its_limit() -> None:
    power = np.abs(np.fft.rfft(recorded(narrow_share=1, narrow_hz=(4000.0, 4000.0)))) ** 2
    frequencies = np.fft.rfftfreq(len(SAMPLES), 1 / 24000)
    below, above = power[frequencies < 3500], power[frequencies > 4500]
    assert above.mean() < 1e-6 * below.mean()


def test_a_room_sounds_on_after_the_source() -> None:
    click = np.zeros(4800, np.float32)
    click[100] = 1.0
    room = CLEAN.model_copy(update={"room_share": 1.0, "room_seconds": (0.2, 0.2)})
    heard = record(click, 24000, room, np.random.default_rng(1))
    assert heard[100] == pytest.approx(1.0, abs=1e-4) and np.abs(heard[:99]).max() < 1e-4
    early, late = (heard[101:1301] ** 2).sum(), (heard[3601:4801] ** 2).sum()
    assert early > 100 * late > 0


def test_an_equaliser_bends_the_spectrum_smoothly() -> None:
    ratio = np.abs(np.fft.rfft(recorded(equaliser_db=6.0))) / np.abs(np.fft.rfft(SAMPLES))
    assert 1.0 < 20 * np.log10(np.percentile(ratio, 95) / np.percentile(ratio, 5)) < 60


def test_the_generator_alone_decides() -> None:
    everything = RecordingConfig(noise_share=0.5, narrow_share=0.5, room_share=0.5).model_dump()
    np.testing.assert_array_equal(recorded(3, **everything), recorded(3, **everything))
    assert not np.array_equal(recorded(3, **everything), recorded(4, **everything))
