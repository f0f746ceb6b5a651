"""The order of callers by what they have to play."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from marstts.codec.toy import ToyCodec
from marstts.server.listener import CROWDED_PATCHES, GROWTH, MAX_PATCHES, MIN_PATCHES, Listener, PriorityGate

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
    needed = listener.first() + CODEC.lookahead_patches
    assert listener.priority(row(needed)) == listener.priority(None) == 100.5
    assert listener.priority(row(needed + 3)) == pytest.approx(100.5 + 3 / RATE)


def test_the_first_chunk_is_longer_where_many_listen():
    present = 1
    listener = Listener(CODEC, 0.5, num_listeners=lambda: present)
    assert listener.first() == 2
    present = 12
    assert listener.first() == 3
    present = 24
    assert listener.first() == CROWDED_PATCHES == 4


def test_chunks_grow_with_the_buffer():
    now = 0.0
    listener = Listener(CODEC, 0.5, clock=lambda: now)
    size = listener.first()
    listener.sent(0.1)
    assert listener.following(size) == MIN_PATCHES
    listener.sent(1000.0)
    assert listener.following(6) == 6 * GROWTH and listener.following(20) == MAX_PATCHES
    now = listener.dry_at - 0.01
    assert listener.following(20) == MIN_PATCHES
    now = listener.dry_at + 1.0
    assert [listener.following(size) for size in (2, 4, 8, 20)] == [4, 8, 16, MAX_PATCHES], (
        "too slow: small chunks cost more"
    )


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
