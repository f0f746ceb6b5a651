"""SSML that changes the voice or the rate within a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.audio.tempo import change_tempo
from marstts.errors import TextError, VoiceError
from marstts.synthesis.styled import split_parts
from scripted import good, scripted_synthesizer

SAMPLE_RATE = 24_000


def test_parts_follow_voice_and_rate() -> None:
    parts = split_parts(
        '<speak>One. <voice name="ada">Two. Three.</voice><break time="1s"/>'
        '<prosody rate="fast">Four.</prosody> Five.</speak>',
        None,
    )
    assert [(part.text, part.voice, part.rate) for part in parts] == [
        ("One.", None, 1.0), ("Two. Three. [pause:1s]", "ada", 1.0), ("Four.", None, 1.25), ("Five.", None, 1.0),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["Plain words.", "<speak>Plain <emphasis>words</emphasis>.</speak>"])
def test_other_texts_have_no_parts(text: str) -> None:
    assert split_parts(text, None) == ()


@pytest.mark.parametrize("rate", [0.5, 0.8, 1.25, 2.0])
def test_stretching_keeps_the_pitch_and_changes_the_length(rate: float) -> None:
    pytest.importorskip("av")
    tone = np.sin(2 * np.pi * 220 * np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32)
    made = change_tempo(Waveform(tone, SAMPLE_RATE), rate)
    assert made.seconds == pytest.approx(2 / rate, rel=0.01)
    spectrum = np.abs(np.fft.rfft(made.samples))
    assert spectrum.argmax() / made.seconds == pytest.approx(220, abs=2)


def test_speech_changes_voice_and_rate(reference_file: Path) -> None:
    pytest.importorskip("av")
    synthesizer = scripted_synthesizer(good)
    ssml = '<speak>The cat sat. <voice name="ada"><prosody rate="200%">The cat sat.</prosody></voice></speak>'
    speech = synthesizer.speak(ssml, reference_file)
    plain, fast = speech.takes
    assert (plain.text, fast.text) == ("The cat sat.", "The cat sat.")
    assert fast.seconds == pytest.approx(plain.seconds / 2, rel=0.1)
    assert speech.warnings == () and speech.seconds > plain.seconds + fast.seconds


def test_without_a_time_stretcher_the_rate_is_named(reference_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    speech = scripted_synthesizer(good).speak(
        '<speak><prosody rate="fast">The cat sat.</prosody></speak>', reference_file
    )
    assert "speaking rate is not honored" in speech.warnings[0] and len(speech.takes) == 1


def test_unknown_voices_and_malformed_documents_are_refused(reference_file: Path) -> None:
    synthesizer = scripted_synthesizer(good)
    for name in ("nobody", reference_file):  # a file is no name: texts may come from others
        with pytest.raises(VoiceError, match="packaged voices"):
            synthesizer.speak(f'<speak><voice name="{name}">Hi.</voice></speak>', reference_file)
    with pytest.raises(TextError, match="well-formed"):
        synthesizer.speak('<speak><voice name="ada">Hi.</speak>', reference_file)
