"""Forced alignment detects missing words."""

from __future__ import annotations

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.metrics import sphinx
from marstts.metrics.sphinx import Aligner

SENTENCE = ["he", "might", "even", "have", "been", "made", "amiable", "himself"]


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner()


@pytest.mark.slow
def test_alignment_of_human_speech_succeeds(aligner: Aligner, amiable_pcm: bytes, surpassed_pcm: bytes):
    for pcm, words in ((amiable_pcm, SENTENCE), (surpassed_pcm, ["has", "never", "been", "surpassed"])):
        alignment = aligner.align(pcm, words)
        assert alignment.worst_word in words
        assert -11.0 < alignment.worst_score < 0.0 and not alignment.failed


@pytest.mark.slow
def test_alignment_fails_for_words_that_are_missing(aligner: Aligner, surpassed: Waveform, surpassed_pcm: bytes):
    assert aligner.align(surpassed_pcm, SENTENCE).failed
    half = Waveform(surpassed.samples[: len(surpassed.samples) // 2], surpassed.sample_rate)
    assert aligner.align(sphinx.prepare(half), ["has", "never", "been", "surpassed"]).failed


def test_alignment_fails_for_a_text_longer_than_the_audio(aligner: Aligner):
    click = Waveform(np.ones(100, np.float32), 16000)
    assert aligner.align(sphinx.prepare(click), SENTENCE).worst_score is None


@pytest.mark.slow
def test_alignment_score_does_not_depend_on_earlier_utterances(
    surpassed_pcm: bytes, amiable_pcm: bytes, aligner: Aligner
):
    aligner.align(surpassed_pcm, ["has", "never", "been", "surpassed"])
    assert aligner.align(amiable_pcm, SENTENCE) == Aligner().align(amiable_pcm, SENTENCE)


def test_words_without_a_pronunciation_are_skipped_and_counted(
    aligner: Aligner, amiable_pcm: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sphinx, "pronounceable", lambda words: [word for word in words if word in SENTENCE])
    alignment = aligner.align(amiable_pcm, [*SENTENCE, "zyzzyvaflorb"])
    assert alignment.skipped == 1 and not alignment.failed
    assert aligner.align(amiable_pcm, ["zyzzyvaflorb"]).worst_word is None
