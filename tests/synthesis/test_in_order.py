"""Sentences in order: the samples, words and warnings of `Synthesizer.speak`, without all of them in memory."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from marstts.audio import Waveform, encode
from marstts.cli import speak as command
from marstts.cli.speak import speak_whole
from marstts.errors import ConfigError, TextError
from marstts.io.files import partial_path
from marstts.synthesis import synthesizer
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.speech import Continuation
from marstts.synthesis.synthesizer import Synthesizer
from scripted import (
    CODEBOOK_SIZE,
    ENDLESS,
    ScriptedEngine,
    ScriptedTake,
    good,
    scripted_synthesizer,
    with_engine,
    with_parts,
)

pytestmark = pytest.mark.slow

SENTENCES = ["The cat sat on the mat.", "She sells sea shells, all day long, there.", "It rained.", "Who was it?"]
TEXT = " ".join(SENTENCES * 10)


class DrawingEngine(ScriptedEngine):
    """An engine whose number of patches depends on the prompt alone; codes are random."""

    def next_logits(self, state: Any, tokens: np.ndarray) -> Any:
        logits, state = super().next_logits(state, tokens)
        logits[logits[:, -1] < 0, 8:CODEBOOK_SIZE] = 0.0
        return logits, state


@dataclass
class CountingEngine(ScriptedEngine):
    """An engine that counts the rows of every patch."""

    rows: list[int] = field(default_factory=list)

    def append(self, state: Any, patches: np.ndarray) -> Any:
        self.rows.append(len(patches))
        return super().append(state, patches)


def drawing() -> Synthesizer:
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(10 + len(prompt.text_ids) % 9))
    return with_engine(tts, DrawingEngine(tts.session.engine.script, tts.session.engine.layout))


class Louder:
    """A codec whose audio lies beyond ±1."""

    def __init__(self, codec: Any) -> None:
        self.codec, self.spec, self.lookahead_patches = codec, codec.spec, codec.lookahead_patches

    def decode(self, *arguments: Any) -> Waveform:
        decoded = self.codec.decode(*arguments)
        return Waveform(decoded.samples * np.float32(7.0), decoded.sample_rate)


@pytest.mark.parametrize("continuation", Continuation)
def test_the_file_is_that_of_the_whole(reference: Waveform, tmp_path: Path, continuation: Continuation):
    tts = drawing()
    choices: dict[str, Any] = {"seed": 3, "top_p": 1.0, "continuation": continuation, "speed": 1.0}
    voice, text = tts.clone(reference, "Her words."), " ".join(SENTENCES) + " 🙂 [pause:0.7s] Ja! [pause:2s]"
    whole = tts.speak(text, voice, **choices)
    written = speak_whole(tts, text, Speaking(voice=voice, **choices), str(tmp_path / "a.wav"), None)
    assert (tmp_path / "a.wav").read_bytes() == whole.wav_bytes()
    assert without_times(written.report()) == without_times(whole.report())
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".wav"] == ["a.wav"]


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key not in ("compute_seconds", "first_audio_seconds")}


@pytest.mark.parametrize("speed", [1.0, 1.2])
def test_the_packaged_model_writes_the_bytes_and_words_of_the_whole(mini: Synthesizer, tmp_path: Path, speed: float):
    tts = mini
    voice, output, words = tts.open_voice(), tmp_path / "a.wav", tmp_path / "a.json"
    choices: dict[str, Any] = {"seed": 1, "top_p": None, "continuation": Continuation.FIXED_REFERENCE}
    text = "Good morning. He paid 5 dollars. It rained."
    whole = tts.speak(text, voice, speed=speed, **choices)
    whole.save_words(tmp_path / "whole.json")
    written = speak_whole(tts, text, Speaking(voice=voice, speed=speed, **choices), str(output), str(words))
    assert output.read_bytes() == whole.wav_bytes()
    assert words.read_bytes() == (tmp_path / "whole.json").read_bytes() and written.words == whole.words
    assert without_times(written.report()) == without_times(whole.report())


def test_audio_beyond_full_scale_is_limited_in_the_file_as_in_the_whole(reference: Waveform, tmp_path: Path):
    tts, voice = drawing(), drawing().clone(reference)
    tts = with_parts(tts, codec=Louder(tts.session.codec))
    whole = tts.speak(TEXT[:140], voice)
    assert 0.99 < np.abs(whole.samples).max() <= 1.0
    speak_whole(tts, TEXT[:140], Speaking(voice=voice), str(tmp_path / "a.wav"), None)
    assert (tmp_path / "a.wav").read_bytes() == whole.wav_bytes()


def test_a_batch_stays_full_while_a_sentence_is_sampled_again(reference: Waveform, monkeypatch: pytest.MonkeyPatch):
    batch, ahead = 4, 4 * synthesizer.MAX_AHEAD // synthesizer.DEFAULT_BATCH
    monkeypatch.setattr(synthesizer, "DEFAULT_BATCH", batch)
    monkeypatch.setattr(synthesizer, "MAX_AHEAD", ahead)

    def script(attempt: int, prompt: Any) -> ScriptedTake:
        return ScriptedTake(ENDLESS if prompt.text == "Who?" else 18)

    tts = scripted_synthesizer(script)
    tts = with_engine(tts, CountingEngine(script, tts.session.engine.layout))
    sentences = tts.stream(f"Who? {'It rained. ' * 50}", tts.clone(reference), sentences=True)
    assert next(sentences).take.attempts == tts.session.backoff.attempts
    sentences.close()
    assert np.mean(tts.session.engine.rows) > 0.8 * batch


def test_a_sentence_comes_before_the_text_is_read(reference: Waveform):
    tts = scripted_synthesizer(good)
    seen: list[tuple[int, int]] = []
    text = "The cat sat on the mat. " * 1000
    sentences = tts.stream(
        text, tts.clone(reference), on_take=lambda take, *counts: seen.append(counts), sentences=True
    )
    assert next(sentences).take.text == "The cat sat on the mat."
    num_started = len(tts.session.engine.prompts)
    sentences.close()
    assert num_started <= synthesizer.MAX_AHEAD
    assert seen[0][0] == 1 and seen[0][1] == pytest.approx(1000, rel=0.1)


def test_errors_come_before_a_file_is_begun(reference: Waveform, tmp_path: Path):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference)
    for text, options, kind in (
        ("🙂", {}, TextError),
        ("Hi.", {"top_p": 2.0}, ConfigError),
        ("Hi.", {"speed": 9}, ConfigError),
    ):
        with pytest.raises(kind):
            speak_whole(tts, text, Speaking(voice=voice, **options), str(tmp_path / "a.wav"), None)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_an_interrupt_keeps_what_was_spoken_and_the_older_file(
    reference: Waveform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, tts = tmp_path / "a.wav", scripted_synthesizer(good)
    path.write_bytes(b"old")
    real = command.play_through

    def interrupted(sentences: Any, *arguments: Any, **options: Any) -> Any:
        def first_three() -> Any:
            for _ in range(3):
                yield next(sentences)
            raise KeyboardInterrupt

        return real(first_three(), *arguments, **options)

    monkeypatch.setattr(command, "play_through", interrupted)
    with pytest.raises(KeyboardInterrupt):
        speak_whole(tts, TEXT, Speaking(voice=tts.clone(reference)), str(path), None)
    assert path.read_bytes() == b"old"
    assert 3 * 1.5 * 48_000 < partial_path(path).stat().st_size < 3 * 2.2 * 48_000


SSML = (
    "<speak>The cat sat. It rained. <voice name='ada'>She <emphasis>sells</emphasis> shells. Who was it?</voice>"
    "<break time='1s'/> <prosody rate='fast'>It rained, all day long.</prosody> The cat sat on the mat.</speak>"
)


@pytest.mark.parametrize("continuation", [Continuation.FIXED_REFERENCE, Continuation.PER_CHUNK])
def test_parts_of_another_voice_or_rate_are_those_of_the_whole(
    reference: Waveform, tmp_path: Path, continuation: Continuation
):
    pytest.importorskip("av")
    tts = drawing()
    choices: dict[str, Any] = {"seed": 3, "top_p": 1.0, "continuation": continuation, "speed": 1.0}
    voice = tts.clone(reference, "Her words.")
    whole = tts.speak(SSML, voice, **choices)
    written = speak_whole(tts, SSML, Speaking(voice=voice, **choices), str(tmp_path / "a.wav"), None)
    assert (tmp_path / "a.wav").read_bytes() == whole.wav_bytes()
    assert without_times(written.report()) == without_times(whole.report())
    assert (
        written.warnings == ("these SSML elements are not honored, only their text is read: emphasis",)
        and len(written.takes) == 6
    )


@pytest.mark.parametrize("held", [1, 2**24])
@pytest.mark.parametrize("suffix", [None, ".wav", ".flac"])
def test_a_pipe_gets_the_file_of_the_whole(
    suffix: str | None, held: int, reference: Waveform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("marstts.audio.writer.MAX_HELD_BYTES", held)
    tts, voice, text = drawing(), drawing().clone(reference), " ".join(SENTENCES[:2])
    tts = with_parts(tts, codec=Louder(tts.session.codec))
    arrived = tmp_path / "arrived"
    with arrived.open("wb") as file:
        if suffix is None:
            monkeypatch.setattr("marstts.cli.streaming.sys.stdout", SimpleNamespace(buffer=file))
            written = speak_whole(tts, text, Speaking(voice=voice), "-", None)
        else:
            os.mkfifo(pipe := tmp_path / f"pipe{suffix}")
            reader = subprocess.Popen(["cat", str(pipe)], stdout=file)
            try:
                descriptor = os.open(pipe, os.O_WRONLY)  # waits for the reader
                written = speak_whole(tts, text, Speaking(voice=voice), str(pipe), None)
                os.close(descriptor)
                reader.wait(timeout=20)
            finally:
                reader.kill()
    whole = tts.speak(text, voice)
    assert arrived.read_bytes() == encode(whole.waveform, suffix or ".wav")
    assert without_times(written.report()) == without_times(whole.report())
