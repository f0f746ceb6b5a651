"""Voices of dialogue, pauses, and speech that goes on where an earlier run ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marstts.errors import ConfigError, VoiceError
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.segments import Pauses
from marstts.voice import Voice
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow

TEXT = '"Hello," she said. [voice:Tom] I am Tom. [voice:default] "Go," she said.\n\nHe went.\n\n* * *\n\nIt was late.'


@pytest.fixture
def tts() -> Synthesizer:
    return scripted_synthesizer(good)


@pytest.fixture
def narrator(tts: Synthesizer, reference_file: Path) -> Voice:
    return tts.clone(reference_file)


@pytest.fixture
def cast(narrator: Voice) -> dict[str, Voice]:
    return {name: replace(narrator, name=name) for name in ("Anna", "Tom")}


def test_quotation_marks_and_voice_marks_choose_the_voice(tts: Synthesizer, narrator: Voice, cast: dict[str, Voice]):
    choices = {"voices": cast, "dialogue": "Anna"}
    chunks = list(tts.stream(TEXT, narrator, **choices, sentences=True))
    assert [(chunk.voice, chunk.text) for chunk in chunks] == [
        ("Anna", '"Hello,"'), (None, "she said."), ("Tom", "I am Tom."), ("Anna", '"Go,"'), (None, "she said."),
        (None, "He went."), (None, "It was late."),
    ]  # fmt: skip
    whole = tts.speak(TEXT, narrator, **choices)
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in chunks]), whole.samples)
    streamed = dict.fromkeys((chunk.sentence, chunk.voice) for chunk in tts.stream(TEXT, narrator, **choices))
    assert list(streamed) == [(number, chunk.voice) for number, chunk in enumerate(chunks, 1)]


@pytest.mark.parametrize("text", [TEXT, f"{'It rained. ' * 400} [voice:Tim] Late."])
def test_a_voice_that_is_not_there_is_refused_before_anything_is_spoken(tts: Synthesizer, narrator: Voice, text: str):
    with pytest.raises(VoiceError, match=r"Bob|Tim|Tom"):
        next(tts.stream(text, narrator, dialogue="Bob", sentences=True))
    assert not tts.session.engine.prompts


def test_pauses_are_as_long_as_was_asked(tts: Synthesizer, narrator: Voice):
    text = "# Title\n\nOne. Two.\n\nThree.\n\n* * *\n\nFour. [pause:1s]\n\n"
    pauses = Pauses(sentence=0.1, heading=0.2, paragraph=0.4, scene=0.5, end=0.6)
    chunks = list(tts.stream(text, narrator, pauses=pauses, sentences=True))
    silent = [chunk.seconds - chunk.take.seconds for chunk in chunks]
    assert silent == pytest.approx([0.2, 0.1, 0.4, 0.5, 1.6], abs=0.01)
    usual = [chunk.seconds - chunk.take.seconds for chunk in tts.stream(text, narrator, sentences=True)]
    assert usual == pytest.approx([0.8, 0.3, 0.7, 1.9, 1.0], abs=0.01)
    with pytest.raises(ConfigError, match="paragraph"):
        Pauses(paragraph=-1.0)


@pytest.mark.parametrize("longest", [4000, 20])
@pytest.mark.parametrize("start", [1, 6])
def test_speech_goes_on_after_the_sentences_that_were_spoken(
    tts: Synthesizer,
    narrator: Voice,
    cast: dict[str, Voice],
    start: int,
    longest: int,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("marstts.synthesis.prepared_text.MAX_WHOLE_CHARACTERS", longest)
    how = {"voices": cast, "dialogue": "Anna", "seed": 3}
    whole = list(tts.stream(TEXT, narrator, **how, sentences=True))
    rest = list(scripted_synthesizer(good).stream(TEXT, narrator, start=start, **how, sentences=True))
    assert [(chunk.sentence, chunk.text, chunk.is_last) for chunk in rest] == [
        (chunk.sentence, chunk.text, chunk.is_last) for chunk in whole[start:]
    ]
    joined = [np.concatenate([chunk.samples for chunk in chunks]) for chunks in (rest, whole[start:])]
    np.testing.assert_array_equal(*joined)
    assert not list(tts.stream(TEXT, narrator, start=len(whole), **how, sentences=True))
