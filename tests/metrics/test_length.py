"""The length check."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts_lab.metrics.length import LengthStatus, check_length, expected_seconds

RATE = 8000


def tone(seconds: float, amplitude: float = 0.1) -> Waveform:
    return Waveform((amplitude * np.sin(np.arange(round(seconds * RATE)))).astype(np.float32), RATE)


@pytest.mark.parametrize(
    ("take", "status"),
    [
        (tone(3.0), LengthStatus.PLAUSIBLE),
        (tone(6.0), LengthStatus.PLAUSIBLE),
        (tone(6.1), LengthStatus.TOO_LONG),
        (tone(1.5), LengthStatus.PLAUSIBLE),
        (tone(1.4), LengthStatus.TOO_SHORT),
        (tone(0.05), LengthStatus.EMPTY),
        (tone(0.0), LengthStatus.EMPTY),
        (tone(3.0, amplitude=1e-3), LengthStatus.SILENT),
        (tone(9.0, amplitude=0.0), LengthStatus.SILENT),
        (None, LengthStatus.MISSING),
    ],
)
def test_length_status_for_three_expected_seconds(take: Waveform | None, status: LengthStatus):
    assert check_length(take, 3.0) is status


def test_only_empty_silent_and_missing_takes_have_no_speech():
    assert [status for status in LengthStatus if status.has_speech] == [
        LengthStatus.PLAUSIBLE,
        LengthStatus.TOO_LONG,
        LengthStatus.TOO_SHORT,
    ]


def test_expected_seconds_count_numbers_as_words():
    assert expected_seconds("1984") == expected_seconds("one thousand nine hundred and eighty-four")
    assert 0.4 < expected_seconds("Yes!") < 0.7 and expected_seconds("...") == 0.4
    assert 2.8 < expected_seconds("The ship left the harbour at dawn, and nobody saw it again.") < 4.4


@pytest.mark.parametrize(
    "text", ["No, no, no.", "Yes, yes, yes, yes!", "Ha, ha, ha!", "Tick, tock, tick, tock, tick, tock."]
)
def test_short_words_with_pauses_between_them_are_not_too_long(text: str):
    longest = {
        "No, no, no.": 1.96,
        "Yes, yes, yes, yes!": 2.95,
        "Ha, ha, ha!": 2.0,
        "Tick, tock, tick, tock, tick, tock.": 4.56,
    }
    assert (
        check_length(tone(longest[text]), expected_seconds(text)) is LengthStatus.PLAUSIBLE
    )  # lengths of espeak-ng, flite, pico


def test_expected_seconds_count_pauses_between_words_only():
    assert (
        expected_seconds("Yes! No! Perhaps?")
        == expected_seconds("Yes!No!Perhaps?")
        > expected_seconds("Yes no perhaps") + 0.7
    )
    assert expected_seconds("Well, yes.") > expected_seconds("Well yes.") + 0.1
    assert expected_seconds("1,000 ships") == expected_seconds("1000 ships")
    assert expected_seconds("Yes...!") == expected_seconds("Yes")
