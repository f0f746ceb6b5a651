"""Word times from paths, for drawn attention and for the packaged model."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from test_attention_path import places_of, steps_at

from marstts.errors import ConfigError
from marstts.synthesis.loading import load
from marstts.synthesis.speech import at_speed
from marstts.synthesis.words import word_times
from marstts.synthesis.words.attention_path import search_path
from marstts.synthesis.words.word_times import LAG_SECONDS, boundary, timed_spans, words_of
from marstts.synthesis.words.written_forms import WrittenForm

pytestmark = pytest.mark.slow

STEP = 0.1


def spans_of(visited: list[int], sentence: str = "Nobody, he said, came.", **options):
    places = places_of(sentence)
    return timed_spans(search_path(places, steps_at(places, visited, sharpness=0.98)), **options)


def test_words_lie_where_attention_lies_on_them():
    spans = spans_of([0, 1, 1, 1, 2, 3, 4, 4, 6, 6, 8])
    assert [(span.first_character, span.last_character) for span in spans] == [(0, 6), (8, 10), (11, 15), (17, 21)]
    assert [round(span.start) for span in spans] == [1, 5, 6, 8]
    assert [round(span.end) for span in spans] == [4, 6, 8, 10]


def test_a_pause_at_a_comma_belongs_to_no_word():
    first, second, *_ = spans_of([1, 1, 2, 2, 2, 3, 4, 6, 8])
    assert second.start - first.end == pytest.approx(3, abs=0.2)


def test_a_step_shared_by_two_words_is_divided_by_its_attention():
    later = [[1.0, 0.0], [1.0, 0.75], [1.0, 1.0]]
    assert boundary(later, 1, 1) == pytest.approx(1.25)


def test_only_words_before_a_step_are_finished():
    visited = [1, 1, 3, 3, 4, 4, 6]
    assert [span.first_character for span in spans_of(visited, finished_before=5)] == [0, 8]


def test_a_word_that_was_not_said_has_no_time():
    assert [span.first_character for span in spans_of([1, 1, 1, 2, 3, 6, 6, 6, 8])] == [0, 8, 17]


def test_a_word_without_attention_keeps_its_place_among_the_words_of_captions():
    sentence = "Nobody, he said, came."
    forms = [WrittenForm(sentence[a:b].strip(",."), a, b) for a, b in ((0, 7), (8, 10), (11, 16), (17, 22))]

    def words(visited):
        return words_of(sentence, forms, spans_of(visited), step_seconds=STEP, audible=(0.0, 1.0))

    found = words([1, 1, 1, 2, 3, 6, 6, 6, 8])
    assert [word.written for word in found] == ["Nobody", "he", "said", "came"]
    assert found[2].start == found[2].end == found[3].start and found[2].confidence == 0
    assert [word.written for word in words([1, 1, 1, 2, 3, 4, 4])] == ["Nobody", "he", "said"], "the end is missing"


def test_several_spoken_words_share_the_time_of_their_written_form():
    sentence = "five dollars then"
    spans = spans_of([1, 1, 2, 2, 3, 4], sentence)
    forms = (WrittenForm("$5", 0, 12), WrittenForm("then", 13, 17))
    words = words_of(sentence, forms, spans, step_seconds=STEP, audible=(0.0, 1.0))
    assert [(word.written, word.spoken) for word in words] == [("$5", "five dollars"), ("then", "then")]
    assert words[0].end == pytest.approx(4 * STEP - LAG_SECONDS, abs=0.01) and words[0].end == words[1].start


def test_times_count_from_the_first_audible_sample():
    sentence = "he came"
    spans = spans_of([0, 0, 1, 1, 2, 2, 3], sentence)
    whole = words_of(sentence, (), spans, step_seconds=STEP, audible=(0.0, 0.7))
    trimmed = words_of(sentence, (), spans, step_seconds=STEP, audible=(0.1, 0.5))
    assert trimmed[1].start == pytest.approx(whole[1].start - 0.1)
    assert trimmed[1].end <= 0.4


@pytest.fixture(scope="module")
def mini():
    return load("mini")


@pytest.fixture(scope="module")
def speech(mini):
    return mini.speak("Dr. Smith paid $5, he said. Nobody knew why.")


def test_every_word_of_a_text_is_timed_in_order(speech):
    written = " ".join(word.written for word in speech.words)
    assert written == "Dr. Smith paid $5, he said. Nobody knew why."
    assert all(word.start < word.end <= speech.seconds + 0.001 for word in speech.words)
    starts = [word.start for word in speech.words]
    assert starts == sorted(starts)


def test_words_are_computed_when_they_are_first_read_and_no_earlier(mini, monkeypatch):
    computed = []
    monkeypatch.setattr(word_times, "timed_spans", lambda search: computed.append(search) or timed_spans(search))
    [take] = mini.speak("And so it goes.").takes
    assert not computed
    assert [word.written for word in take.words] == ["And", "so", "it", "goes."] and take.words is take.words
    assert len(computed) == 1


def test_words_of_a_take_survive_a_pickle_and_a_change_of_tempo(speech):
    take = speech.takes[0]
    again = pickle.loads(pickle.dumps(take))
    assert again.words == take.words
    assert at_speed(again, 0.8).words == tuple(word.scaled(1.25) for word in take.words)


def test_words_of_a_second_sentence_begin_after_the_pause(speech):
    before = speech.takes[0]
    nobody = speech.words[6]
    assert nobody.start >= before.seconds + 0.299 and speech.words[-1].end <= speech.seconds + 0.001
    assert speech.words[5].end <= before.seconds


def test_sound_is_quieter_in_the_pause_than_in_the_words_around_it(speech):
    def rms(start: float, end: float) -> float:
        samples = speech.samples[round(start * speech.sample_rate) : round(end * speech.sample_rate)]
        return float(np.sqrt(np.mean(samples**2)))

    said, nobody = speech.words[5], speech.words[6]
    assert rms(said.end + 0.05, nobody.start - 0.05) < 0.1 * rms(said.start, said.end)


def test_a_deep_clone_times_the_text_and_not_the_transcript(mini, speech):
    voice = mini.clone(speech.waveform, transcript="Doctor Smith paid five dollars, he said. Nobody knew why.")
    words = mini.speak("And so it goes.", voice).words
    assert [word.written for word in words] == ["And", "so", "it", "goes."]
    assert words[0].start < 0.2


def test_a_stream_reports_the_words_of_speak(mini, speech):
    chunks = list(mini.stream("Dr. Smith paid $5, he said. Nobody knew why."))
    words = [word for chunk in chunks for word in chunk.words]
    assert [word.written for word in words] == [word.written for word in speech.words]
    assert max(abs(a.start - b.start) for a, b in zip(words, speech.words, strict=True)) < 0.1
    assert chunks[2].words and not chunks[2].is_last


def test_a_model_without_aligned_heads_refuses_word_times(toy_bundle, reference):
    toy = load(toy_bundle)
    voice = toy.clone(reference)
    with pytest.raises(ConfigError, match="no word times"):
        toy.check_word_times(voice)
    with pytest.raises(ConfigError, match="no word times"):
        _ = toy.speak("the cat sat", voice).words
