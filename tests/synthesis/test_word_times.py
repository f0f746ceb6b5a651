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


TEXT = "Dr. Smith paid $5, he said. Nobody knew why."


@pytest.fixture(scope="module")
def speeches(mini):
    """Three takes of one text: what is asserted of them holds for any."""
    return [mini.speak(TEXT, voice, seed=seed) for seed, voice in enumerate(("ada", "ross", "emma"))]


def assert_words_of(text: str, words, *, flawed: bool) -> None:
    """The words in their order; those that a flawed take did not say are missing at the end."""
    found = [word.written for word in words]
    assert found and found == text.split()[: len(found)]
    assert flawed or len(found) >= len(text.split()) - 1  # a short last word may lie in one step with the end


def is_flawed(speech) -> bool:
    return any(take.flaws or take.warning for take in speech.takes)


def test_every_word_of_a_text_is_timed_in_order(speeches):
    for speech in speeches:
        for text, take in zip(("Dr. Smith paid $5, he said.", "Nobody knew why."), speech.takes, strict=True):
            assert_words_of(text, take.words, flawed=bool(take.flaws or take.warning))
        assert sum(word.start < word.end for word in speech.words) > len(speech.words) / 2
        assert all(0 <= word.start <= word.end <= speech.seconds + 0.001 for word in speech.words)
        starts = [word.start for word in speech.words]
        assert starts == sorted(starts)


def test_words_are_computed_when_they_are_first_read_and_no_earlier(mini, monkeypatch):
    computed = []
    monkeypatch.setattr(word_times, "timed_spans", lambda search: computed.append(search) or timed_spans(search))
    [take] = mini.speak("And so it goes.").takes
    assert not computed
    assert_words_of("And so it goes.", take.words, flawed=bool(take.flaws or take.warning))
    assert take.words is take.words and len(computed) == 1


def test_words_of_a_take_survive_a_pickle_and_a_change_of_tempo(speeches):
    for take in (take for speech in speeches for take in speech.takes):
        again = pickle.loads(pickle.dumps(take))
        assert again.words == take.words
        assert at_speed(again, 0.8).words == tuple(word.scaled(1.25) for word in take.words)


def test_words_of_a_second_sentence_begin_after_the_pause(speeches):
    for speech in speeches:
        first, second = speech.takes
        before, after = speech.words[: len(first.words)], speech.words[len(first.words) :]
        assert len(after) == len(second.words) and max(word.end for word in before) <= first.seconds + 0.001
        assert min(word.start for word in after) >= first.seconds + 0.299
        assert max(word.end for word in after) <= speech.seconds + 0.001


def test_sound_lies_in_the_words(speeches):
    """Of all takes together: it is much louder in the words than between and around them."""
    energy = inside = seconds = spoken = 0.0
    for speech in speeches:
        power = speech.samples.astype(np.float64) ** 2
        is_word = np.zeros(len(power), bool)
        for word in speech.words:
            is_word[round(word.start * speech.sample_rate) : round(word.end * speech.sample_rate)] = True
        energy, inside = energy + power.sum(), inside + power[is_word].sum()
        seconds, spoken = seconds + speech.seconds, spoken + is_word.mean() * speech.seconds
    assert inside / spoken > 3 * (energy - inside) / (seconds - spoken)


def test_a_deep_clone_times_the_text_and_not_the_transcript(mini, speeches):
    text, confidences = "And so it goes.", []
    for speech in speeches[:2]:
        voice = mini.clone(speech.waveform, transcript="Doctor Smith paid five dollars, he said. Nobody knew why.")
        spoken = mini.speak(text, voice)
        assert_words_of(text, spoken.words, flawed=is_flawed(spoken))
        confidences += [word.confidence for word in spoken.words]
    assert np.mean(confidences) > 0.3, "attention lies on the words"


def test_a_stream_reports_each_word_once_and_many_of_them_early(mini):
    differences, early, total = [], 0, 0
    text = (
        "The old ship left the harbor at dawn, and nobody on the shore saw it go. "
        "We heard of it at noon, when the fog had gone."
    )
    for seed, voice in enumerate(("ada", "ross", "emma")):
        chunks, start = list(mini.stream(text, voice, seed=seed)), 0.0
        for number in (1, 2):
            sentence = [chunk for chunk in chunks if chunk.sentence == number]
            words = [word for chunk in sentence for word in chunk.words]
            take = sentence[-1].take
            assert [word.written for word in words] == [word.written for word in take.words]
            differences += [abs(a.start - start - b.start) for a, b in zip(words, take.words, strict=True)]
            early, total = early + sum(len(chunk.words) for chunk in sentence[:-1]), total + len(words)
            start += sum(chunk.seconds for chunk in sentence)
    assert np.median(differences) < 0.1 and early > total / 4


def test_a_model_without_aligned_heads_refuses_word_times(toy_bundle, reference):
    toy = load(toy_bundle)
    voice = toy.clone(reference)
    with pytest.raises(ConfigError, match="no word times"):
        toy.session.check_word_times(voice)
    with pytest.raises(ConfigError, match="no word times"):
        _ = toy.speak("the cat sat", voice).words
