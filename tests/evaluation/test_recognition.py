"""Open recognition and its error counts."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.evaluation.metrics import sphinx
from marstts.evaluation.metrics.recognition import Edits, Recogniser, character_edits, word_edits


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    return Recogniser()


@pytest.mark.parametrize(
    ("heard", "errors"),
    [
        ("the cat sat on the mat", 0),
        ("the cat sat on mat", 1),
        ("a cat sat on the big mat", 2),
        ("mat", 5),
        ("", 6),
        ("one two three four five six seven eight", 8),
    ],
)
def test_word_edits_agree_with_counting_by_hand(heard: str, errors: int):
    assert word_edits(["the", "cat", "sat", "on", "the", "mat"], heard.split()) == Edits(errors, 6)


@pytest.mark.parametrize(("heard", "errors"), [("ab cd", 0), ("ab ce", 1), ("abcd", 1), ("b cdd", 2), ("", 5)])
def test_character_edits_count_the_spaces_between_words(heard: str, errors: int):
    assert character_edits(["ab", "cd"], heard.split()) == Edits(errors, 5)


def test_edits_agree_with_the_textbook_recursion():
    def distance(first: str, second: str) -> int:
        if not first or not second:
            return len(first) + len(second)
        return min(
            distance(first[1:], second) + 1,
            distance(first, second[1:]) + 1,
            distance(first[1:], second[1:]) + (first[0] != second[0]),
        )

    rng = np.random.default_rng(3)
    for _ in range(20):
        first, second = ("".join(rng.choice(list("abc"), rng.integers(1, 6))) for _ in range(2))
        assert word_edits(list(first), list(second)).errors == distance(first, second)


def test_real_speech_is_heard_as_its_text(recogniser: Recogniser, surpassed_pcm: bytes):
    assert recogniser.hear(surpassed_pcm) == ["has", "never", "been", "surpassed"]


def test_nothing_is_heard_in_silence(recogniser: Recogniser):
    assert recogniser.hear(sphinx.prepare(Waveform(np.zeros(8000, np.float32), 16000))) == []


def test_what_was_heard_before_changes_nothing(surpassed_pcm: bytes, amiable_pcm: bytes):
    fresh, used = Recogniser(), Recogniser()
    noise = np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    used.hear(sphinx.prepare(Waveform(noise, 16000)))
    used.hear(surpassed_pcm)
    assert used.hear(amiable_pcm) == fresh.hear(amiable_pcm)


def test_prepared_audio_does_not_depend_on_level(surpassed: Waveform):
    quiet = Waveform(surpassed.samples * 0.1, surpassed.sample_rate)
    first, second = (np.frombuffer(sphinx.prepare(w), "<i2").astype(int) for w in (surpassed, quiet))
    assert np.abs(first - second).max() <= 1
    assert len(first) == pytest.approx((surpassed.seconds + 2 * sphinx.EDGE_SECONDS) * sphinx.SAMPLE_RATE, abs=1)
