"""Text that is spoken while it is still being written."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import TextError
from marstts.synthesis.speech import Chunk, Continuation
from marstts.text.segments import Pauses
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow

TEXTS = [
    "The cat sat on the mat. Dr. Smith sells 3.5 shells.",
    "[pause:0.3s] Steps:\n\n1. Wash it.\n2. Boil it.\n\nWho? [pause:0.7s] She. [pause:2s]",
    "# Title\n\nHello. You.\n\n* * *\n\nGo.\n- a cat\n- a dog\n\nThe end",
    "<think>What? Who.</think>Hello there. <i>You.</i> Go <break time='0.4s'/> on.",
    "<speak>Hi there. <break time='1s'/> <prosody rate='120%'>You.</prosody> Go.</speak>",
    "A cat. [voice:ross] A dog. [voice:default] 🙂 A bird,\n\n\n[pause:1s]\n\nBye",
    "“You came late,” he said. “Did I?” she asked.",
]


def pieces_of(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def samples_of(chunks: Sequence[Chunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in chunks])


@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("text", TEXTS)
def test_the_audio_is_that_of_the_whole_text(reference: Waveform, text: str, size: int, sentences: bool):
    tts = scripted_synthesizer(good)
    how: dict[str, Any] = {"seed": 3, "pauses": Pauses(end=0.4, paragraph=1.1), "sentences": sentences}
    whole = list(tts.stream(text, tts.clone(reference), **how))
    chunks = list(tts.stream(pieces_of(text, size), tts.clone(reference), **how))
    np.testing.assert_array_equal(samples_of(chunks), samples_of(whole))
    assert [chunk.text for chunk in chunks if chunk.take] == [chunk.text for chunk in whole if chunk.take]
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    left_out = next((chunk.text_warning for chunk in whole if chunk.text_warning), None)
    assert chunks[-1].take is None and chunks[-1].warning == left_out


@pytest.mark.parametrize("how", [{"continuation": Continuation.PER_CHUNK}, {"dialogue": "emma"}, {"speed": 1.2}])
def test_every_setting_holds_for_text_in_pieces(reference: Waveform, how: dict[str, Any]):
    tts, text = scripted_synthesizer(good), TEXTS[-1]
    voice = tts.clone(reference, "Her words.")
    whole, chunks = (list(tts.stream(given, voice, **how)) for given in (text, pieces_of(text, 5)))
    np.testing.assert_array_equal(samples_of(chunks), samples_of(whole))


def test_a_sentence_is_spoken_while_the_next_one_is_written(reference: Waveform):
    tts, may_go_on = scripted_synthesizer(good), threading.Event()

    def write() -> Iterator[str]:
        yield "The cat sat on the mat. It rained all day and all"
        assert may_go_on.wait(20), "the first sentence was not spoken"
        yield " night."

    chunks = tts.stream(write(), tts.clone(reference))
    said = []
    for chunk in chunks:
        said.append(chunk.written)
        if chunk.take is not None:
            may_go_on.set()
    assert [written for written in dict.fromkeys(said) if written] == [
        "The cat sat on the mat.",
        "It rained all day and all night.",
    ]


def test_sentences_that_were_spoken_are_passed_over(reference: Waveform):
    tts, text = scripted_synthesizer(good), TEXTS[1]
    whole, rest = (
        list(tts.stream(given, tts.clone(reference), sentences=True, start=2)) for given in (text, pieces_of(text, 4))
    )
    np.testing.assert_array_equal(samples_of(rest), samples_of(whole))


def test_an_error_of_the_writer_ends_the_speech(reference: Waveform):
    def write() -> Iterator[str]:
        yield "The cat sat on the mat. It rained. "
        raise ConnectionError("the chat model has left")

    tts, heard = scripted_synthesizer(good), []
    with pytest.raises(ConnectionError, match="has left"):
        heard += tts.stream(write(), tts.clone(reference))


@pytest.mark.parametrize(("pieces", "match"), [([" ", "🙂"], "nothing to speak"), ([1, 2], "pieces"), ([], "nothing")])
def test_pieces_without_words_are_refused_in_a_sentence(reference: Waveform, pieces: list[Any], match: str):
    tts = scripted_synthesizer(good)
    for given in (iter(pieces), pieces):
        with pytest.raises(TextError, match=match):
            list(tts.stream(given, tts.clone(reference)))
    with pytest.raises(TextError, match=match):
        tts.speak(iter(pieces), tts.clone(reference))


def test_pieces_are_joined_where_nothing_can_be_heard_before_the_end(reference: Waveform):
    tts = scripted_synthesizer(good)
    voice, whole = tts.clone(reference), tts.speak(TEXTS[0], tts.clone(reference))
    np.testing.assert_array_equal(tts.speak(pieces_of(TEXTS[0], 3), voice).samples, whole.samples)
    [result] = tts.speak_many([pieces_of(TEXTS[0], 3)], voice)
    assert result.text == TEXTS[0] and result.speech is not None
    np.testing.assert_array_equal(result.speech.samples, whole.samples)


def test_what_is_called_before_a_sentence_may_end_the_speech(reference: Waveform):
    def refuse(segment: Any) -> None:
        if "mat" not in segment.text:
            raise TextError(f"not {segment.text}")

    tts, heard = scripted_synthesizer(good), []
    with pytest.raises(TextError, match="not Doctor Smith"):
        heard += tts.stream(iter([TEXTS[0]]), tts.clone(reference), on_sentence=refuse)
