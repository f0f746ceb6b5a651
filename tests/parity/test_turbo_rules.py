"""The rules of the published script, and the corrections to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from turbo_rules import TurboCompat

from marstts.audio import Waveform
from marstts.errors import TextError, VoiceError
from marstts.synthesis.speech import Continuation
from scripted import LOUD, SILENT, Script, ScriptedPrompt, ScriptedTake, scripted_synthesizer

TEXT = "The cat sat. She sells shells! It ends;"
TRANSCRIPT = "On the mat."


def profile_of(script: Script, mode: Continuation = Continuation.PER_CHUNK) -> TurboCompat:
    return TurboCompat(scripted_synthesizer(script), mode)


def prefixes(profile: TurboCompat) -> list[int]:
    """Number of prefix patches of every prompt."""
    return [len(prompt.prefix_tokens) for prompt in profile.synthesizer.engine.prompts]  # type: ignore[attr-defined]


def loud(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
    return ScriptedTake(20 + attempt)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "transcript", "expected"),
    [
        (Continuation.NONE, TRANSCRIPT, [0, 0, 0]),
        (Continuation.FIXED_REFERENCE, TRANSCRIPT, [35, 35, 35]),
        (Continuation.FIXED_REFERENCE, None, [0, 0, 0]),
        (Continuation.PER_CHUNK, TRANSCRIPT, [35, 20, 21]),
        (Continuation.PER_CHUNK, None, [0, 20, 21]),
        (Continuation.FIXED_REFERENCE, "Hi.", [0, 0, 0]),  # too short to be used; the mode stays as it was asked for
        (Continuation.FIXED_REFERENCE, "word " * 61, [0, 0, 0]),
    ],
)
def test_what_chunks_continue_from(
    mode: Continuation, transcript: str | None, expected: list[int], reference: Waveform
) -> None:
    """Three seconds are 36 patches, of which the last is not used."""
    profile = profile_of(loud, mode)
    speech = profile.speak(TEXT, profile.clone(reference, transcript))
    assert [take.text for take in speech.takes] == ["The cat sat.", "She sells shells!", "It ends;"]
    assert prefixes(profile) == expected


def test_a_quiet_take_is_tried_again_and_the_next_chunk_starts_at_the_lowest_top_p(reference: Waveform) -> None:
    profile = profile_of(lambda attempt, prompt: ScriptedTake(20, SILENT if attempt < 2 else LOUD))
    speech = profile.speak(TEXT, profile.clone(reference))
    assert [(take.attempts, take.top_p) for take in speech.takes] == [(3, 0.6), (1, 0.2), (1, 0.2)]
    assert not speech.warnings


def test_no_chunk_is_dropped(reference: Waveform) -> None:
    """Published: after eleven tries its words are left out."""
    profile = profile_of(lambda attempt, prompt: ScriptedTake(20, SILENT if attempt < 11 else LOUD))
    speech = profile.speak(TEXT, profile.clone(reference))
    assert [take.text for take in speech.takes] == ["The cat sat.", "She sells shells!", "It ends;"]
    assert [take.attempts for take in speech.takes] == [11, 1, 1]
    assert [take.top_p for take in speech.takes][1:] == [0.2, 0.2]
    assert len(speech.takes[0].codes[0]) == 20
    assert len(speech.warnings) == 1 and "The cat sat." in speech.warnings[0]


def test_the_shortest_allowed_take_is_accepted(reference: Waveform) -> None:
    """Published: end of speech comes one patch too early to be accepted."""
    profile = profile_of(lambda attempt, prompt: ScriptedTake(1))
    [take] = profile.speak("It is a cat, it is a mat, and it sat.", profile.clone(reference)).takes
    assert (len(take.codes[0]), take.attempts, take.warning) == (14, 1, None)  # 37 characters / 32 * 12


def test_takes_of_a_fraction_of_a_second_are_measured(reference: Waveform) -> None:
    """Published: loudness of less than 0.4 s stops everything."""
    profile = profile_of(lambda attempt, prompt: ScriptedTake(1))
    [take] = profile.speak("No.", profile.clone(reference)).takes
    assert len(take.codes[0]) == 2 and take.warning is None


def test_takes_are_joined_end_to_end(reference: Waveform) -> None:
    profile = profile_of(loud)
    speech = profile.speak(TEXT, profile.clone(reference))
    whole = np.concatenate([take.waveform.samples for take in speech.takes])
    assert len(whole) == 2048 * (20 + 21 + 22)
    assert len(whole) - 2048 < len(speech.waveform.samples) <= len(whole)


def test_a_reference_of_one_patch_gives_no_prefix(reference: Waveform) -> None:
    """Published: an empty prefix without any patch."""
    profile = profile_of(loud)
    voice = profile.clone(Waveform(reference.samples[20_000:22_000], 24_000), TRANSCRIPT)
    assert voice.prefix is None


def test_empty_text_and_a_voice_of_another_model_are_refused(reference: Waveform) -> None:
    profile = profile_of(loud)
    with pytest.raises(TextError, match="nothing to say"):
        profile.speak(" \n", profile.clone(reference))
    voice = profile.clone(reference)
    voice = replace(voice, encoders={**voice.encoders, "identity": "another"})
    with pytest.raises(VoiceError, match="another"):
        profile.speak(TEXT, voice)
