"""SSML that changes the voice or the rate within a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.audio.tempo import change_tempo
from marstts.errors import TextError, VoiceError
from marstts.synthesis.prepared_text import PreparedText
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow

SAMPLE_RATE = 24_000


def test_sentences_have_the_voice_the_rate_and_the_pause_that_the_text_asks_for() -> None:
    sentences = PreparedText(
        '<speak>One. <voice name="ada">Two. Three.</voice><break time="1s"/>'
        '<prosody rate="fast">Four.</prosody> Five.</speak>'
    )
    assert [(each.text, each.voice, each.rate, each.pause_seconds) for each in sentences] == [
        ("One.", None, 1.0, 0.0), ("Two.", "ada", 1.0, 0.0), ("Three.", "ada", 1.0, 1.0), ("Four.", None, 1.25, 0.0),
        ("Five.", None, 1.0, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ('<speak><break time="1s"/>It sat.</speak>', 1.0, 0.0),
        ('<speak>It sat.<break time="700ms"/></speak>', 0.0, 0.7),
        ('<speak><break time="1s"/><break time="500ms"/><prosody rate="90%">It sat.</prosody></speak>', 1.5, 0.0),
        ("[pause:2s] It sat. [pause:1s]", 2.0, 1.0),
    ],
)
def test_pauses_before_the_first_and_after_the_last_word_are_kept(
    text: str, before: float, after: float, reference_file: Path
) -> None:
    pytest.importorskip("av")
    synthesizer = scripted_synthesizer(good)
    speech = synthesizer.speak(text, reference_file)
    [take] = speech.takes
    assert speech.seconds == pytest.approx(before + take.seconds + after, abs=0.001)
    assert not speech.samples[: round(before * SAMPLE_RATE)].any()
    assert not speech.samples[len(speech.samples) - round(after * SAMPLE_RATE) :].any()
    for chunks in (synthesizer.stream(text, reference_file), synthesizer.stream(text, reference_file, sentences=True)):
        sent = np.concatenate([chunk.samples for chunk in chunks])
        assert len(sent) == pytest.approx(len(speech.samples), abs=2048)
        assert not sent[: round(before * SAMPLE_RATE)].any()
        assert not sent[len(sent) - round(after * SAMPLE_RATE) :].any()


def test_a_text_may_name_the_callers_voices(reference_file: Path) -> None:
    synthesizer = scripted_synthesizer(good)
    anna = synthesizer.clone(reference_file, "Her words.", name="Anna")
    text = '<speak>The cat sat. <voice name="Anna">The mat sat.</voice> <voice name="ada">It sat.</voice></speak>'
    synthesizer.speak(text, "emma", voices={"Anna": anna})
    assert [len(prompt.prefix_tokens) > 0 for prompt in synthesizer.session.engine.prompts] == [False, True, False]
    with pytest.raises(VoiceError, match="expected Anna, or one of the packaged voices"):
        synthesizer.speak(text.replace("ada", "bert"), "emma", voices={"Anna": anna})


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
    assert {chunk.warning for chunk in chunks} == {
        None,
        "these SSML elements are not honored, only their text is read: emphasis",
    }
