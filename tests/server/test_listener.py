"""The order of callers by what they have to play."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from marstts.codec.toy import ToyCodec
from marstts.server.listener import (
    CROWDED_PATCHES,
    GROWTH,
    MAX_PATCHES,
    MIN_PATCHES,
    TRIMMED_PATCHES,
    USED_SLACK,
    Crowd,
    Listener,
    PriorityGate,
)
from scripted import ScriptedTake, scripted_synthesizer

CODEC = ToyCodec()
RATE = CODEC.spec.patch_rate


def row(patches: int) -> Any:
    return SimpleNamespace(patches=(0,) * patches)


def test_a_listeners_buffer_lasts_for_what_was_sent_since_its_first_audio():
    now = 100.0
    listener = Listener(CODEC, 0.5, clock=lambda: now)
    assert listener.dry_at == listener.priority(None) == listener.priority(row(CODEC.lookahead_patches)) == 100.5
    now = 103.0
    listener.sent(0.0)
    assert listener.dry_at == 100.5
    listener.sent(0.25)
    listener.sent(0.5)
    assert listener.dry_at == 103.75


def test_a_listener_whose_buffer_was_empty_goes_on_with_the_next_audio():
    now = 100.0
    listener = Listener(CODEC, 0.5, clock=lambda: now)
    assert listener.sent(1.0) == 0.0
    now = 100.75
    assert listener.sent(0.5) == 0.0 and listener.dry_at == 101.5
    now = 103.5
    assert listener.sent(0.0) == 0.0 and listener.dry_at == 101.5
    assert listener.sent(0.5) == 2.0 and listener.dry_at == 104.0


@pytest.mark.parametrize("held", [0.5, 3.0, 100.0])
def test_a_client_that_reads_slowly_has_no_empty_buffer(held: float):
    now = 100.0
    listener = Listener(CODEC, 0.5, clock=lambda: now)
    listener.held(1.0)
    assert listener.dry_at == 100.5
    listener.sent(1.0)
    now += held
    listener.held(held)
    assert listener.dry_at == 101.0 + held and listener.sent(0.5) == 0.0
    now = listener.dry_at + 2.0
    assert listener.sent(0.5) == 2.0


def test_patches_that_can_be_decoded_count_as_sent():
    listener = Listener(CODEC, 0.5, clock=lambda: 0.0)
    size = listener.first()
    listener.sent(1.0)
    listener.following(size)
    known = size + CODEC.lookahead_patches
    assert listener.priority(row(known)) == 1.0
    assert listener.priority(row(known + 6)) == pytest.approx(1.0 + 6 / RATE)


def test_a_row_yields_to_newcomers_once_its_first_chunk_is_generated():
    listener = Listener(CODEC, 0.5, clock=lambda: 100.0)
    first = listener.first()
    needed = first + CODEC.lookahead_patches
    assert listener.priority(row(needed - 1)) == listener.priority(None) == 100.5
    assert listener.priority(row(needed)) == pytest.approx(100.5 + first / RATE)
    assert listener.priority(row(needed + 3)) == pytest.approx(100.5 + (first + 3) / RATE)


def test_the_first_chunk_is_longer_where_many_listen():
    present = 1
    listener = Listener(CODEC, 0.5, crowd=Crowd(lambda: present))
    assert listener.first() == 2
    present = 12
    assert listener.first() == 3
    present = 24
    assert listener.first() == 5
    present = 25
    assert listener.first() == CROWDED_PATCHES == 6


@pytest.mark.parametrize(("later", "least"), [(1, 1), (24, 4)])
def test_the_first_chunk_is_longer_where_others_came_while_it_was_generated(reference, later: int, least: int):
    """The first of many callers at once sees none of the others when its sentence begins."""
    present = iter([1])
    crowd = Crowd(lambda: next(present, later), lambda: 60.0)
    tts = scripted_synthesizer(lambda attempt, prompt: ScriptedTake(40))
    first = next(tts.stream("The cat sat.", tts.clone(reference), config=Listener(tts.session.codec, 0.5, crowd=crowd)))
    assert least <= first.seconds * RATE <= least + 1


def test_chunks_grow_with_the_buffer():
    now = 0.0
    listener = Listener(CODEC, 0.5, clock=lambda: now)
    size = listener.first()
    assert listener.following(size) == MIN_PATCHES
    listener.sent(1000.0)
    assert listener.following(6) == 6 * GROWTH and listener.following(20) == MAX_PATCHES
    now = listener.dry_at - 0.01
    assert listener.following(20) == int(USED_SLACK * (20 + 0.01 * RATE))


@pytest.mark.parametrize(
    ("present", "throughput", "expected"), [(24, 48.0, 4), (24, 72.0, 6), (24, 96.0, 8), (6, 96.0, 5 * GROWTH)]
)
def test_a_chunk_is_made_while_the_one_before_it_plays(present, throughput, expected):
    """The audio of a chunk is not sent yet when the next size is chosen; without it, all would look late."""
    now = 100.0
    listener = Listener(CODEC, 0.15, clock=lambda: now, crowd=Crowd(lambda: present, lambda: throughput))
    now = 100.5  # the first audio is late, and lasts as long as any
    assert listener.following(4 + TRIMMED_PATCHES) == expected


def test_the_gate_admits_the_smallest_key_first_and_no_more_than_its_places():
    gate, order, threads = PriorityGate(1), [], []

    def wait(key: float) -> None:
        with gate.turn(key):
            order.append(key)

    with gate.turn(9.0):
        for number, key in enumerate((3.0, 1.0, 2.0), 1):
            threads.append(threading.Thread(target=wait, args=(key,)))
            threads[-1].start()
            while len(gate._waiting) < number:
                pass
        assert order == []
    for thread in threads:
        thread.join(10)
    assert order == [1.0, 2.0, 3.0]


def test_a_failure_frees_the_place():
    gate = PriorityGate(1)
    with pytest.raises(ValueError), gate.turn(0.0):
        raise ValueError
    with gate.turn(0.0):
        pass


def test_the_running_batch_takes_one_place_but_not_the_only_one():
    is_busy = True
    for places, expected in ((1, 1), (2, 1), (4, 3)):
        gate = PriorityGate(places, lambda: is_busy)
        held = [gate.turn(0.0) for _ in range(expected)]
        for turn in held:
            turn.__enter__()
        waiting = threading.Thread(target=lambda gate=gate: gate.turn(1.0).__enter__())
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive(), "no place is free"
        held.pop().__exit__(None, None, None)
        waiting.join(10)
        assert not waiting.is_alive()


def test_the_place_of_the_batch_is_free_while_it_is_idle():
    gate = PriorityGate(2, lambda: False)
    with gate.turn(0.0), gate.turn(1.0):
        pass
