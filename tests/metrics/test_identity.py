"""Speaker similarity and the spoof EER."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import MissingExtraError
from marstts.speaker.base import cosine, equal_error_rate
from marstts_lab.metrics.identity import Resemblyzer, level, spoof_eer


def unit(degrees: float) -> np.ndarray:
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], np.float32)


def test_cosine_with_an_embedding_of_zeros_is_zero():
    assert cosine(np.zeros(2, np.float32), unit(0)) == 0.0


def test_level_normalization_removes_loudness_and_never_clips():
    noise = np.random.default_rng(0).standard_normal(5000).astype(np.float32) * 0.01
    loud, quiet = (level(Waveform(noise * gain, 16000)).samples for gain in (5.0, 0.2))
    np.testing.assert_allclose(loud, quiet, rtol=1e-4)
    click = np.zeros(5000, np.float32)
    click[7] = 0.5
    assert np.abs(level(Waveform(click, 16000)).samples).max() == pytest.approx(0.98)


@pytest.mark.slow
def test_resemblyzer_distinguishes_two_readers(surpassed: Waveform, amiable: Waveform):
    pytest.importorskip("resemblyzer", exc_type=ImportError)
    encoder = Resemblyzer()
    third = len(amiable.samples) // 3
    start, end = (Waveform(s, amiable.sample_rate) for s in (amiable.samples[: 2 * third], amiable.samples[third:]))
    take = encoder.embed(start)
    assert take.shape == (encoder.size,)
    assert cosine(take, encoder.embed(end)) > cosine(take, encoder.embed(surpassed))


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "resemblyzer", None)
    with pytest.raises(MissingExtraError, match=r"marstts\[eval\]"):
        Resemblyzer()


def brute_force_error_rate(real: list[float], generated: list[float]) -> float:
    """Every threshold between and beyond the scores, by counting: the mean of both errors where they are closest."""
    scores = sorted({*real, *generated})
    errors = [
        (sum(score < threshold for score in real) / len(real), sum(s >= threshold for s in generated) / len(generated))
        for threshold in scores
    ]
    refused, accepted = min(errors, key=lambda pair: abs(pair[0] - pair[1]))
    return min(50.0, 100 * (refused + accepted) / 2)


def test_spoof_eer_matches_counting_at_every_threshold():
    rng = np.random.default_rng(1)
    for number, shift in ((3, 0.2), (20, 0.5), (41, 0.0), (60, -0.4), (7, 2.0)):
        real, generated = rng.normal(shift, 0.3, number), rng.normal(0.0, 0.3, number)
        expected = brute_force_error_rate(list(real), list(generated))
        assert spoof_eer(real, generated) == pytest.approx(expected)
        assert min(50.0, 100 * equal_error_rate(real, generated)) == pytest.approx(expected)


def test_batched_spoof_eer_matches_single_ones_with_ties():
    rng = np.random.default_rng(2)
    real, generated = np.round(rng.normal(0.1, 0.2, (5, 13)), 1), np.round(rng.normal(0.0, 0.2, (5, 9)), 1)
    expected = [min(50.0, 100 * equal_error_rate(*pair)) for pair in zip(real, generated, strict=True)]
    assert spoof_eer(real, generated) == pytest.approx(expected)


def test_spoof_eer_of_indistinguishable_takes_is_50_at_most():
    scores = np.array([0.7, 0.8, 0.9])
    assert spoof_eer(scores, scores) == pytest.approx(50.0)
    assert spoof_eer(scores, scores + 1.0) == 50.0
    assert spoof_eer(scores, scores - 1.0) == 0.0
