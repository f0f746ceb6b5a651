"""Attempts at, and repair of sentences whose words a scripted model gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import marstts
from marstts.audio import Waveform
from marstts.generation.request import StopReason
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.repair import DIVIDED, OTHER_SEED, divide
from marstts.synthesis.sentence import Attempt
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.speech import Take
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.segments import Segment
from scripted import (
    LOUD,
    SILENT,
    Rows,
    ScriptedEngine,
    ScriptedModel,
    ScriptedPrompt,
    ScriptedTake,
    good,
    scripted_synthesizer,
    with_parts,
)

pytestmark = pytest.mark.slow

TEXT = "the cat sat on the mat, and she sells sea shells there."
SEED_ATTEMPTS = BackoffConfig().attempts


@dataclass(frozen=True)
class ReadTake(ScriptedTake):
    """A take that says which token each step attends to; the last one from then on."""

    tokens: tuple[int, ...] = ()
    width: int = 0


@dataclass
class ReadingEngine(ScriptedEngine):
    """A scripted engine with attention."""

    def next_logits(self, state: Rows, tokens: np.ndarray) -> tuple[np.ndarray, Rows]:
        """Loud codes, other ones for every patch: a patch that returns would be a loop."""
        logits, state = super().next_logits(state, tokens)
        for row, step in zip(logits, state.num_generated, strict=True):
            if row.argmax() == LOUD:
                row[40 + np.random.default_rng((step, tokens.shape[1])).integers(8)] = 1.0
        return logits, state

    def text_attention(self, state: Rows) -> np.ndarray:
        attention = np.zeros((len(state.takes), max(take.width for take in state.takes)), np.float32)
        for row, take, step in zip(attention, state.takes, state.num_generated, strict=True):
            row[take.tokens[min(step, len(take.tokens) - 1)]] = 1.0
        return attention


def sound(prompt: Any, first: int = 0) -> ReadTake:
    """Read from token `first` to the end, a token a step."""
    width = len(prompt.text) + 2  # with a start and an end mark
    return ReadTake(width - first, LOUD, tuple(range(first, width)), width)


def without_middle(prompt: Any) -> ReadTake:
    """Pass over the middle of the text, a whole word at least."""
    width = len(prompt.text) + 2  # with a start and an end mark
    kept = tuple(token for token in range(width) if not width // 3 <= token < 3 * width // 4)
    return ReadTake(len(kept), LOUD, kept, width)


class ReadingModel(ScriptedModel):
    """A scripted model whose tokens are characters, between two marks."""

    def text_spans(self, prompt: ScriptedPrompt) -> np.ndarray:
        places = np.arange(len(prompt.text))
        return np.pad(np.stack([places, places + 1], axis=1), ((1, 1), (0, 0)), constant_values=-1)


def reader(script: Callable[[int, Any], ReadTake]) -> Synthesizer:
    tts = scripted_synthesizer(script)
    layout = tts.session.model.engine.layout
    return with_parts(tts, model=ReadingModel(ReadingEngine(script, layout), layout))


def speak(script: Callable[[int, Any], ReadTake], reference, text: str = TEXT, **options):
    tts = reader(script)
    return tts.speak(text, tts.clone(reference), **options), tts.session.model.engine


def test_a_take_that_reads_everything_is_kept_at_once(reference):
    speech, engine = speak(lambda attempt, prompt: sound(prompt), reference)
    assert len(engine.prompts) == 1 and speech.takes[0].flaws == ()
    assert " ".join(word.written for word in speech.words) == TEXT


def test_a_skipped_word_is_sampled_again(reference):
    speech, engine = speak(lambda attempt, prompt: sound(prompt) if attempt else without_middle(prompt), reference)
    assert len(engine.prompts) == 2 and speech.takes[0].attempts == 2 and speech.warnings == ()


def continues_from_prefix(tts: Synthesizer, reference, text: str, *rejected: Take) -> bool:
    """Whether an attempt at a sentence by a deep clone continues from its prefix."""
    deep = scripted_synthesizer(good).clone(reference, "Her words.")
    attempt = Attempt(segment=Segment(text=text), top_p=0.2, seed=(0, 0, 0), rejected=rejected)
    return (
        len((tts.session.as_in_paper() if tts.usual.paper else tts.session).request(attempt, deep).prompt.prefix_tokens)
        > 0
    )


@pytest.mark.parametrize("text", ["Yes.", "Tomorrow!", '"Why?"'])
def test_a_word_alone_does_not_continue_from_a_prefix(reference, text: str):
    tts = reader(lambda attempt, prompt: sound(prompt))
    assert not continues_from_prefix(tts, reference, text)
    assert continues_from_prefix(tts, reference, f"{text} The cat sat.")


@pytest.mark.parametrize("text", ["Oh no.", "I do not know.", "She left at noon, they say."])
def test_a_sentence_whose_take_was_too_short_does_not_continue_from_the_prefix_again(reference, text: str):
    tts = reader(lambda attempt, prompt: sound(prompt))
    [take] = tts.speak(text, tts.clone(reference)).takes
    short = replace(take, waveform=Waveform(take.waveform.samples[:100], take.waveform.sample_rate))
    assert continues_from_prefix(tts, reference, text, take)
    assert not continues_from_prefix(tts, reference, text, take, short)


def test_a_sentence_that_stays_flawed_is_spoken_with_another_seed(reference):
    def script(attempt: int, prompt: Any) -> ReadTake:
        return sound(prompt) if attempt >= SEED_ATTEMPTS else without_middle(prompt)

    [take] = speak(script, reference)[0].takes
    assert take.repaired == OTHER_SEED and take.warning is None and take.attempts == SEED_ATTEMPTS + 1


def test_then_it_is_divided_and_the_parts_are_joined(reference):
    def script(attempt: int, prompt: Any) -> ReadTake:
        return without_middle(prompt) if len(prompt.text) > 40 else sound(prompt)

    speech, _ = speak(script, reference)
    [take] = speech.takes
    assert take.repaired == DIVIDED and take.flaws == () and speech.warnings == ()
    assert " ".join(word.written for word in take.words) == TEXT and take.text == TEXT
    assert [word.start for word in take.words] == sorted(word.start for word in take.words)
    assert take.words[-1].end <= take.seconds


def test_only_the_flawed_sentence_of_a_text_is_repaired(reference):
    def script(attempt: int, prompt: Any) -> ReadTake:
        return without_middle(prompt) if len(prompt.text) > 40 else sound(prompt)

    before, flawed = speak(script, reference, "she sells sea shells. " + TEXT)[0].takes
    assert before.attempts == 1 and before.repaired is None and flawed.repaired == DIVIDED


def test_sound_after_the_last_word_is_cut_off(reference):
    def script(attempt: int, prompt: Any) -> ReadTake:
        return replace(sound(prompt), patches=200)

    [take] = speak(script, reference)[0].takes
    assert take.stop is StopReason.WORDS_DONE and take.warning is None
    assert take.attempts == 1 and len(take.codes[0]) < 70


def test_parts_are_the_sentence():
    parts = divide(Segment(text=TEXT))
    assert " ".join(part.text for part in parts) == TEXT and len(parts) == 2
    assert [part.text for part in divide(Segment(text="the cat sat."))] == ["the cat sat."]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("No, no, no.", ["No,", "no,", "no."]),
        ("Yes! Yes! Yes, yes!", ["Yes!", "Yes!", "Yes,", "yes!"]),
        ("Come on, come on!", ["Come on,", "come on!"]),
        ("Wait... wait.", ["Wait...", "wait."]),
    ],
)
def test_a_clause_that_is_repeated_is_a_part_each_time(text: str, clauses: list[str]):
    assert [part.text for part in divide(Segment(text=text))] == clauses


@pytest.mark.parametrize("text", ["No, yes.", "no no no", "No.", "?!", "Oh no, no.", "No, no, no and no."])
def test_short_sentences_of_other_clauses_stay_whole(text: str):
    assert [part.text for part in divide(Segment(text=text))] == [text]


def test_a_clause_that_is_repeated_often_does_not_make_many_parts():
    assert len(divide(Segment(text="a, " * 50 + "a."))) < 5


def test_all_times_of_a_repeated_word_are_spoken_where_takes_leave_some_out(reference):
    text = "no, no, no."

    def script(attempt: int, prompt: Any) -> ReadTake:
        return replace(without_middle(prompt), patches=30) if prompt.text == text else sound(prompt)

    speech, _ = speak(script, reference, text)
    [take] = speech.takes
    assert take.repaired == DIVIDED and take.flaws == () and speech.warnings == ()
    assert " ".join(word.written for word in take.words) == text and take.text == text


def flawed(attempt: int, prompt: Any) -> ReadTake:
    """Say a part of a sentence of some length only, whatever the seed, and be as long as it takes."""
    return replace(without_middle(prompt), patches=30) if len(prompt.text) > 40 else sound(prompt)


def as_in_paper(script: Callable[[int, Any], ReadTake]) -> Synthesizer:
    return replace(reader(script), usual=Speaking(paper=True))


def test_as_in_the_paper_no_take_is_refused_by_its_words_and_no_sentence_divided(reference):
    speech, engine = speak(flawed, reference)
    assert speech.takes[0].repaired == DIVIDED and len(engine.prompts) > SEED_ATTEMPTS
    tts = as_in_paper(flawed)
    [take] = tts.speak(TEXT, tts.clone(reference)).takes
    assert (take.attempts, take.repaired, take.flaws, take.warning) == (1, None, (), None)
    assert len(tts.session.model.engine.prompts) == 1 and take.text == TEXT


@pytest.mark.parametrize("text", ["she sells sea shells, " * 12 + "and the cat sat.", TEXT])
def test_as_in_the_paper_long_sentences_stay_whole(reference, text: str):
    tts, usual = as_in_paper(lambda attempt, prompt: sound(prompt)), reader(lambda attempt, prompt: sound(prompt))
    assert [take.text for take in tts.speak(text, tts.clone(reference)).takes] == [text]
    assert len(usual.speak(text, usual.clone(reference)).takes) == (1 if text == TEXT else 2)


def test_as_in_the_paper_no_take_is_ended_by_its_words(reference):
    def script(attempt: int, prompt: Any) -> ReadTake:
        return replace(sound(prompt), patches=150)

    tts = as_in_paper(script)
    [take] = tts.speak(TEXT, tts.clone(reference)).takes
    assert take.stop is not StopReason.WORDS_DONE and take.attempts == 1 and len(take.codes[0]) > 70


@pytest.mark.parametrize("changes", [{"code": SILENT}, {"patches": 1}], ids=["silent", "short"])
def test_as_in_the_paper_takes_that_are_short_or_silent_are_sampled_again_with_a_higher_top_p(changes, reference):
    def script(attempt: int, prompt: Any) -> ReadTake:
        return replace(sound(prompt), **changes) if attempt < 2 else sound(prompt)

    tts = as_in_paper(script)
    [take] = tts.speak(TEXT, tts.clone(reference)).takes
    assert (take.attempts, take.top_p) == (3, 0.6)


def test_as_in_the_paper_every_sentence_continues_from_the_prefix(reference):
    tts = as_in_paper(lambda attempt, prompt: sound(prompt))
    [take] = tts.speak("Oh no.", tts.clone(reference)).takes
    short = replace(take, waveform=Waveform(take.waveform.samples[:100], take.waveform.sample_rate))
    assert continues_from_prefix(tts, reference, "Yes.") and continues_from_prefix(tts, reference, "Oh no.", short)


def test_streams_and_batches_speak_as_in_the_paper_too(reference):
    tts = as_in_paper(flawed)
    voice = tts.clone(reference)
    [result] = tts.speak_many([TEXT], voice)
    assert result.speech.takes[0].repaired is None and result.speech.takes[0].attempts == 1
    chunks = list(tts.stream(TEXT, voice))
    assert len(tts.session.model.engine.prompts) == 2 and not any(chunk.warning for chunk in chunks)


def test_the_style_of_a_model_has_no_offset_as_in_the_paper():
    tts = marstts.load("mini")
    voice, paper = tts.open_voice("ada"), marstts.load("mini", paper=True)
    embedding = voice.embeddings["style"]
    assert not np.allclose(tts.session.model.prompt("Yes.", voice).style, embedding)
    np.testing.assert_array_equal(paper.session.as_in_paper().model.prompt("Yes.", voice).style, embedding)
