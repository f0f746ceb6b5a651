"""Sentences in order: the samples, words and warnings of `Synthesizer.speak`, without all of them in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.cli import speak as command
from marstts.cli.speak import speak_whole
from marstts.errors import ConfigError, TextError
from marstts.files import partial_path
from marstts.synthesis import in_order
from marstts.synthesis.continuation import Continuation
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer
from scripted import CODEBOOK_SIZE, LOUD, SOFT, ScriptedEngine, ScriptedTake, good, scripted_synthesizer, with_engine

SENTENCES = ["The cat sat on the mat.", "She sells sea shells, all day long, there.", "It rained.", "Who was it?"]
TEXT = " ".join(SENTENCES * 10)


class DrawingEngine(ScriptedEngine):
    """An engine whose number of patches depends on the prompt alone; codes are random."""

    def next_logits(self, state: Any, tokens: np.ndarray) -> Any:
        logits, state = super().next_logits(state, tokens)
        logits[logits[:, -1] < 0, 8:CODEBOOK_SIZE] = 0.0
        return logits, state


def drawing() -> Synthesizer:
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(10 + len(prompt.text_ids) % 9))
    return with_engine(tts, DrawingEngine(tts.engine.script, tts.engine.layout))


class Louder:
    """A codec whose audio lies beyond ±1."""

    def __init__(self, codec: Any) -> None:
        self.codec, self.spec, self.lookahead_patches = codec, codec.spec, codec.lookahead_patches

    def decode(self, *arguments: Any) -> Waveform:
        decoded = self.codec.decode(*arguments)
        return Waveform(decoded.samples * np.float32(7.0), decoded.sample_rate)


@pytest.mark.parametrize(
    ("continuation", "takes"),
    [
        (Continuation.NONE, 1),
        (Continuation.FIXED_REFERENCE, 1),
        pytest.param(Continuation.FIXED_REFERENCE, 2, marks=pytest.mark.slow),
        pytest.param(Continuation.PER_CHUNK, 1, marks=pytest.mark.slow),
    ],
)
def test_the_file_is_that_of_the_whole(reference: Waveform, tmp_path: Path, continuation: Continuation, takes: int):
    tts = drawing()
    choices: dict[str, Any] = {"seed": 3, "top_p": 1.0, "continuation": continuation, "takes": takes, "speed": 1.0}
    voice, text = tts.clone(reference, "Her words."), " ".join(SENTENCES * 2) + " 🙂 [pause:0.7s] Ja! [pause:2s]"
    whole = tts.speak(text, voice, **choices)
    written = speak_whole(tts, text, voice, str(tmp_path / "a.wav"), None, **choices)
    assert (tmp_path / "a.wav").read_bytes() == whole.wav_bytes()
    assert without_times(written.report()) == without_times(whole.report())
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".wav"] == ["a.wav"]


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key not in ("compute_seconds", "first_audio_seconds")}


@pytest.mark.slow
@pytest.mark.parametrize(("takes", "speed"), [(1, 1.0), (2, 1.2)])
def test_the_packaged_model_writes_the_bytes_and_words_of_the_whole(tmp_path: Path, takes: int, speed: float):
    tts = load("mini")
    voice, output, words = tts.open_voice(), tmp_path / "a.wav", tmp_path / "a.json"
    choices: dict[str, Any] = {"seed": 1, "top_p": None, "continuation": Continuation.FIXED_REFERENCE}
    text = "The cat sat on the mat. She sells 12 sea shells, does she not? It rained."
    whole = tts.speak(text, voice, takes=takes, speed=speed, **choices)
    whole.save_words(tmp_path / "whole.json")
    written = speak_whole(tts, text, voice, str(output), str(words), takes=takes, speed=speed, **choices)
    assert output.read_bytes() == whole.wav_bytes()
    assert words.read_bytes() == (tmp_path / "whole.json").read_bytes() and written.words == whole.words
    assert without_times(written.report()) == without_times(whole.report())


@pytest.mark.parametrize("held", [1, 2**24])
def test_a_peak_beyond_full_scale_makes_all_of_the_file_quieter(
    reference: Waveform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
):
    monkeypatch.setattr("marstts.audio.writer.MAX_HELD_BYTES", held)
    tts, voice = drawing(), drawing().clone(reference)
    tts = replace(tts, codec=Louder(tts.codec))
    whole = tts.speak(TEXT[:140], voice)
    assert np.abs(whole.samples).max() == 1.0
    speak_whole(tts, TEXT[:140], voice, str(tmp_path / "a.wav"), None, seed=0)
    assert (tmp_path / "a.wav").read_bytes() == whole.wav_bytes()


def test_a_sentence_comes_before_the_text_is_read(reference: Waveform):
    tts = scripted_synthesizer(good)
    seen: list[tuple[int, int]] = []
    text = "The cat sat on the mat. " * 1000
    sentences = tts.speak_in_order(text, tts.clone(reference), on_take=lambda take, *counts: seen.append(counts))
    assert next(sentences).take.text == "The cat sat on the mat."
    num_started = len(tts.engine.prompts)
    sentences.close()
    assert num_started <= in_order.MAX_AHEAD
    assert seen[0][0] == 1 and seen[0][1] == pytest.approx(1000, rel=0.1)


def test_few_sentences_wait_for_one_that_is_sampled_again(reference: Waveform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(in_order, "MAX_AHEAD", 12)
    lengths = iter([2, 2, 2])  # too short

    def script(attempt: int, prompt: Any) -> ScriptedTake:
        is_first = bytes(prompt.text_ids.astype(np.uint8)).endswith(b"the first one.")
        return ScriptedTake(next(lengths, 20) if is_first else 4 + attempt % 2, LOUD if is_first else SOFT)

    tts = scripted_synthesizer(script)
    done: list[str] = []
    text = "It was the first one. " + "Go. " * 60
    sentences = tts.speak_in_order(text, tts.clone(reference), on_take=lambda take, *_: done.append(take.text))
    first = next(sentences)
    assert first.take.text == "It was the first one." and first.take.attempts == 4
    assert len(done) <= 12
    rest = [sentence.take.text for sentence in sentences]
    assert rest == ["Go."] * 60 and len(done) == 61


def test_errors_come_before_a_file_is_begun(reference: Waveform, tmp_path: Path):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference)
    for text, options, kind in (
        ("🙂", {}, TextError),
        ("Hi.", {"takes": 0}, ConfigError),
        ("Hi.", {"speed": 9}, ConfigError),
    ):
        with pytest.raises(kind):
            speak_whole(tts, text, voice, str(tmp_path / "a.wav"), None, **{"seed": 0, **options})
    assert [path.name for path in tmp_path.iterdir()] == []


def test_an_interrupt_keeps_what_was_spoken_and_the_older_file(
    reference: Waveform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, tts = tmp_path / "a.wav", scripted_synthesizer(good)
    path.write_bytes(b"old")
    real = command.write_sentences

    def interrupted(sentences: Any, *arguments: Any, **options: Any) -> Any:
        def first_three() -> Any:
            for _ in range(3):
                yield next(sentences)
            raise KeyboardInterrupt

        return real(first_three(), *arguments, **options)

    monkeypatch.setattr(command, "write_sentences", interrupted)
    with pytest.raises(KeyboardInterrupt):
        speak_whole(tts, TEXT, tts.clone(reference), str(path), None, seed=0)
    assert path.read_bytes() == b"old"
    assert 3 * 1.5 * 48_000 < partial_path(path).stat().st_size < 3 * 2.2 * 48_000


@pytest.mark.slow
def test_the_memory_of_a_written_text_does_not_grow_with_it(
    reference: Waveform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("marstts.audio.writer.MAX_HELD_BYTES", 1)
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference)

    def peak(sentences: int) -> tuple[int, float]:
        tracemalloc.start()
        text = "The cat sat on the mat. " * sentences
        written = speak_whole(tts, text, voice, str(tmp_path / "a.wav"), None, seed=0)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used, written.seconds

    peak(2)
    (short, _), (long, seconds) = peak(40), peak(100)
    assert long - short < seconds * 24_000 * 4 / 10, f"{short} bytes for 40 sentences, {long} for 100 ({seconds:.0f} s)"
