"""The authors' rules, and what is put right in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import TextError, VoiceError
from marstts.mars6.prompt import Prompt
from marstts.synthesis.released import DeepClone, ReleasedProfile
from scripted import LOUD, SILENT, Says, Script, scripted_synthesizer

TEXT = "The cat sat. She sells shells! It ends;"
TRANSCRIPT = "On the mat."


def profile_of(script: Script, mode: DeepClone = DeepClone.PER_CHUNK) -> ReleasedProfile:
    return ReleasedProfile(scripted_synthesizer(script), mode)


def prefixes(profile: ReleasedProfile) -> list[int]:
    """How many patches every prompt continued from."""
    return [len(prompt.prefix_tokens) for prompt in profile.synthesizer.stepper.prompts]  # type: ignore[attr-defined]


def loud(attempt: int, prompt: Prompt) -> Says:
    return Says(20 + attempt)


@pytest.mark.parametrize(
    ("mode", "transcript", "expected"),
    [
        (DeepClone.NONE, TRANSCRIPT, [0, 0, 0]),
        (DeepClone.FIXED_REFERENCE, TRANSCRIPT, [35, 35, 35]),
        (DeepClone.FIXED_REFERENCE, None, [0, 0, 0]),
        (DeepClone.PER_CHUNK, TRANSCRIPT, [35, 20, 21]),
        (DeepClone.PER_CHUNK, None, [0, 20, 21]),
        (DeepClone.FIXED_REFERENCE, "Hi.", [0, 0, 0]),  # too short to be used; the mode stays as it was asked for
        (DeepClone.FIXED_REFERENCE, "word " * 61, [0, 0, 0]),
    ],
)
def test_what_chunks_continue_from(
    mode: DeepClone, transcript: str | None, expected: list[int], reference: Waveform
) -> None:
    """Three seconds are 36 patches, of which the last is not used."""
    profile = profile_of(loud, mode)
    speech = profile.speak(TEXT, profile.clone(reference, transcript))
    assert [take.text for take in speech.takes] == ["The cat sat.", "She sells shells!", "It ends;"]
    assert prefixes(profile) == expected


def test_a_quiet_take_is_tried_again_and_the_next_chunk_starts_at_the_lowest_top_p(reference: Waveform) -> None:
    profile = profile_of(lambda attempt, prompt: Says(20, SILENT if attempt < 2 else LOUD))
    speech = profile.speak(TEXT, profile.clone(reference))
    assert [(take.attempts, take.top_p) for take in speech.takes] == [(3, 0.6), (1, 0.2), (1, 0.2)]
    assert not speech.warnings


def test_no_chunk_is_dropped(reference: Waveform) -> None:
    """Published: after eleven tries its words are left out."""
    profile = profile_of(lambda attempt, prompt: Says(20, SILENT if attempt < 11 else LOUD))
    speech = profile.speak(TEXT, profile.clone(reference))
    assert [take.text for take in speech.takes] == ["The cat sat.", "She sells shells!", "It ends;"]
    assert [take.attempts for take in speech.takes] == [11, 1, 1]
    assert [take.top_p for take in speech.takes][1:] == [0.2, 0.2]
    assert len(speech.takes[0].codes[0]) == 20
    assert len(speech.warnings) == 1 and "The cat sat." in speech.warnings[0]


def test_the_shortest_allowed_take_is_accepted(reference: Waveform) -> None:
    """Published: end of speech comes one patch too early to be accepted."""
    profile = profile_of(lambda attempt, prompt: Says(1))
    [take] = profile.speak("It is a cat, it is a mat, and it sat.", profile.clone(reference)).takes
    assert (len(take.codes[0]), take.attempts, take.warning) == (14, 1, None)  # 37 characters / 32 * 12


def test_takes_of_a_fraction_of_a_second_are_measured(reference: Waveform) -> None:
    """Published: loudness of less than 0.4 s stops everything."""
    profile = profile_of(lambda attempt, prompt: Says(1))
    [take] = profile.speak("No.", profile.clone(reference)).takes
    assert len(take.codes[0]) == 2 and take.warning is None


def test_takes_are_joined_end_to_end(reference: Waveform) -> None:
    profile = profile_of(loud)
    speech = profile.speak(TEXT, profile.clone(reference))
    whole = np.concatenate([take.waveform.samples for take in speech.takes])
    assert len(whole) == 2048 * (20 + 21 + 22)
    assert len(whole) - 2048 < len(speech.waveform.samples) <= len(whole)


def test_every_take_is_told_of(reference: Waveform) -> None:
    profile, told = profile_of(loud), []
    profile.speak(TEXT, profile.clone(reference), on_take=lambda take, number, of: told.append((number, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_reference_of_one_patch_gives_no_prefix(reference: Waveform) -> None:
    """Published: an empty prefix that the model cannot hear."""
    profile = profile_of(loud)
    voice = profile.clone(Waveform(reference.samples[20_000:22_000], 24_000), TRANSCRIPT)
    assert voice.prefix is None


def test_nothing_to_say_and_a_voice_of_another_model_are_refused(reference: Waveform) -> None:
    profile = profile_of(loud)
    with pytest.raises(TextError, match="nothing to say"):
        profile.speak(" \n", profile.clone(reference))
    voice = replace(profile.clone(reference), identity_encoder="another")
    with pytest.raises(VoiceError, match="another"):
        profile.speak(TEXT, voice)
