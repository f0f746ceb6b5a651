"""Speech of a given length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import ConfigError, TextError
from marstts.synthesis.fitting import NEAR_ENOUGH
from marstts.text.segments import Pauses
from scripted import ScriptedPrompt, ScriptedTake, good, scripted_synthesizer

pytest.importorskip("av", reason="the extra `formats` is not installed")

TEXT = "The cat sat on the mat. It rained."


@pytest.mark.parametrize("seconds", [2.5, 4.0, 6.0])
def test_a_text_lasts_as_long_as_is_asked(reference: Waveform, seconds: float):
    tts = scripted_synthesizer(good)
    voice, pauses = tts.clone(reference), Pauses(end=0.2)
    speech = tts.speak(TEXT, voice, seconds=seconds, pauses=pauses)
    assert speech.seconds == pytest.approx(seconds, abs=0.01)
    chunks = list(tts.stream(TEXT, voice, seconds=seconds, pauses=pauses))
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in chunks]), speech.samples)
    assert [chunk.is_last for chunk in chunks] == [False, True]
    pieces = list(tts.stream(iter([TEXT[:9], TEXT[9:]]), voice, seconds=seconds, pauses=pauses))
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in pieces]), speech.samples)
    [result] = tts.speak_many([TEXT], voice, seconds=seconds, pauses=pauses)
    assert result.speech is not None
    np.testing.assert_array_equal(result.speech.samples, speech.samples)


def test_the_pace_of_the_model_serves_before_the_tempo(reference: Waveform):
    lengths = [20, 23, 30, 26]

    def script(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
        return ScriptedTake(lengths[attempt])

    tts = scripted_synthesizer(script)
    voice = tts.clone(reference)
    slow = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(30)).speak("The cat sat there.", voice)
    speech = tts.speak("The cat sat there.", voice, seconds=slow.seconds)
    [take] = speech.takes
    assert speech.seconds == pytest.approx(slow.seconds, abs=0.01) and len(take.codes[0]) == 30
    assert len(tts.session.engine.prompts) == 3, "the third reading was near enough"


def test_a_length_that_is_near_needs_one_reading(reference: Waveform):
    tts = scripted_synthesizer(good)
    usual = tts.speak(TEXT, tts.clone(reference))
    num_prompts = len(tts.session.engine.prompts)
    tts.speak(TEXT, tts.clone(reference), seconds=usual.seconds * 0.97 * NEAR_ENOUGH)
    assert len(tts.session.engine.prompts) == 2 * num_prompts


@pytest.mark.parametrize(("seconds", "match"), [(0.6, "can last from"), (60.0, "can last from"), (0.2, "pauses alone")])
def test_a_length_beyond_the_range_is_refused_with_the_range(reference: Waveform, seconds: float, match: str):
    tts = scripted_synthesizer(good)
    with pytest.raises(TextError, match=match):
        tts.speak(TEXT, tts.clone(reference), seconds=seconds)
    [result] = tts.speak_many([TEXT], tts.clone(reference), seconds=seconds)
    assert isinstance(result.error, TextError)


@pytest.mark.parametrize("wrong", [{"seconds": 0.0}, {"seconds": -1.0}, {"seconds": 2.0, "speed": 1.1}])
def test_impossible_lengths_are_refused(reference: Waveform, wrong: dict[str, Any]):
    tts = scripted_synthesizer(good)
    with pytest.raises(ConfigError):
        tts.speak(TEXT, tts.clone(reference), **wrong)


def test_a_passage_of_ssml_lasts_as_long_as_it_says(reference: Waveform):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference)
    plain = tts.speak("<speak>One dog. The cat sat. It rained. Bye.</speak>", voice)
    ssml = '<speak>One dog. <prosody duration="4.6s">The cat sat. It rained.</prosody> Bye.</speak>'
    speech = tts.speak(ssml, voice)
    assert [take.text for take in speech.takes] == [take.text for take in plain.takes]
    assert speech.takes[0].seconds == plain.takes[0].seconds and speech.takes[3].seconds == plain.takes[3].seconds
    inner = speech.takes[1:3]
    assert inner[0].seconds + inner[1].seconds + 0.3 + inner[1].extra_pause_seconds == pytest.approx(4.6, abs=0.01)
    both = tts.speak(ssml, voice, seconds=9.0)
    assert both.seconds == pytest.approx(9.0, abs=0.01)
    with pytest.raises(TextError, match="duration"):
        tts.speak('<speak><prosody duration="soon">Bye.</prosody></speak>', voice)
