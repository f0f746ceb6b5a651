"""Quality regression: character error rate of frozen sentences of the packaged model, by the offline recognizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from marstts.synthesis.synthesizer import Synthesizer
from marstts_lab.evaluation.testset import take_seed
from marstts_lab.metrics.recognition import SphinxRecognizer, character_edits
from marstts_lab.metrics.words import plain_words

REFERENCE = Path(__file__).parents[1] / "audio" / "sense-0930.flac"
SENTENCES = (
    "The hydroelectric plant needs to generate more electricity.",
    "The book still has its original binding.",
    "Church bells were ringing all over town.",
)
"""Sentences of the synthetic test set, which no model was trained on."""

MAX_CER = 0.20
"""Two seeds gave 0.07 and 0.04 on an AMD EPYC; other processors sample other tokens, hence the headroom."""


def character_error_rate(mini: Synthesizer, seed: int) -> float:
    """Errors over characters of all sentences, in the voice of the reference."""
    recognizer = SphinxRecognizer()
    voice = mini.clone(REFERENCE)
    errors = characters = 0
    for number, sentence in enumerate(SENTENCES, start=1):
        take = mini.speak(sentence, voice, seed=take_seed(seed, str(number))).waveform
        edits = character_edits(plain_words(sentence), recognizer.transcribe(take))
        errors, characters = errors + edits.errors, characters + edits.length
    return errors / characters


@pytest.mark.slow
def test_the_packaged_model_stays_intelligible(mini: Synthesizer):
    assert character_error_rate(mini, seed=0) <= MAX_CER
