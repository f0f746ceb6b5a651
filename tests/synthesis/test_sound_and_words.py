"""Words of takes whose attention wanders where nothing is audible, or rushes; drawn attention and drawn audio."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from test_attention_path import places_of, steps_at

from marstts.audio import Waveform
from marstts.synthesis.words.attention_path import PathSearch, SentencePlaces, search_path
from marstts.synthesis.words.audible_steps import FRAMES_PER_STEP, AudibleSteps, audible_steps
from marstts.synthesis.words.flaws import FlawKind, find_flaws
from marstts.synthesis.words.word_times import LAG_STEPS, MIN_WORD_SECONDS, Word, timed_spans, with_least_durations

STEP = 0.085
RATE, STEP_SAMPLES = 24_000, 2048

SENTENCE = "The ship left at dawn."
"""Places: 1 The, 2 ship, 3 left, 4 at, 5 dawn, 6 the stop, 7 the end."""


def frames(num_audible: int, num_silent: int) -> np.ndarray:
    """Steps that are audible, then steps that are not."""
    steps = np.zeros((num_audible + num_silent, FRAMES_PER_STEP), np.float32)
    steps[:num_audible] = 1.0
    return steps


def mixed(places: SentencePlaces, shares: list[dict[int, float]]) -> list[np.ndarray]:
    """Attention of each step: a share for each place that is named."""
    tokens = places.membership / np.maximum(places.membership.sum(axis=0), 1.0)
    return [sum((share * tokens[:, place] for place, share in step.items()), np.zeros(len(tokens))) for step in shares]


def last_word(search: PathSearch) -> tuple[float, float]:
    """First and last step of the last word."""
    [span] = [span for span in timed_spans(search) if span.first_character == SENTENCE.index("dawn")]
    return span.start, span.end


def test_the_last_word_keeps_its_time_when_attention_wanders_back_in_the_silence_after_it():
    places = places_of(SENTENCE)
    said = [{1: 1.0}, *[{2: 1.0}] * 4, *[{3: 1.0}] * 3, {4: 1.0}, *[{5: 0.6, 4: 0.3}] * 5]
    shares = [*said, *[{4: 0.7, 3: 0.2, 5: 0.1}] * 6, *[{6: 0.7, 7: 0.3}] * 3]
    start, end = last_word(search_path(places, mixed(places, shares), frames(len(said), 9)))
    assert start == pytest.approx(9, abs=1.0) and end == pytest.approx(len(said) + LAG_STEPS, abs=1.0)


def test_the_last_word_keeps_its_time_when_attention_moves_on_to_the_end_while_it_is_said():
    places = places_of(SENTENCE)
    said = [{1: 1.0}, *[{2: 1.0}] * 4, *[{3: 1.0}] * 3, {4: 1.0}, {5: 0.6, 6: 0.1}, *[{6: 0.2, 7: 0.1, 5: 0.3}] * 5]
    start, end = last_word(search_path(places, mixed(places, [*said, *[{7: 1.0}] * 3]), frames(len(said), 3)))
    assert start == pytest.approx(9, abs=1.0) and end == pytest.approx(len(said), abs=2)


def end_of_sound(audible_after: list[float]) -> float:
    """Steps from where attention leaves the last word, as attention follows the sound, to where the word ends.

    audible_after: how audible the frames from there are; the word before it is loud.
    """
    places = places_of(SENTENCE)
    visited = [1, *[2] * 4, *[3] * 3, 4, *[5] * 5, *[6] * 3, *[7] * 2]
    left = 14
    shares = frames(len(visited), 0).reshape(-1)
    here = round((left - LAG_STEPS) * FRAMES_PER_STEP)
    shares[here:] = 0.0
    shares[here : here + len(audible_after)] = audible_after
    search = search_path(places, steps_at(places, visited, sharpness=0.99), shares.reshape(-1, FRAMES_PER_STEP))
    return last_word(search)[1] - left


def test_the_burst_of_a_final_stop_belongs_to_the_last_word_and_a_breath_after_it_does_not():
    ends = end_of_sound([])
    burst, breath, faint = end_of_sound([0, 0, 0, 1, 1, 1, 1]), end_of_sound([0, 0, 0, *[0.3] * 5]), [0.3] * 16
    assert burst - ends == pytest.approx(7 / FRAMES_PER_STEP, abs=0.3)
    assert breath == pytest.approx(ends, abs=0.2)
    assert end_of_sound(faint) < ends + 0.7, "breath goes on for two steps"


def test_the_end_of_the_last_word_is_where_its_sound_ends_beside_the_end_of_its_attention():
    ends = end_of_sound([])
    assert end_of_sound([1.0] * 4) - ends == pytest.approx(0.5, abs=0.15)
    assert abs(ends) < 0.5


def test_a_word_does_not_take_the_time_of_the_last_one_where_attention_stays_on_it():
    places = places_of(SENTENCE)
    said = [{1: 1.0}, *[{2: 1.0}] * 4, *[{3: 1.0}] * 3, *[{4: 0.55, 5: 0.35}] * 6]
    start, end = last_word(search_path(places, mixed(places, [*said, *[{7: 1.0}] * 3]), frames(len(said), 3)))
    assert start < 11 and end - start > 2.5


def test_steps_that_come_one_by_one_give_the_path_of_all_at_once():
    rng = np.random.default_rng(3)
    places = places_of(SENTENCE)
    steps = list(rng.dirichlet(np.full(len(places.membership), 0.05), 60).astype(np.float32))
    sounds = rng.random((60, FRAMES_PER_STEP)).astype(np.float32)
    search = PathSearch.begin(places)
    for step, sound in zip(steps, sounds, strict=True):
        search = search.after([step], sound[None])
    assert search.path.tolist() == search_path(places, steps, sounds).path.tolist()


@pytest.mark.parametrize("size", [1, 700, 2048, 5000])
def test_audio_that_comes_in_pieces_has_the_audible_frames_of_the_whole(size: int):
    rng = np.random.default_rng(0)
    samples = (rng.standard_normal(20_000) * np.repeat(10.0 ** rng.uniform(-4, 0, 20), 1000)).astype(np.float32)
    whole = audible_steps(Waveform(samples, RATE), RATE / STEP_SAMPLES)
    steps = AudibleSteps.begin(RATE, RATE / STEP_SAMPLES)
    for first in range(0, len(samples), size):
        steps = steps.after(samples[first : first + size])
    np.testing.assert_allclose(steps.frames, whole, atol=1e-5)
    assert len(whole) == len(samples) // STEP_SAMPLES


def test_speech_is_audible_breath_partly_and_silence_not():
    def tone(decibels: float) -> np.ndarray:
        return np.full(STEP_SAMPLES, 0.5 * 10 ** (decibels / 20), np.float32)

    samples = np.concatenate([tone(0), tone(-29), tone(-60), np.zeros(STEP_SAMPLES, np.float32)])
    shares = audible_steps(Waveform(samples, RATE), RATE / STEP_SAMPLES).mean(axis=1)
    assert shares[0] == 1.0 and 0.3 < shares[1] < 0.7 and shares[2] == shares[3] == 0.0


def flaws_of(visited: list[int], num_silent: int) -> list[tuple[FlawKind, str]]:
    places = places_of(SENTENCE)
    steps = steps_at(places, visited, sharpness=0.95)
    search = search_path(places, steps, frames(len(visited) - num_silent, num_silent))
    return [(flaw.kind, flaw.word) for flaw in find_flaws(search, SENTENCE, STEP)]


SOUND = [1, 2, 2, 2, 2, 3, 3, 3, 4, 5, 5, 5, 5, 6, 6, 7]


def test_a_take_that_reads_everything_has_no_flaw():
    assert flaws_of(SOUND, 3) == []


def test_a_take_with_attention_to_the_final_mark_alone_is_not_called_unfinished():
    assert flaws_of([*SOUND[:-1], 6], 3) == []


def test_a_take_that_breaks_off_in_its_last_word_is_unfinished():
    assert (FlawKind.UNFINISHED, "dawn") in flaws_of(SOUND[:11], 0)


def test_a_word_that_is_hurried_through_is_skipped():
    assert (FlawKind.SKIPPED, "ship") in flaws_of([1, 2, *SOUND[5:]], 3)


def test_a_word_of_which_a_small_part_is_said_is_skipped():
    sentence = "The harbor opened today."
    places = places_of(sentence)

    def flaws(num_steps: int) -> list[tuple[FlawKind, str]]:
        visited = [1, *[2] * num_steps, *[3] * 4, *[4] * 5, 5, 5, 6]
        search = search_path(places, steps_at(places, visited, sharpness=0.98), frames(len(visited) - 3, 3))
        return [(flaw.kind, flaw.word) for flaw in find_flaws(search, sentence, STEP)]

    assert flaws(2) == [(FlawKind.SKIPPED, "harbor")]
    assert flaws(3) == flaws(4) == []


@pytest.mark.parametrize("spoken", ["with", "With", "from", "they"])
def test_a_word_that_is_rarely_stressed_may_be_short(spoken: str):
    def flaws(spoken: str) -> list[tuple[FlawKind, str]]:
        sentence = f"The ship left {spoken} Martha."
        places = places_of(sentence)
        said = [{1: 1.0}, *[{2: 1.0}] * 3, *[{3: 1.0}] * 3, {3: 0.7, 4: 0.3}, {4: 1.0}, *[{5: 1.0}] * 6]
        search = search_path(places, mixed(places, [*said, *[{6: 1.0}] * 2, {7: 1.0}]), frames(len(said), 3))
        return [(flaw.kind, flaw.word) for flaw in find_flaws(search, sentence, STEP)]

    assert flaws(spoken) == [] and flaws("fish") == [(FlawKind.SKIPPED, "fish")]


def word(start: float, end: float, spoken: str = "word", confidence: float = 0.5) -> Word:
    return Word(written=spoken, spoken=spoken, start=start, end=end, confidence=confidence)


@pytest.mark.parametrize(
    "words",
    [
        [word(0.0, 0.3), word(0.3, 0.3, "a"), word(0.3, 0.8)],
        [word(0.0, 0.3), word(0.3, 0.3, "a", 0.0), word(0.3, 0.8)],
        [word(0.0, 0.4), word(0.4, 0.79), word(0.79, 0.8)],
        [word(0.0, 0.01), word(0.01, 0.8)],
        [word(0.0, 0.78), word(0.8, 0.8)],
    ],
)
def test_every_word_that_was_said_lasts_a_while_and_none_overlaps_another(words: list[Word]):
    found = with_least_durations(words, 0.8)
    assert all(one.end - one.start >= MIN_WORD_SECONDS - 1e-9 for one in found)
    assert all(before.end <= after.start + 1e-9 for before, after in pairwise(found))
    assert found[0].start >= 0 and found[-1].end <= 0.8


def test_a_long_word_without_attention_has_no_duration():
    found = with_least_durations([word(0.0, 0.3), word(0.3, 0.3, "skipped", 0.0), word(0.3, 0.8)], 0.8)
    assert found[1].start == found[1].end
