"""Turns of one job: its text is prepared and its first prompt encoded in one, which is free again however that ends."""

from __future__ import annotations

from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marstts.codec.toy import ToyCodec
from marstts.generation.request import Request
from marstts.server.listener import Crowd, Listener, PriorityGate
from marstts.server.speech_job import JobEnded, JobScheduler, SharedBatch


class RecordingScheduler:
    """Counts what was submitted to the running batch."""

    capacity = 1

    def __init__(self) -> None:
        self.states: list[Any] = []

    def submit(self, request: Any, events: Any, *, state: Any, **options: Any) -> None:
        self.states.append(state)


def shared_batch(gate: PriorityGate) -> SharedBatch:
    def start(prompts: list[Any]) -> str:
        assert not is_free(gate), "prompts are encoded in turns"
        return f"state of {prompts[0]}"

    engine = SimpleNamespace(start=start, can_start_concurrently=True)
    synthesizer = SimpleNamespace(session=SimpleNamespace(engine=engine))
    return SharedBatch(cast(Any, synthesizer), cast(Any, RecordingScheduler()), gate, Crowd())


def is_free(gate: PriorityGate) -> bool:
    return gate._held == 0


@pytest.fixture
def gate() -> PriorityGate:
    return PriorityGate(1)


@pytest.fixture
def shared(gate: PriorityGate) -> SharedBatch:
    return shared_batch(gate)


def job_of(shared: SharedBatch, *, starts_prompts: bool = True) -> JobScheduler:
    return JobScheduler(shared, Listener(ToyCodec(), 0.5), starts_prompts=starts_prompts)


def submit(job: JobScheduler, name: str) -> None:
    job.submit(cast(Request, SimpleNamespace(prompt=name)), SimpleQueue())


@pytest.mark.parametrize(("starts_prompts", "expected"), [(True, ["state of a", "state of b"]), (False, [None, None])])
def test_the_first_turn_lasts_until_the_first_prompt_is_encoded(gate, shared, starts_prompts, expected):
    job = job_of(shared, starts_prompts=starts_prompts)
    with job.first_turn():
        assert not is_free(gate), "the text is prepared"
        submit(job, "a")
        assert is_free(gate)
        submit(job, "b")
        assert is_free(gate)
    assert cast(Any, shared.scheduler).states == expected


def test_a_text_that_cannot_be_spoken_frees_the_place(gate, shared):
    with pytest.raises(ValueError), job_of(shared).first_turn():
        raise ValueError
    assert is_free(gate)


def test_a_job_that_ended_while_it_waited_does_not_begin(gate, shared):
    job = job_of(shared)
    job.end()
    with pytest.raises(JobEnded), job.first_turn():
        pass
    assert is_free(gate)
