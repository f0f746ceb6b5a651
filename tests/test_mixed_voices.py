"""Voices between others, and the identity of one voice with the style of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from marstts.audio import Waveform
from marstts.cli.main import app
from marstts.errors import VoiceError
from marstts.server.app import create_app
from marstts.server.settings import ServeSettings
from marstts.synthesis.clone.voice_folder import own_voices
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice, mix_voices, with_style_of
from scripted import good, scripted_synthesizer


@pytest.fixture
def tts() -> Synthesizer:
    return scripted_synthesizer(good)


def two(tts: Synthesizer, reference: Waveform) -> tuple[Voice, Voice]:
    one = replace(tts.clone(reference, "Her words."), name="one", consent="she agreed")
    moved = {role: np.float32(3.0 * values[::-1]) for role, values in one.embeddings.items()}
    return one, replace(one, name="two", embeddings=moved, consent="he agreed")


def test_a_mix_is_nearer_to_the_voice_with_the_larger_share(tts: Synthesizer, reference: Waveform):
    one, other = two(tts, reference)
    mixed = mix_voices([(one, 0.75), (other, 0.25)], "both")
    for role, values in mixed.embeddings.items():
        mean = 0.75 * one.embeddings[role] + 0.25 * other.embeddings[role]
        np.testing.assert_allclose(values / np.linalg.norm(values), mean / np.linalg.norm(mean), rtol=1e-5)
        lengths = [np.linalg.norm(voice.embeddings[role]) for voice in (one, other)]
        assert np.linalg.norm(values) == pytest.approx(0.75 * lengths[0] + 0.25 * lengths[1], rel=1e-5)
    assert (mixed.name, mixed.prefix, mixed.reference) == ("both", None, b"")
    assert mixed.consent == "she agreed; he agreed" and mixed.source_sha256 != one.source_sha256
    assert tts.speak("The cat sat.", mixed).seconds > 0.5
    same = mix_voices([(one, 3), (other, 1)], "both")
    np.testing.assert_allclose(same.embeddings["style"], mixed.embeddings["style"], rtol=1e-5)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, -1.0), (1.0, float("nan")), (1.0,)])
def test_impossible_mixes_are_refused(tts: Synthesizer, reference: Waveform, weights: tuple[float, ...]):
    with pytest.raises(VoiceError, match="mix"):
        mix_voices(list(zip(two(tts, reference), weights, strict=False)), "both")


def test_voices_of_other_encoders_are_not_mixed(tts: Synthesizer, reference: Waveform):
    one, other = two(tts, reference)
    foreign = replace(other, encoders={**other.encoders, "style": "another"})
    for act in (lambda: mix_voices([(one, 1), (foreign, 1)], "both"), lambda: with_style_of(one, foreign)):
        with pytest.raises(VoiceError, match="one model"):
            act()


def test_a_voice_speaks_in_the_style_of_another(tts: Synthesizer, reference: Waveform):
    one, other = two(tts, reference)
    styled = with_style_of(one, other)
    np.testing.assert_array_equal(styled.embeddings["identity"], one.embeddings["identity"])
    np.testing.assert_array_equal(styled.embeddings["style"], other.embeddings["style"])
    assert styled.prefix is None and "in the style of two" in styled.name
    spoken, expected = tts.speak("The cat sat.", one, style_of=other), tts.speak("The cat sat.", styled)
    np.testing.assert_array_equal(spoken.samples, expected.samples)


def test_the_command_mixes_voices_and_speaks_in_another_style(
    reference_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("marstts.cli.voice.load", lambda model: scripted_synthesizer(good))
    monkeypatch.setattr("marstts.cli.speak.load", lambda *how: scripted_synthesizer(good))
    monkeypatch.chdir(tmp_path)
    scripted_synthesizer(good).clone(reference_file, name="me").save("me.voice")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "shallow voice" in run("voice", "mix", "ada:0.6", "me.voice:0.4", "--name", "both", "--output", "b.voice")
    assert Voice.load("b.voice").name == "both"
    run("voice", "mix", "ada", "ross:2", "--name", "third")
    assert "third" in own_voices()
    run("speak", "Hi there.", "--voice", "third", "--style-of", str(reference_file), "--output", "a.wav")
    assert Path("a.wav").stat().st_size > 1000
    refused = CliRunner().invoke(app, ["voice", "mix", "ada:0.6", "ross:-1", "--name", "x"])
    assert refused.exit_code == 2 and "positive" in refused.stderr


def test_the_server_mixes_voices(tts: Synthesizer, tmp_path: Path):
    with TestClient(create_app(tts, ServeSettings(voices_folder=tmp_path / "voices"))) as client:
        body = {"name": "both", "voices": {"ada": 0.6, "ross": 0.4}}
        mixed = client.post("/v1/audio/voices/mix", json=body)
        assert mixed.status_code == 200, mixed.text
        speech = {"input": "Hello there.", "voice": mixed.json()["id"], "response_format": "pcm"}
        assert len(client.post("/v1/audio/speech", json=speech).content) > 1000
        for wrong in ({**body, "voices": {"ada": 1}}, {**body, "name": "x", "voices": {"ada": 1, "nobody": 1}}, body):
            assert client.post("/v1/audio/voices/mix", json=wrong).status_code in (400, 409)
