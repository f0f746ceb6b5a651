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


def test_a_stream_changes_voice_and_rate_as_speech_does(reference_file: Path) -> None:
    pytest.importorskip("av")
    synthesizer = scripted_synthesizer(good)
    ssml = (
        '<speak>The cat sat. <voice name="ada"><prosody rate="200%">The <emphasis>cat</emphasis> sat.</prosody></voice>'
        '<prosody rate="80%">The cat sat.</prosody></speak>'
    )
    chunks = list(synthesizer.stream(ssml, reference_file))
    speech = synthesizer.speak(ssml, reference_file)
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    plain, fast, slow = [chunk.take for chunk in chunks if chunk.take is not None]
    assert [take.text for take in (plain, fast, slow)] == ["The cat sat."] * 3
    assert fast.seconds < plain.seconds < slow.seconds
    assert sum(chunk.seconds for chunk in chunks) == pytest.approx(speech.seconds, rel=0.1)
    assert [chunk.sentence for chunk in chunks if chunk.take is not None] == [1, 2, 3]
    assert {chunk.warning for chunk in chunks} == {None, "not supported and ignored: emphasis"}


def test_a_stream_uses_the_voice_that_a_part_names(reference_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthesizer, used = scripted_synthesizer(good), []
    requests = type(synthesizer).requests
    monkeypatch.setattr(
        type(synthesizer), "requests", lambda self, *given: used.append(given[1].name) or requests(self, *given)
    )
    list(synthesizer.stream('<speak>The cat sat. <voice name="ada">The cat sat.</voice></speak>', reference_file))
    assert used[-1].lower() == "ada" and used[0] != used[-1]
    with pytest.raises(VoiceError, match="packaged voices"):
        synthesizer.stream('<speak><voice name="../x">Hi.</voice></speak>', reference_file)


def test_a_stream_without_a_time_stretcher_names_the_rate(
    reference_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    text = '<speak><prosody rate="fast">The cat sat.</prosody></speak>'
    chunks = list(scripted_synthesizer(good).stream(text, reference_file))
    assert "the speaking rate is not honored" in "".join(chunk.warning or "" for chunk in chunks)
