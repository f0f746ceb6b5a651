"""Style attributes of signals whose F0 and speaking rate are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_speaker_augmentation import buzz

from marstts_lab.training.speaker.losses import f0_level, measure_attributes, relative_to_speaker

RATE = 24_000


@pytest.mark.parametrize("hertz", [82.0, 151.0, 247.0])
def test_f0_is_measured(hertz: float) -> None:
    f0, f0_range, voicing, _, _ = measure_attributes(buzz(hertz).samples, "buzz", RATE)
    assert f0 == pytest.approx(math.log2(hertz), abs=0.03)
    assert f0_range < 0.05
    assert voicing > 0.9


def test_whispers_have_no_f0_and_the_rate_ignores_silence() -> None:
    rng = np.random.default_rng(0)
    speech = np.concatenate([np.zeros(RATE), 0.1 * rng.standard_normal(2 * RATE), np.zeros(RATE)]).astype(np.float32)
    f0, _, voicing, _, rate = measure_attributes(speech, "x" * 20, RATE)
    assert math.isnan(f0)
    assert voicing < 0.15
    assert rate == pytest.approx(math.log(10), abs=0.1)


def test_attributes_are_relative_to_the_neutral_style() -> None:
    measured = np.array([[1.0, np.nan], [3.0, 2.0], [4.0, 6.0], [10.0, np.nan], [12.0, 5.0]])
    speakers = np.array(["anna", "anna", "anna", "bert", "bert"])
    neutral = np.array([True, True, False, True, False])
    differences = np.array([[-1.0, np.nan], [1.0, 0.0], [2.0, 4.0], [0.0, np.nan], [2.0, 5.0]])
    expected = differences / np.sqrt([10.0 / 5, 41.0 / 3])
    np.testing.assert_allclose(relative_to_speaker(measured, speakers, neutral), expected, rtol=1e-6)


def test_the_f0_level_is_relative_to_all_recordings() -> None:
    octaves = np.array([6.0, 7.0, np.nan, 8.0])
    measured = np.stack([octaves, *[np.zeros(4)] * 4], axis=1)
    expected = np.array([-1.0, 0.0, np.nan, 1.0]) / np.sqrt(2.0 / 3)
    np.testing.assert_allclose(f0_level(measured), expected[:, None], rtol=1e-6)


def test_without_any_f0_there_is_no_f0_level() -> None:
    assert np.isnan(f0_level(np.full((3, 5), np.nan))).all()
