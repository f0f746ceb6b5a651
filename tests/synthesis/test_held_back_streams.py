"""Streams whose listeners have enough to play: a sentence is held back until it is checked, and repaired unheard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_word_repair import ReadTake, reader, sound, without_middle

from marstts.codec.toy import ToyCodec
from marstts.server.listener import KEPT_SECONDS, Crowd, Listener
from marstts.synthesis.incremental_decoder import StreamConfig

pytestmark = pytest.mark.slow

TEXT = "the cat sat on the mat, and she sells sea shells there."


class Buffered(StreamConfig):
    """Chunks of two patches, for a listener who has enough to play for a while."""

    playable_seconds: float
    max_chunk_patches: int = 2

    def may_wait(self, seconds: float) -> bool:
        return seconds <= self.playable_seconds


def chunks_of(reference: Any, playable_seconds: float, flawed_attempts: int) -> list[Any]:
    def script(attempt: int, prompt: Any) -> ReadTake:
        return sound(prompt) if attempt >= flawed_attempts else without_middle(prompt)

    tts = reader(script)
    return list(tts.stream(TEXT, tts.clone(reference), config=Buffered(playable_seconds=playable_seconds)))


def test_a_flaw_is_repaired_before_anything_is_sent_while_the_buffer_lasts(reference):
    chunks = chunks_of(reference, 60.0, flawed_attempts=1)
    assert chunks[-1].take.attempts == 2 and chunks[-1].take.warning is None
    assert " ".join(word.written for chunk in chunks for word in chunk.words) == TEXT


def test_with_an_empty_buffer_it_is_sent_at_once_and_a_warning_follows(reference):
    chunks = chunks_of(reference, -1.0, flawed_attempts=1)
    assert len(chunks) > 3 and "sent already" in chunks[-1].take.warning


def test_what_was_held_back_is_sent_when_the_buffer_runs_low(reference):
    class RunsLow(Buffered):
        def may_wait(self, seconds: float) -> bool:
            return seconds > self.playable_seconds

    tts = reader(lambda attempt, prompt: sound(prompt))
    voice = tts.clone(reference)
    held, sent = (
        list(tts.stream(TEXT, voice, config=sizes))
        for sizes in (RunsLow(playable_seconds=2.0), Buffered(playable_seconds=-1.0))
    )
    assert 1 < len(held) < len(sent) and len(held[0].samples) > len(sent[0].samples)
    samples = [np.concatenate([chunk.samples for chunk in chunks]) for chunks in (held, sent)]
    np.testing.assert_array_equal(*samples)


def test_a_listener_may_wait_for_what_is_made_while_the_buffer_lasts():
    now = 100.0
    listener = Listener(ToyCodec(), 0.5, clock=lambda: now, crowd=Crowd(throughput=lambda: 4.0))
    assert not listener.may_wait(0.0), "nothing was sent yet"
    listener.sent(KEPT_SECONDS + 1.0)
    assert listener.may_wait(4.0) and not listener.may_wait(4.1)
    now = 101.5
    assert not listener.may_wait(0.0)
