"""The synthesizer from text and voice to speech, with a scripted model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import ConfigError, TextError, VoiceError
from marstts.generation.request import SamplingConfig, StopReason
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.incremental_decoder import StreamConfig
from marstts.synthesis.speech import Continuation
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice, average_voice
from scripted import (
    CODEBOOK_SIZE,
    ENDLESS,
    LOUD,
    SILENT,
    SOFT,
    ScriptedEngine,
    ScriptedTake,
    good,
    scripted_synthesizer,
    with_engine,
    with_parts,
)

pytestmark = pytest.mark.slow

TEXT = "The cat sat on the mat. She sells sea shells there. It was a fine day for both."


def stepper_of(synthesizer: Synthesizer) -> ScriptedEngine:
    assert isinstance(synthesizer.session.engine, ScriptedEngine)
    return synthesizer.session.engine


def prompt_texts(synthesizer: Synthesizer) -> list[str]:
    return [prompt.text for prompt in stepper_of(synthesizer).prompts]


def test_every_sentence_is_spoken_once_and_in_order(reference: Waveform):
    tts = scripted_synthesizer(good)
    speech = tts.speak(TEXT, voice=tts.clone(reference))
    assert [take.text for take in speech.takes] == [sentence + "." for sentence in TEXT[:-1].split(". ")]
    for take in speech.takes:
        assert (take.stop, take.top_p, take.attempts, take.warning) == (StopReason.EOS, 0.2, 1, None)
        assert take.seconds == pytest.approx(20 * 2048 / 24_000, abs=0.1)
    assert speech.seconds > sum(take.seconds for take in speech.takes)
    assert speech.warnings == () and speech.model == "scripted"
    assert 0 < speech.first_audio_seconds < speech.compute_seconds
    assert np.abs(speech.samples).max() <= 1.0


def test_a_short_take_is_sampled_again_with_a_higher_top_p(reference: Waveform):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(20 if attempt == 2 else 1))
    [take] = tts.speak("The cat sat on the mat.", tts.clone(reference)).takes
    assert (take.attempts, take.top_p, take.warning) == (3, 0.6, None)


def test_backoff_does_not_leak_into_the_next_sentence(reference: Waveform):
    tts = scripted_synthesizer(
        lambda attempt, prompt: ScriptedTake(1 if attempt in (0, 3) else 20)
    )  # the first of three
    speech = tts.speak(TEXT, tts.clone(reference))
    assert [(take.attempts, take.top_p) for take in speech.takes] == [(3, 0.6), (1, 0.2), (1, 0.2)]


def test_the_longest_of_short_takes_is_kept_with_a_warning(reference: Waveform):
    spoken = [2, 1, 4, 3, 1]
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(spoken[attempt]))
    speech = tts.speak("She sells sea shells on the sunny sea shore.", tts.clone(reference))
    [take] = speech.takes
    assert (take.attempts, take.top_p) == (5, 0.6)
    assert take.seconds == pytest.approx(4 * 2048 / 24_000, abs=0.1)
    assert take.warning is not None and speech.warnings == (take.warning,)


def test_a_model_that_never_stops_is_stopped(reference: Waveform):
    tts = with_parts(
        scripted_synthesizer(lambda attempt, prompt: ScriptedTake(ENDLESS)), backoff=BackoffConfig(attempts=2)
    )
    text = "The cat sat."
    [take] = tts.speak(text, tts.clone(reference)).takes
    assert take.stop is StopReason.MAX_PATCHES and take.attempts == 2
    assert len(take.codes[0]) == tts.session.backoff.limits(text, tts.session.codec.spec.patch_rate).max_patches
    assert take.warning is not None and "cut off" in take.warning


def test_a_take_that_is_too_long_is_refused_though_it_ends(reference: Waveform):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(40 if attempt == 0 else 15))
    [take] = tts.speak("The cat sat.", tts.clone(reference)).takes
    assert (len(take.codes[0]), take.attempts) == (15, 2)


class HurriedStepper(ScriptedEngine):
    """Ends as soon as it may: the first attempt in silence, later ones loud to the last patch."""

    def next_logits(self, state, tokens):
        logits, state = super().next_logits(state, tokens)
        if len(self.prompts) > 1:
            logits[logits[:, -1] == 0, LOUD] = -400.0
        return logits, state


@pytest.mark.parametrize("way", ["whole", "stream"])
def test_a_take_that_was_too_short_is_followed_by_a_longer_one(reference: Waveform, way: str):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(3))
    tts = with_engine(tts, HurriedStepper(tts.session.engine.script, tts.session.engine.layout))
    voice = tts.clone(reference)
    whole = StreamConfig(first_chunk_patches=30)
    chunks = tts.stream("The cat sat.", voice, config=whole) if way == "stream" else ()
    takes = [chunk.take for chunk in chunks if chunk.take] or tts.speak("The cat sat.", voice).takes
    allowed = tts.session.backoff.limits("The cat sat.", tts.session.codec.spec.patch_rate).min_patches
    assert [(len(take.codes[0]), take.attempts) for take in takes] == [(allowed + 1, 2)]


def test_silence_is_refused(reference: Waveform):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(20, SILENT if attempt < 1 else SOFT))
    [take] = tts.speak("The cat sat on the mat.", tts.clone(reference)).takes
    assert take.attempts == 2 and take.codes[0][0] == SOFT


def test_takes_of_a_single_silent_patch_are_reported(reference: Waveform):
    tts = with_parts(
        scripted_synthesizer(lambda attempt, prompt: ScriptedTake(0)),
        backoff=BackoffConfig(max_chars_per_second=1e6, onset_seconds=0.0),
    )
    speech = tts.speak(TEXT, tts.clone(reference))
    assert len(speech.takes) == len(speech.warnings) == 3
    assert all(len(take.codes[0]) == 1 for take in speech.takes)


class UndecidedStepper(ScriptedEngine):
    """ScriptedTake as many patches as it is reported, of whichever code is drawn."""

    def next_logits(self, state, tokens):
        logits, state = super().next_logits(state, tokens)
        logits[logits[:, -1] < 0, 8:CODEBOOK_SIZE] = 0.0
        return logits, state


def test_the_seed_decides_and_every_attempt_and_sentence_draws_anew(reference: Waveform):
    tts = scripted_synthesizer(good)
    tts = with_engine(tts, UndecidedStepper(good, tts.session.engine.layout))
    voice = tts.clone(reference)

    def codes(seed: int, top_p: float | None = 1.0) -> list[np.ndarray]:
        return [take.codes[0] for take in tts.speak(TEXT, voice, seed=seed, top_p=top_p).takes]

    first, again, other = codes(3), codes(3), codes(4)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])
    refused_once = with_engine(
        tts, UndecidedStepper(lambda n, prompt: ScriptedTake(20 if n else 1), tts.session.engine.layout)
    )
    [second_attempt] = refused_once.speak("The cat sat on the mat.", voice, seed=3, top_p=1.0).takes
    assert not np.array_equal(second_attempt.codes[0], first[0])


def test_top_p_is_that_of_the_first_attempt(reference: Waveform):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(1 if attempt == 0 else 20))
    [take] = tts.speak("The cat sat on the mat.", tts.clone(reference), top_p=0.5).takes
    assert take.top_p == 0.7
    tts = scripted_synthesizer(good)
    tts = with_parts(tts, model=replace(tts.session.model, sampling=SamplingConfig(top_p=0.35)))
    assert tts.speak("The cat sat.", tts.clone(reference)).takes[0].top_p == 0.35
    for impossible in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="top_p"):
            tts.speak("The cat sat.", tts.clone(reference), top_p=impossible)


def test_a_shallow_clone_continues_from_nothing(reference: Waveform):
    tts = scripted_synthesizer(good)
    tts.speak(TEXT, tts.clone(reference))
    assert [len(prompt.prefix_tokens) for prompt in stepper_of(tts).prompts] == [0, 0, 0]
    assert prompt_texts(tts)[1] == "She sells sea shells there."


def test_a_deep_clone_continues_every_sentence_from_its_reference(reference: Waveform):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference, "These were her words.")
    speech = tts.speak(TEXT, voice)
    patches = len(voice.prefix.codes[0])
    assert [len(prompt.prefix_tokens) for prompt in stepper_of(tts).prompts] == [patches] * 3
    assert all(text.startswith("These were her words. ") for text in prompt_texts(tts))
    assert all(len(take.codes[0]) == 20 for take in speech.takes)  # the prefix is no part of a take


def test_per_chunk_each_sentence_continues_from_the_take_before(reference: Waveform):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference, "These were her words.")
    tts.speak(TEXT, voice, continuation=Continuation.PER_CHUNK)
    prompts = stepper_of(tts).prompts
    assert [len(prompt.prefix_tokens) for prompt in prompts] == [len(voice.prefix.codes[0]), 20, 20]
    assert prompts[1].prefix_tokens[0].tolist() == [LOUD + level * CODEBOOK_SIZE for level in (0, 1, 1, 2, 2, 2, 2)]
    assert prompt_texts(tts)[1:] == [
        "The cat sat on the mat. She sells sea shells there.",
        "She sells sea shells there. It was a fine day for both.",
    ]


def test_a_flawed_take_is_never_continued_from(reference: Waveform):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(1 if attempt < 5 else 20))
    voice = tts.clone(reference, "These were her words.")
    tts.speak(TEXT, voice, continuation=Continuation.PER_CHUNK)
    prefixes = [len(prompt.prefix_tokens) for prompt in stepper_of(tts).prompts]
    assert prefixes == [len(voice.prefix.codes[0])] * 6 + [20]


def test_sentences_in_one_batch_equal_sentences_spoken_alone(reference: Waveform):
    """A text's sentences share a batch, unless each must know how the one before it came out."""
    sizes: list[int] = []

    class Counting(UndecidedStepper):
        def next_logits(self, state, tokens):
            sizes.append(len(state.takes))
            return super().next_logits(state, tokens)

    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(14 + len(prompt.text_ids) % 9))
    tts = with_engine(tts, Counting(tts.session.engine.script, tts.session.engine.layout))
    voice = tts.clone(reference)
    together = tts.speak(TEXT, voice, top_p=1.0)
    assert max(sizes) == 3
    alone = [chunk.take for chunk in tts.stream(TEXT, voice, top_p=1.0) if chunk.take is not None]
    for ours, theirs in zip(together.takes, alone, strict=True):
        assert [level.tolist() for level in ours.codes] == [level.tolist() for level in theirs.codes]
    sizes.clear()
    tts.speak(TEXT, voice, continuation=Continuation.PER_CHUNK)
    assert set(sizes) == {1}


def test_progress_is_reported_after_every_sentence(reference: Waveform):
    reported = []
    tts = scripted_synthesizer(good)
    tts.speak(TEXT, tts.clone(reference), on_take=lambda take, number, of: reported.append((take.text[:3], number, of)))
    assert reported == [("The", 1, 3), ("She", 2, 3), ("It ", 3, 3)]


@pytest.mark.parametrize("text", ["", "   \n", "🙂🙃", "... !?", "—", "\ufeff", "你好"])
def test_text_without_words_is_refused_in_a_sentence(reference: Waveform, text: str):
    tts = scripted_synthesizer(good)
    with pytest.raises(TextError, match="nothing to speak"):
        tts.speak(text, tts.clone(reference))
    assert stepper_of(tts).prompts == []


def test_what_cannot_be_spoken_is_named(reference: Waveform):
    tts = scripted_synthesizer(good)
    speech = tts.speak("The café 🙂 sat on the 垫子 mat, “really”.", tts.clone(reference))
    assert len(speech.warnings) == 1
    assert all(lost in speech.warnings[0] for lost in "🙂垫子") and "é" not in speech.warnings[0]


@pytest.mark.parametrize("value", [None, 5, b"Bytes."])
def test_what_is_no_text_is_refused_in_a_sentence(reference: Waveform, value: object):
    tts = scripted_synthesizer(good)
    with pytest.raises(TextError, match=f"expected a text, but this is a {type(value).__name__}"):
        tts.speak(value, tts.clone(reference))  # type: ignore[arg-type]
    with pytest.raises(TextError, match="expected a text"):
        list(tts.stream(value, tts.clone(reference)))  # type: ignore[arg-type]


def test_a_voice_of_another_model_is_refused(reference: Waveform):
    tts = scripted_synthesizer(good)
    with pytest.raises(VoiceError, match="identity encoder"):
        tts.speak(TEXT, from_another_encoder(tts.clone(reference)))
    with pytest.raises(VoiceError, match="codec"):
        tts.speak(TEXT, replace(tts.clone(reference, "Her words."), codec="snac", reference=b""))


def test_a_voice_of_another_model_is_cloned_again_from_the_reference_it_keeps(reference: Waveform):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference, "Her words.", consent="she agreed")
    foreign = replace(
        voice,
        encoders={**voice.encoders, "identity": "another"},
        embeddings={**voice.embeddings, "identity": np.ones(9, np.float32)},
    )
    adapted = tts.open_voice(foreign)
    assert adapted.encoders == voice.encoders and adapted.consent == "she agreed"
    assert adapted.prefix is not None and adapted.prefix.transcript == "Her words."
    assert float(adapted.embeddings["identity"] @ voice.embeddings["identity"]) > 0.9


def test_a_path_in_place_of_a_voice_is_cloned(reference: Waveform, reference_file: Path):
    tts = scripted_synthesizer(good)
    by_path, by_voice = (tts.speak(TEXT, one) for one in (reference_file, tts.clone(reference_file)))
    assert np.array_equal(by_path.samples, by_voice.samples)
    with pytest.raises(VoiceError, match=r"neither a file nor the name of a voice"):
        tts.speak(TEXT, "unknown-of-this-name")


def test_several_recordings_make_one_voice(reference: Waveform):
    synthesizer = scripted_synthesizer(good)
    louder_highs = Waveform(np.diff(reference.samples, prepend=0).astype(np.float32), reference.sample_rate)
    alone = [synthesizer.clone(one, keep_reference=False) for one in (reference, louder_highs)]
    assert synthesizer.clone([reference, louder_highs], keep_reference=False) == average_voice(alone)
    deep = synthesizer.clone([reference, louder_highs], "It was said.", name="Anna")
    assert deep.prefix is not None and deep.prefix.transcript == "It was said."
    assert deep.name == "Anna" and deep.reference == synthesizer.clone(reference).reference
    with pytest.raises(VoiceError, match="at least one recording"):
        synthesizer.clone([])


def from_another_encoder(voice: Voice) -> Voice:
    """The same voice as if another identity encoder had made it."""
    return replace(voice, encoders={**voice.encoders, "identity": "another"}, reference=b"")
