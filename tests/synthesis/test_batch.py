"""Many texts in one batch, each as if it were alone."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import AudioError, ConfigError, TextError, VoiceError
from marstts.generation.request import RequestState, StopReason
from marstts.generation.scheduler import AsyncScheduler
from marstts.synthesis import runner, texts
from marstts.synthesis.speech import Continuation
from marstts.synthesis.synthesizer import SpeakResult, Synthesizer
from marstts.synthesis.words.followed_take import FollowedTake
from marstts.voice import Voice
from scripted import (
    CODEBOOK_SIZE,
    LOUD,
    ScriptedEngine,
    ScriptedTake,
    good,
    scripted_synthesizer,
    with_engine,
    with_parts,
)

pytestmark = pytest.mark.slow

TEXTS = [
    "The cat sat on the mat. She sells sea shells there.",
    "It was a fine day for both.",
    "The mat sat. The shells sat. The sea sat.",
    "She sat by the sea.",
    "Sea shells, cats and mats.",
]


class ByTextStepper(ScriptedEngine):
    """An engine whose number of patches depends on the prompt alone; codes are random."""

    def next_logits(self, state, tokens):
        logits, state = super().next_logits(state, tokens)
        logits[logits[:, -1] < 0, 8:CODEBOOK_SIZE] = 0.0
        return logits, state


def drawing() -> Synthesizer:
    """A model whose takes depend on what is drawn, and whose lengths on the text."""
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(14 + len(prompt.text_ids) % 9))
    return with_engine(tts, ByTextStepper(tts.session.engine.script, tts.session.engine.layout))


def codes_of(speech) -> list[list[int]]:
    return [np.concatenate(take.codes).tolist() for take in speech.takes]


@pytest.mark.parametrize("continuation", Continuation)
def test_every_text_is_spoken_as_if_it_were_alone(reference: Waveform, continuation: Continuation):
    tts = drawing()
    shallow, deep = tts.clone(reference), tts.clone(reference, "Her words.")
    voices, seeds = [shallow, deep, deep, shallow, deep], [3, 3, 4, 0, 9]
    options = {"top_p": 1.0, "continuation": continuation}
    alone = [
        tts.speak(text, voice, seed=seed, **options) for text, voice, seed in zip(TEXTS, voices, seeds, strict=True)
    ]
    for batch in (1, 2, 8):
        results = list(tts.speak_many(TEXTS, voices, seeds=seeds, batch=batch, **options))
        assert sorted(result.index for result in results) == [1, 2, 3, 4, 5]
        for result in results:
            index = result.index - 1
            assert result.error is None and result.text == TEXTS[index]
            assert codes_of(result.speech) == codes_of(alone[index]) and result.speech.seed == seeds[index]
            np.testing.assert_array_equal(result.speech.samples, alone[index].samples)
            assert 0 < result.speech.first_audio_seconds <= result.speech.compute_seconds


def test_long_takes_are_decoded_while_they_are_made(reference: Waveform, monkeypatch: pytest.MonkeyPatch):
    tts = drawing()
    tts = with_engine(tts, ByTextStepper(lambda attempt, prompt: ScriptedTake(30), tts.session.engine.layout))
    calls: list[tuple[int, int]] = []

    class Watched:
        spec, lookahead_patches = tts.session.codec.spec, tts.session.codec.lookahead_patches

        def decode(self, codes, first=0):
            calls.append((first, len(codes[0])))
            return tts.session.codec.decode(codes, first)

    texts, voice = ["The cat sat on the mat.", "She sells sea shells there."], tts.clone(reference)
    whole = [speech.takes[0].waveform.samples for speech in (tts.speak(text, voice, top_p=1.0) for text in texts)]
    monkeypatch.setattr(runner, "DECODE_CHUNK_PATCHES", 12)
    results = list(with_parts(tts, codec=Watched()).speak_many(texts, voice, top_p=1.0, batch=2))
    reach = tts.session.codec.lookahead_patches
    windows = [(0, 12 + reach), (12 - reach, 12 + 2 * reach), (24 - reach, 6 + reach)]
    assert calls == [window for window in windows for _ in range(2)]
    for result in results:
        np.testing.assert_allclose(result.speech.takes[0].waveform.samples, whole[result.index - 1], atol=1e-5)


def test_long_texts_are_decoded_in_larger_pieces_the_same_for_every_caller(
    reference: Waveform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(texts, "DEFAULT_BATCH", 2)
    monkeypatch.setattr(runner, "DECODE_CHUNK_PATCHES", 5)
    monkeypatch.setattr(runner, "LONG_TEXT_CHUNK_PATCHES", 12)
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(20))
    tts = with_engine(tts, ByTextStepper(tts.session.engine.script, tts.session.engine.layout))
    codec, pieces = tts.session.codec, list[int]()

    class Watched:
        spec, lookahead_patches = codec.spec, codec.lookahead_patches

        def decode(self, codes, first=0):
            pieces.append(len(codes[0]))
            return codec.decode(codes, first)

    tts, voice, sentence = with_parts(tts, codec=Watched()), tts.clone(reference), "She sells sea shells there. "
    short, long = (tts.speak(sentence * count, voice, top_p=1.0) for count in (2, 3))
    assert len(pieces) == 2 * 4 + 3 * 2
    ordered = np.concatenate([chunk.samples for chunk in tts.stream(sentence * 3, voice, top_p=1.0, sentences=True)])
    np.testing.assert_array_equal(ordered, long.samples)
    for result in tts.speak_many([sentence * 2, sentence * 3], voice, top_p=1.0, batch=3):
        np.testing.assert_array_equal(result.speech.samples, (short, long)[result.index - 1].samples)


def test_texts_that_fail_carry_their_error_and_the_others_are_spoken(reference: Waveform):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference)
    foreign = from_another_encoder(voice)
    texts = ["The cat sat.", "", "🙂", "The mat sat.", "It rained."]
    results = {r.index: r for r in tts.speak_many(texts, [voice, voice, voice, foreign, voice], batch=2)}
    assert [type(results[number].error) for number in range(1, 6)] == [
        type(None), TextError, TextError, VoiceError, type(None),
    ]  # fmt: skip
    assert all((results[n].speech is None) == (n in (2, 3, 4)) for n in results)


def test_a_take_that_cannot_be_decoded_fails_its_text_alone(reference: Waveform):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(20, LOUD + attempt % 2))
    voice = tts.clone(reference)

    class Choosy:
        spec, lookahead_patches = tts.session.codec.spec, 1

        def decode(self, codes, first=0):
            if codes[0][0] == LOUD:
                raise AudioError("this cannot be decoded")
            return tts.session.codec.decode(codes, first)

    results = list(with_parts(tts, codec=Choosy()).speak_many(["The cat sat on the mat."] * 4, voice, batch=3))
    problems = {result.index: type(result.error) for result in results}
    assert problems == {1: AudioError, 2: type(None), 3: AudioError, 4: type(None)}


def test_retries_climb_the_ladder_in_the_same_batch(reference: Waveform):
    tries: dict[bytes, int] = {}

    def script(attempt, prompt):
        """The first two attempts at every sentence are too short."""
        key = prompt.text_ids.tobytes()
        tries[key] = tries.get(key, 0) + 1
        return ScriptedTake(1 if tries[key] < 3 else 20)

    tts = scripted_synthesizer(script)
    results = list(tts.speak_many(TEXTS[:2], tts.clone(reference), batch=4))
    takes = [take for result in results for take in result.speech.takes]
    assert [(take.attempts, take.top_p, take.warning) for take in takes] == [(3, 0.6, None)] * 3


def test_the_best_of_flawed_takes_is_kept_with_a_warning(reference: Waveform):
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(2))
    [result] = tts.speak_many(["She sells sea shells on the sea shore."], tts.clone(reference))
    assert "after 5 attempts" in result.speech.warnings[0]


def test_texts_come_as_they_are_done_and_a_long_list_is_not_begun_at_once(reference: Waveform):
    tts = scripted_synthesizer(good)
    results = tts.speak_many(["The cat sat on the mat."] * 40, tts.clone(reference), batch=2)
    assert isinstance(next(results), SpeakResult)
    assert len(tts.session.engine.prompts) <= 6
    results.close()
    assert len(tts.session.engine.prompts) <= 6


def test_closing_stops_the_work_within_a_patch(reference: Waveform):
    patches = []

    class Counting(ByTextStepper):
        def next_logits(self, state, tokens):
            patches.append(len(state.takes)) if tokens.shape[1] == 0 else None
            return super().next_logits(state, tokens)

    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(16 if attempt == 0 else 30))
    tts = with_engine(tts, Counting(tts.session.engine.script, tts.session.engine.layout))
    threads = threading.active_count()
    results = tts.speak_many(["The cat sat."] * 9, tts.clone(reference), batch=2)
    assert next(results).index == 1
    made = len(patches)
    results.close()
    assert len(patches) == made < 30 and threading.active_count() == threads


@pytest.mark.parametrize("last", [3, 7, 12])
def test_a_take_that_ends_between_patches_of_a_shared_batch_is_spoken_once(
    last: int, reference: Waveform, monkeypatch: pytest.MonkeyPatch
):
    """The caller is slower than the batch, so that several patches of a row wait for it."""

    def ended(take: FollowedTake, row: RequestState) -> RequestState:
        time.sleep(0.01)
        return replace(row, stop=StopReason.WORDS_DONE) if len(row.patches) == last else row

    monkeypatch.setattr(FollowedTake, "ended", ended)
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(40))
    voice = tts.clone(reference)
    alone = tts.speak(TEXTS[0], voice)
    with AsyncScheduler(tts.session.engine, 8) as shared:
        speech = tts.speak(TEXTS[0], voice, scheduler=shared)
    assert codes_of(speech) == codes_of(alone) and len(speech.takes[0].codes[0]) == last


def test_numbers_of_texts_voices_and_seeds_must_agree(reference: Waveform):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference)
    for wrong in ({"voice": [voice]}, {"voice": voice, "seeds": [1, 2, 3]}):
        with pytest.raises(ConfigError, match="2 texts"):
            tts.speak_many(["One.", "Two."], **wrong)
    with pytest.raises(ConfigError, match="`voice` is the one that speaks"):
        tts.speak_many(["One.", "Two."], voices=[voice])  # type: ignore[arg-type]


def test_one_text_is_no_list_of_texts_and_a_batch_has_room_for_one(reference: Waveform):
    tts = scripted_synthesizer(good)
    with pytest.raises(ConfigError, match="put it into a list"):  # instead of speaking its letters
        tts.speak_many("One.", tts.clone(reference))
    with pytest.raises(ConfigError, match="room for 1 sentence or more, but has 0"):
        tts.speak_many(["One."], tts.clone(reference), batch=0)


def from_another_encoder(voice: Voice) -> Voice:
    """The same voice as if another identity encoder had made it."""
    return replace(voice, encoders={**voice.encoders, "identity": "another"}, reference=b"")
