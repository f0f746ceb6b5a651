"""A followed take: it is ended where it is over, given up where it cannot be saved, and has words and flaws."""

from __future__ import annotations

import numpy as np
import pytest
from test_attention_path import character_spans, places_of, steps_at

from marstts.audio import Waveform
from marstts.codec.base import CodecSpec
from marstts.generation.request import Limits, Request, RequestState, SamplingConfig, StopReason
from marstts.synthesis.words.followed_take import KEPT_STEPS_AT_END, FollowedTake
from marstts.text.segments import Segment

SENTENCE = "Nobody, he said, came."
CODEC = CodecSpec(name="toy", sample_rate=24_000, codebook_size=4096, hop_lengths=(2048, 1024, 512))
SPOKEN = [1, 1, 1, 2, 3, 4, 4, 6, 6]


def follow(*, may_give_up: bool) -> FollowedTake:
    """A take of the sentence that is followed from its first step."""
    return FollowedTake(Segment(text=SENTENCE), character_spans(SENTENCE), CODEC, may_give_up=may_give_up)


def followed(visited: list[int], *, may_give_up: bool = True, every: int = 1) -> list[RequestState]:
    """The row after each step, or after several, as it is let pass; up to the one that ended."""
    steps = steps_at(places_of(SENTENCE), visited, sharpness=0.97)
    request = Request(None, 0.2, Limits(0, 500), np.random.default_rng(0), SamplingConfig())  # type: ignore[arg-type]
    take = follow(may_give_up=may_give_up)
    rows = []
    for count in range(every, len(steps) + 1, every):
        patches = tuple(np.full(7, step) for step in range(count))
        row = take.ended(RequestState(request, (), patches, tuple(steps[:count])))
        rows.append(row)
        if row.stop is not None:
            break
    return rows


def test_a_sound_take_passes_unchanged():
    rows = followed([*SPOKEN, 8, 8, 8])
    assert all(row.stop is None for row in rows) and len(rows[-1].patches) == len(SPOKEN) + 3


@pytest.mark.parametrize("after", [[8] * 9, [8, 1, 1, 4, 4, 6, 6, 3]])
def test_a_take_that_goes_on_after_its_last_word_is_ended_there(after):
    row = followed([*SPOKEN, *after])[-1]
    assert row.stop is StopReason.WORDS_DONE
    assert len(row.patches) == len(SPOKEN) + KEPT_STEPS_AT_END


def test_a_take_that_stays_in_a_word_is_given_up():
    rows = followed([1, 1, 2, 3, *[4] * 60])
    assert rows[-1].stop is StopReason.FLAWED and len(rows) < 30


def test_the_last_attempt_is_never_given_up():
    assert followed([1, 1, 2, 3, *[4] * 60], may_give_up=False)[-1].stop is None


def test_the_end_is_seen_at_the_same_step_whether_steps_come_one_by_one_or_together():
    visited = [*SPOKEN, *[8] * 9]
    one_by_one = followed(visited)
    assert len(one_by_one) == len(SPOKEN) + 4  # three steps after the last word may be the sound of it
    for offset in range(4):  # the end is looked for in every fourth step
        rows = followed([1] * offset + visited)
        assert len(rows) == offset + len(SPOKEN) + 4


@pytest.mark.parametrize(("num_after", "is_ended_there"), [(3, False), (4, True), (9, True)])
def test_a_take_that_is_seen_only_when_it_has_ended_by_itself_ends_where_others_do(num_after, is_ended_there):
    """A stream sees a row when it fills a chunk: its end may not depend on the size of that."""
    visited = [*SPOKEN, *[8] * num_after]
    one_by_one = followed(visited)[-1]
    assert (one_by_one.stop is not None) == is_ended_there
    steps = steps_at(places_of(SENTENCE), [*visited, 8], sharpness=0.97)  # the last step gives no patch
    patches = tuple(np.full(7, step) for step in range(len(visited)))
    ended = RequestState(one_by_one.request, (), patches, tuple(steps), StopReason.EOS)
    take = follow(may_give_up=False)
    row = take.ended(ended)
    assert len(row.patches) == len(one_by_one.patches)
    assert row.stop is (StopReason.WORDS_DONE if is_ended_there else StopReason.EOS)


@pytest.mark.parametrize("every", [3, 5, 7])
def test_takes_that_are_seen_after_several_steps_at_a_time_are_ended_too(every):
    babbling = followed([*SPOKEN, *[8] * 9], every=every)[-1]
    assert babbling.stop is StopReason.WORDS_DONE and len(babbling.patches) == len(SPOKEN) + KEPT_STEPS_AT_END
    assert followed([1, 1, 2, 3, *[4] * 60], every=every)[-1].stop is StopReason.FLAWED


def spoken(visited: list[int], num_steps: int) -> tuple[RequestState, Waveform]:
    """A row that has ended after `num_steps` of those in which it visits places, and noise as its audio."""
    steps = steps_at(places_of(SENTENCE), [*visited, 8], sharpness=0.8)[: num_steps + 1]
    patches = tuple(np.full(7, step) for step in range(num_steps))
    request = Request(None, 0.2, Limits(0, 500), np.random.default_rng(0), SamplingConfig())  # type: ignore[arg-type]
    noise = np.random.default_rng(1).normal(0, 0.1, 2048 * num_steps).astype(np.float32)
    return RequestState(request, (), patches, tuple(steps), StopReason.EOS), Waveform(noise, 24_000)


@pytest.mark.parametrize("piece", [500, 2048, 5000])
@pytest.mark.parametrize("num_steps", [len(SPOKEN), len(SPOKEN) + 3])
def test_words_that_are_reported_while_it_is_made_are_those_of_the_whole_take(piece: int, num_steps: int):
    row, waveform = spoken([*SPOKEN, 8, 8, 8], num_steps)
    whole, heard = follow(may_give_up=False), follow(may_give_up=False)
    whole.finish(row, waveform)
    timing = whole.timing(0, len(waveform.samples))
    assert timing is not None
    words = timing()
    reported = []
    for begin in range(0, len(waveform.samples), piece):
        samples = waveform.samples[begin : begin + piece]
        heard.hear(samples)
        known = (begin + len(samples)) // 2048 + 1  # attention is ahead of the audio
        made = RequestState(row.request, (), row.patches[:known], row.attention[:known])
        reported += heard.new_words(made, 0)
    assert 0 < len(reported) < len(words) or num_steps == len(SPOKEN)
    heard.finish(row, waveform)
    assert tuple([*reported, *heard.rest_of(words)]) == words
    again = heard.timing(0, len(waveform.samples))
    assert again is not None and again() == words and heard.flaws == whole.flaws


def test_a_take_that_was_followed_beyond_its_end_has_the_words_of_what_is_left():
    visited = [*SPOKEN, 8, 8, 8]
    row, waveform = spoken(visited, len(visited))
    followed_on, whole = follow(may_give_up=False), follow(may_give_up=False)
    followed_on.hear(waveform.samples)
    followed_on.new_words(row, 0)
    kept = len(SPOKEN) + KEPT_STEPS_AT_END
    cut = RequestState(row.request, (), row.patches[:kept], row.attention[:kept], StopReason.WORDS_DONE)
    for take in (followed_on, whole):
        take.finish(cut, Waveform(waveform.samples[: 2048 * kept], 24_000))
    assert followed_on.flaws == whole.flaws
    timings = [take.timing(0, 2048 * kept) for take in (followed_on, whole)]
    words = [timing() for timing in timings if timing is not None]
    assert len(words) == 2 and words[0] == words[1] != ()


def test_a_model_without_word_times_has_neither_words_nor_flaws():
    row, waveform = spoken(SPOKEN, len(SPOKEN))
    take = FollowedTake(Segment(text=SENTENCE), None, CODEC)
    assert take.ended(row) is row and take.new_words(row, 0) == ()
    take.finish(row, waveform)
    assert take.timing(0, 10) is None and take.flaws == ()
