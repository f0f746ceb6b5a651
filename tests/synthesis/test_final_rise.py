"""The pitch at the end of a take: questions that rise, and those that are asked again."""

from __future__ import annotations

import numpy as np
import pytest

import marstts
from marstts.audio import audible_span
from marstts.synthesis.final_rise import MIN_RISE, final_rise
from marstts.synthesis.speech import EDGE_BELOW_PEAK_DB, MAX_TAIL_SECONDS
from marstts.text.intonation import rises_at_end
from marstts.text.phones import FALLING, RISING
from marstts.text.segments import Segment

RATE = 100.0


def course(*semitones: float) -> np.ndarray:
    """F0 of frames that lie so many semitones above 120 Hz, from one value to the next in 0.2 s each."""
    frames = np.interp(np.arange(0, len(semitones) - 1, 0.05), np.arange(len(semitones)), semitones)
    return (120.0 * 2.0 ** (frames / 12)).astype(np.float32)


@pytest.mark.parametrize(
    ("semitones", "rise"), [((0, 0, 0, 0), 0.0), ((0, 0, 0, 6), 4.2), ((6, 4, 2, 0), -2.6), ((12, 0, 0, 0), 0.0)]
)
def test_the_rise_is_that_of_the_last_syllable(semitones: tuple[float, ...], rise: float) -> None:
    hertz = course(*semitones)
    assert final_rise(hertz, RATE, len(hertz) / RATE) == pytest.approx(rise, abs=0.8)
    silence_after = np.concatenate([hertz, np.full(50, 60.0, np.float32)])
    assert final_rise(silence_after, RATE, len(hertz) / RATE) == pytest.approx(rise, abs=0.8)


def test_too_little_sound_does_not_rise() -> None:
    assert final_rise(np.zeros(0, np.float32), RATE, 0.0) == 0.0
    assert final_rise(course(0, 5), RATE, 0.1) == 0.0


@pytest.mark.parametrize(
    ("text", "rises"),
    [
        ("are you ready?", True), ('she asked: "are you ready?"', True), ("you are ready.", False),
        ("where do you live?", False), ("tea or coffee?", False), ("are you ready? I am.", False),
        (f"he is here{RISING}?", True), (f"are you ready{FALLING}?", False), (f"he is here{RISING}.", True),
        ("", False),
    ],
)  # fmt: skip
def test_what_rises_is_a_matter_of_the_last_sentence_and_of_the_users_marks(text: str, rises: bool) -> None:
    assert rises_at_end(text) is rises


@pytest.mark.slow
@pytest.mark.speaks
def test_questions_are_asked_again_until_they_rise() -> None:
    """What is kept rises, or the attempts are used up; statements and questions of the paper are spoken once."""
    tts = marstts.load("mini")
    session = tts.session
    codec = session.codec_of(tts.open_voice("ada"))
    for seed in range(3):
        take = tts.speak("Are you ready?", "ada", seed=seed).takes[0]
        whole = codec.decode(take.codes)
        end = audible_span(whole, below_peak_db=EDGE_BELOW_PEAK_DB, max_tail_seconds=MAX_TAIL_SECONDS)[1]
        hertz = codec.f0(take.codes)  # type: ignore[attr-defined]
        rise = final_rise(hertz, len(hertz) / whole.seconds, end / whole.sample_rate)
        assert take.is_level == (rise < MIN_RISE)
        assert not take.is_level or take.attempts >= session.backoff.question_attempts
    assert not session.as_in_paper().should_rise(Segment(text="are you ready?"))
    assert not session.rises(tuple(level[:0] for level in take.codes), tts.open_voice("ada"), 0), "of no patches"
