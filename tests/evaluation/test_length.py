"""Verdicts on the length of a take."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.evaluation.metrics.length import Verdict, judge_length, usual_seconds

RATE = 8000


def tone(seconds: float, amplitude: float = 0.1) -> Waveform:
    return Waveform((amplitude * np.sin(np.arange(round(seconds * RATE)))).astype(np.float32), RATE)


@pytest.mark.parametrize(
    ("take", "verdict"),
    [
        (tone(3.0), Verdict.PLAUSIBLE),
        (tone(6.0), Verdict.PLAUSIBLE),
        (tone(6.1), Verdict.TOO_LONG),
        (tone(1.5), Verdict.PLAUSIBLE),
        (tone(1.4), Verdict.TOO_SHORT),
        (tone(0.05), Verdict.EMPTY),
        (tone(0.0), Verdict.EMPTY),
        (tone(3.0, amplitude=1e-3), Verdict.SILENT),
        (tone(9.0, amplitude=0.0), Verdict.SILENT),
        (None, Verdict.MISSING),
    ],
)
def test_verdict_for_a_source_of_three_seconds(take: Waveform | None, verdict: Verdict):
    assert judge_length(take, 3.0) is verdict


def test_only_takes_with_something_in_them_are_listened_to():
    assert [verdict for verdict in Verdict if verdict.has_speech] == [
        Verdict.PLAUSIBLE,
        Verdict.TOO_LONG,
        Verdict.TOO_SHORT,
    ]


def test_numbers_take_as_long_as_the_words_they_are_read_as():
    assert usual_seconds("1984") == usual_seconds("one thousand nine hundred and eighty-four")
    assert 0.4 < usual_seconds("Yes!") < 0.7 and usual_seconds("...") == 0.4
    assert 2.8 < usual_seconds("The ship left the harbour at dawn, and nobody saw it again.") < 4.4
