"""The part of a reference that a deep clone continues from: drawn attention, and the packaged model."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_attention_path import places_of, steps_at
from test_word_repair import reader, sound

from marstts.audio import Waveform
from marstts.errors import AudioError
from marstts.synthesis.clone.prefix_cut import (
    MAX_PART_SECONDS,
    MIN_PART_SECONDS,
    AlignedReference,
    Cut,
    cut_runs,
    follows_text,
    possible_words,
)
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.attention_path import search_path
from marstts.synthesis.words.word_times import timed_spans
from marstts.voice import Voice
from scripted import good, scripted_synthesizer

pytestmark = pytest.mark.slow

SENTENCE = "Nobody, he said, came."
RATE, PATCH_RATE = 16_000, 10.0
EXAMPLES = Path(__file__).parents[2] / "examples"
JOINED = "He was not the only one who had doubts about the plan."


def noise(*spans: tuple[float, float], seconds: float) -> Waveform:
    """Sound in these seconds, else silence."""
    samples = np.zeros(round(seconds * RATE), np.float32)
    for first, last in spans:
        part = slice(round(first * RATE), round(last * RATE))
        samples[part] = np.random.default_rng(0).normal(0, 0.1, len(samples[part]))
    return Waveform(samples, RATE)


def runs_of(visited: list[int], waveform: Waveform) -> tuple[tuple[Cut, ...], ...]:
    search = search_path(places_of(SENTENCE), steps_at(places_of(SENTENCE), visited, sharpness=0.98))
    return cut_runs(waveform, SENTENCE, search, PATCH_RATE)


def test_words_are_cut_in_the_middle_of_the_pause_between_them():
    waveform = noise((0.0, 0.26), (0.5, 1.2), seconds=1.2)
    [cuts] = runs_of([1, 1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 8], waveform)
    assert [SENTENCE[cut.first_character :].split(" ")[0] for cut in cuts] == ["Nobody,", "he", "said,", "came.", ""]
    assert cuts[1].seconds == pytest.approx(0.38, abs=0.02) and cuts[1].pause_seconds == pytest.approx(0.24, abs=0.04)
    assert [cut.has_mark for cut in cuts] == [True, True, False, True, True]
    assert cuts[2].pause_seconds == 0.0


def test_no_part_reaches_over_a_word_that_was_not_found():
    runs = runs_of([1, 1, 1, 2, 3, 3, 6, 6, 6, 8], noise((0.0, 1.0), seconds=1.0))
    assert [[cut.first_character for cut in run] for run in runs] == [[0, 8]]  # "said" is missing, "came" is alone


def aligned(lengths: list[float], pauses: list[float], confidence: float = 0.8) -> AlignedReference:
    """Words word0 word1 … of these seconds, each followed by a cut in a pause."""
    ends = np.cumsum(lengths)
    text = " ".join(f"word{index}" for index in range(len(lengths)))
    cuts = [Cut(0.0, 0.3, 0, has_mark=True)]
    cuts += [
        Cut(float(end), pause, 6 * n + 6, has_mark=False)
        for n, (end, pause) in enumerate(zip(ends, pauses, strict=True))
    ]
    search = search_path(places_of(text), steps_at(places_of(text), [n + 1 for n in range(len(lengths))], 0.98))
    spans = tuple(replace(span, confidence=confidence) for span in timed_spans(search))
    return AlignedReference(noise((0.0, ends[-1]), seconds=float(ends[-1])), text, (tuple(cuts),), spans)


def test_a_part_of_about_four_seconds_is_taken_from_the_start():
    part = aligned([1.0] * 9, [0.0] * 9).best_part()
    assert part is not None and part.words == "word0 word1 word2 word3"
    assert part.waveform.seconds == pytest.approx(4.0, abs=0.1)


def test_a_pause_may_make_the_part_shorter():
    part = aligned([1.0] * 9, [0.0, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).best_part()
    assert part is not None and part.words == "word0 word1 word2"


def test_words_without_attention_are_no_part():
    assert aligned([1.0] * 9, [0.1] * 9, confidence=0.2).best_part() is None


def test_the_longest_part_is_as_long_as_allowed():
    part = aligned([1.0] * 9, [0.0] * 9).longest_part(7.5)
    assert part is not None and part.waveform.seconds == pytest.approx(7.0, abs=0.1)


def test_the_longest_part_is_cut_in_pauses_too():
    part = aligned([1.0] * 9, [0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0, 0.0]).longest_part(7.5)
    assert part is not None and part.words == "word0 word1 word2 word3 word4 word5"


def test_a_part_with_too_few_words_for_its_sound_is_not_taken():
    assert aligned([2.0] * 9, [0.1] * 9).best_part() is None


def test_words_that_nobody_can_say_in_the_time_are_left_out():
    assert possible_words("four words are here", 1.0) == "four words are here"
    assert possible_words("one two three four", 0.5) == "one two"


def test_models_without_aligned_heads_do_not_follow_the_text():
    assert follows_text(reader(lambda attempt, prompt: sound(prompt)).session.model)
    assert not follows_text(scripted_synthesizer(good).session.model)


@pytest.fixture(scope="module")
def spoken(mini: Synthesizer) -> tuple[Waveform, str]:
    """About nine seconds with their words, which mini says itself."""
    texts = [JOINED, "The boats came in early.", "Seven small boats were lying in the harbor that morning."]
    parts = [mini.speak(text, "ada").waveform for text in texts]
    gap = np.zeros(6_000, np.float32)
    return Waveform(np.concatenate([s for part in parts for s in (part.samples, gap)]), 24_000), " ".join(texts)


@pytest.fixture(scope="module")
def voice(mini: Synthesizer, spoken: tuple[Waveform, str]) -> Voice:
    return mini.clone(*spoken)


def test_a_deep_clone_continues_from_the_words_at_the_start(mini, spoken, voice):
    waveform, transcript = spoken
    assert voice.prefix is not None and transcript.startswith(voice.prefix.transcript)
    seconds = len(voice.prefix.codes[0]) / mini.session.codec.spec.patch_rate
    assert MIN_PART_SECONDS - 0.3 <= seconds <= MAX_PART_SECONDS + 0.1 < waveform.seconds
    shallow = mini.clone(waveform)
    for role, embedding in shallow.embeddings.items():  # those of the whole reference
        np.testing.assert_array_equal(voice.embeddings[role], embedding)


def test_the_words_of_the_whole_reference_are_kept_for_other_models(mini, spoken, voice, tmp_path):
    _, transcript = spoken
    assert voice.reference_transcript == transcript
    voice.save(tmp_path / "ada.voice")
    opened = mini.open_voice(Voice.load(tmp_path / "ada.voice"))
    assert opened.prefix is not None and opened.prefix.transcript == voice.prefix.transcript
    foreign = replace(voice, encoders={**voice.encoders, "identity": "another"})
    again = mini.open_voice(foreign)
    assert again.reference_transcript == transcript and again.prefix.transcript == voice.prefix.transcript


def test_a_reference_of_more_than_twelve_seconds_can_be_cloned_deeply(mini, spoken, caplog):
    waveform, transcript = spoken
    longer = Waveform(np.tile(waveform.samples, 2)[: 14 * 24_000], 24_000)
    with caplog.at_level(logging.INFO, logger="marstts"):
        voice = mini.clone(longer, f"{transcript} {transcript}")
    assert not caplog.records  # an evaluation clones for every take
    assert (
        voice.prefix is not None
        and len(voice.prefix.codes[0]) / mini.session.codec.spec.patch_rate < MAX_PART_SECONDS + 0.1
    )
    assert transcript.startswith(voice.prefix.transcript)
    assert voice.reference_transcript and voice.reference_transcript in f"{transcript} {transcript}"


def test_a_transcript_that_ends_before_the_recording_gives_no_part_of_too_few_words(mini, spoken):
    voice = mini.clone(spoken[0], JOINED)
    assert voice.prefix is not None and voice.prefix.transcript != JOINED.rsplit(maxsplit=1)[1]


def test_without_a_model_a_deep_clone_continues_from_all_of_its_reference(reference):
    tts = scripted_synthesizer(good)
    voice = tts.clone(reference, "Her words.")
    assert voice.prefix is not None and voice.prefix.transcript == "Her words." and not voice.reference_transcript
    with pytest.raises(AudioError, match="with a transcript at most 12 s can be used"):
        tts.clone(Waveform(np.tile(reference.samples, 5), reference.sample_rate), "Her words.")


def test_files_of_voices_without_a_cut_prefix_did_not_change(reference):
    voice = scripted_synthesizer(good).clone(reference, "Her words.")
    content = voice.to_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert "reference_transcript" not in header["__metadata__"]["marstts_voice"]
