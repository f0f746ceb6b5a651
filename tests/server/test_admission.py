"""Who is spoken now, who waits, and who is refused with a time to try again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from marstts.server.admission import FIRST_ESTIMATE, MAX_RETRY_SECONDS, Admission, Throughput
from marstts.server.api_errors import ApiError
from marstts.server.app import create_app
from marstts.server.service import SpeechService, measure_listeners
from marstts.server.settings import ServeSettings
from marstts.server.speech_job import FilePiece
from scripted import ScriptedPrompt, ScriptedTake, good, scripted_synthesizer

pytestmark = pytest.mark.slow


def admission(places: int = 2, queue: int = 3, max_wait: float = 5.0) -> Admission:
    return Admission(places, queue, max_wait, Throughput())


async def let_tasks_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_places_go_to_those_who_wait_in_the_order_of_their_arrival():
    async def run() -> list[int]:
        gate, order = admission(places=1), []

        async def caller(number: int) -> None:
            ticket = await gate.enter(1.0)
            order.append(number)
            await let_tasks_run()
            gate.leave(ticket)

        await asyncio.gather(*(caller(number) for number in range(4)))
        assert gate.num_active == gate.num_waiting == 0 and gate.owed_seconds == 0
        return order

    assert asyncio.run(run()) == [0, 1, 2, 3]


def test_a_full_queue_refuses_with_the_time_that_the_owed_audio_takes():
    async def run() -> ApiError:
        gate = admission(places=1, queue=1)
        await gate.enter(20.0)
        waiting = asyncio.ensure_future(gate.enter(10.0))
        await let_tasks_run()
        with pytest.raises(ApiError) as caught:
            await gate.enter(1.0)
        waiting.cancel()
        return caught.value

    error = asyncio.run(run())
    assert error.status == 429 and error.code == "rate_limit_exceeded"
    assert int(error.headers()["Retry-After"]) == pytest.approx(30.0 / FIRST_ESTIMATE, abs=1)


def test_a_request_that_waits_too_long_is_refused_and_removed():
    async def run() -> None:
        gate = admission(places=1, max_wait=0.02)
        first = await gate.enter(1.0)
        with pytest.raises(ApiError) as caught:
            await gate.enter(1.0)
        assert caught.value.status == 429 and gate.num_waiting == 0
        gate.leave(first)
        assert gate.num_active == 0

    asyncio.run(run())


def test_a_canceled_request_leaves_its_turn_to_the_next():
    async def run() -> None:
        gate = admission(places=1)
        first = await gate.enter(1.0)
        quitter, patient = (asyncio.ensure_future(gate.enter(1.0)) for _ in range(2))
        await let_tasks_run()
        quitter.cancel()
        await let_tasks_run()
        assert gate.num_waiting == 1
        gate.leave(first)
        ticket = await patient
        assert gate.num_active == 1
        gate.leave(ticket)
        assert gate.num_active == 0

    asyncio.run(run())


def test_a_place_given_to_a_request_that_is_canceled_at_that_moment_is_free_again():
    async def run() -> None:
        gate = admission(places=1)
        first = await gate.enter(1.0)
        quitter = asyncio.ensure_future(gate.enter(1.0))
        await let_tasks_run()
        gate.leave(first)  # the place is the quitter's now, who does not know yet
        quitter.cancel()
        await let_tasks_run()
        assert gate.num_active == 0

    asyncio.run(run())


def test_throughput_is_audio_per_busy_second():
    now = 0.0
    throughput = Throughput(lambda: now)
    throughput.set_busy(True)
    now = 10.0
    throughput.add(80.0)
    throughput.set_busy(False)
    now = 1000.0
    assert throughput.factor == pytest.approx((80.0 + FIRST_ESTIMATE) / 11.0)


def test_old_throughput_is_forgotten():
    now = 0.0
    throughput = Throughput(lambda: now)
    throughput.set_busy(True)
    for _ in range(200):
        now += 1.0
        throughput.add(12.0)
        _ = throughput.factor
    assert throughput.factor == pytest.approx(12.0, rel=0.01)
    for _ in range(200):
        now += 1.0
        throughput.add(3.0)
        _ = throughput.factor
    assert throughput.factor == pytest.approx(3.0, rel=0.05)


def test_retry_after_is_no_longer_than_clients_wait():
    async def run() -> float:
        gate = admission(places=1)
        await gate.enter(1e6)
        return gate.retry_after()

    assert asyncio.run(run()) == MAX_RETRY_SECONDS


def test_a_free_place_goes_to_the_caller_with_the_fewest_requests_at_work():
    async def run() -> list[str]:
        gate, order = admission(places=2, queue=9), []
        first = [await gate.enter(1.0, "many"), await gate.enter(1.0, "many")]

        async def caller(owner: str) -> None:
            await gate.enter(1.0, owner)
            order.append(owner)

        tasks = [asyncio.ensure_future(caller(owner)) for owner in ("many", "many", "few")]
        await let_tasks_run()
        gate.leave(first[0])
        await let_tasks_run()
        for task in tasks:
            task.cancel()
        return order

    assert asyncio.run(run()) == ["few"]


def test_in_a_full_queue_the_caller_who_waits_most_makes_room():
    async def run() -> list[str]:
        gate, refused = admission(places=1, queue=3), []
        await gate.enter(1.0, "other")

        async def caller(owner: str, number: int) -> None:
            try:
                await gate.enter(1.0, owner)
            except ApiError as error:
                assert error.status == 429
                refused.append(f"{owner} {number}")

        tasks = [asyncio.ensure_future(caller("many", number)) for number in range(4)]
        await let_tasks_run()
        tasks.append(asyncio.ensure_future(caller("few", 0)))
        await let_tasks_run()
        assert gate.num_waiting == 3
        for task in tasks:
            task.cancel()
        return refused

    assert asyncio.run(run()) == ["many 3", "many 2"]


def test_as_many_streams_as_rows_are_measured_at_a_time(monkeypatch):
    together = threading.Barrier(5, timeout=10.0)

    def pieces(*arguments: object) -> Iterator[FilePiece]:
        together.wait()
        yield FilePiece(b"", audio_seconds=1e6)

    monkeypatch.setattr("marstts.server.service.make_pieces", pieces)
    assert measure_listeners(scripted_synthesizer(good), 5) > 1000


@pytest.mark.parametrize(("listeners", "expected"), [(3, 3), (100, 8)])
def test_a_service_that_was_warmed_up_has_spoken_for_its_callers_and_is_idle(
    tmp_path: Path, listeners: int, expected: int
):
    prompts: list[str] = []

    def script(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
        prompts.append(prompt.text)
        return ScriptedTake(30)

    settings = ServeSettings(listeners=listeners, capacity=4, voices_folder=tmp_path)
    with closing(SpeechService(scripted_synthesizer(script), settings)) as service:
        service.warm_up()
        assert len(set(prompts)) >= 3 and len(prompts) >= expected
        assert service.admission.num_active == 0 and not service.scheduler.is_busy


def test_an_application_without_settings_was_measured_and_warmed_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    prompts: list[str] = []

    def script(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
        prompts.append(prompt.text)
        return ScriptedTake(30)

    monkeypatch.setattr("marstts.server.app.measure_listeners", lambda synthesizer, capacity: 3)
    with closing(create_app(scripted_synthesizer(script)).state.service) as service:
        assert service.settings.listeners == 3
        assert len(set(prompts)) >= 3 and not service.scheduler.is_busy


def test_an_application_that_cannot_be_warmed_up_leaves_no_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("marstts.server.app.measure_listeners", lambda synthesizer, capacity: 3)

    def fail(attempt: int, prompt: ScriptedPrompt) -> ScriptedTake:
        raise RuntimeError("the model is broken")

    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="the model is broken"):
        create_app(scripted_synthesizer(fail))
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    ("measured", "factor", "expected"), [(1, 40.0, 22), (7, 40.0, 22), (30, 40.0, 30), (1, 4000.0, 256)]
)
def test_a_server_that_was_busy_when_it_was_measured_adapts_places_later(
    tmp_path: Path, measured: int, factor: float, expected: int
):
    settings = ServeSettings(listeners=measured, capacity=4, adapts_places=True, voices_folder=tmp_path)

    async def run(service: SpeechService) -> tuple[int, int]:
        service.admission.throughput = Throughput(estimate=factor)
        tickets = [await service.admission.enter(1.0) for _ in range(measured)]
        waiting = asyncio.ensure_future(service.admission.enter(1.0))
        await let_tasks_run()
        service.note_made(tickets[0], FilePiece(b"", audio_seconds=60.0, num_tokens=0))
        await let_tasks_run()
        waiting.cancel()
        return service.admission.places, service.admission.num_active

    with closing(SpeechService(scripted_synthesizer(good), settings)) as service:
        places, num_active = asyncio.run(run(service))
    assert expected - 3 <= places <= expected  # the busy time counts, too
    assert num_active == measured + (expected > measured)


@pytest.mark.parametrize(
    ("factor", "dry_seconds", "expected"),
    [(8.0, 0.4, 4), (1.0, 2.0, 1), (20.0, 0.01, 11), (30.0, 0.5, 16), (1.0, 0.0, 12)],
)
def test_fewer_are_admitted_while_the_machine_makes_too_little_for_them(
    tmp_path: Path, factor: float, dry_seconds: float, expected: int
):
    settings = ServeSettings(listeners=12, capacity=4, adapts_places=True, voices_folder=tmp_path)

    async def run(service: SpeechService) -> tuple[int, int]:
        service.admission.throughput = Throughput(estimate=factor)
        tickets = [await service.admission.enter(1.0) for _ in range(12)]
        service.note_made(tickets[0], FilePiece(b"", dry_seconds=dry_seconds))
        places = service.admission.places
        for ticket in tickets:
            service.admission.leave(ticket)
        service.admission.throughput = Throughput(estimate=40.0)
        service.note_made(await service.admission.enter(1.0), FilePiece(b""))
        return places, service.admission.places

    with closing(SpeechService(scripted_synthesizer(good), settings)) as service:
        places, later = asyncio.run(run(service))
    assert expected - 1 <= places <= expected and 20 <= later <= 22  # the busy time counts, too


@pytest.mark.parametrize(
    ("factor", "dry_seconds", "expected"), [(8.0, 0.4, 4), (1.0, 2.0, 1), (40.0, 0.5, 12), (1.0, 0.0, 12)]
)
def test_a_number_of_listeners_that_was_chosen_is_lowered_while_buffers_run_dry_and_never_raised_beyond(
    tmp_path: Path, factor: float, dry_seconds: float, expected: int
):
    settings = ServeSettings(listeners=12, capacity=4, queue=0, voices_folder=tmp_path)

    async def run(service: SpeechService) -> tuple[int, int]:
        service.admission.throughput = Throughput(estimate=factor)
        tickets = [await service.admission.enter(1.0) for _ in range(12)]
        service.note_made(tickets[0], FilePiece(b"", dry_seconds=dry_seconds))
        places = service.admission.places
        with pytest.raises(ApiError, match="The server is busy"):
            await service.admission.enter(1.0)
        for ticket in tickets:
            service.admission.leave(ticket)
        service.admission.throughput = Throughput(estimate=400.0)
        service.note_made(await service.admission.enter(1.0), FilePiece(b""))
        return places, service.admission.places

    with closing(SpeechService(scripted_synthesizer(good), settings)) as service:
        places, later = asyncio.run(run(service))
    assert expected - 1 <= places <= expected and later == 12  # the busy time counts, too


@pytest.mark.parametrize("pause_seconds", [1.0, 60.0, 600.0])
def test_pauses_are_no_sign_of_a_fast_machine(tmp_path: Path, pause_seconds: float):
    settings = ServeSettings(listeners=2, capacity=4, adapts_places=True, voices_folder=tmp_path)

    async def run(service: SpeechService) -> int:
        ticket = await service.admission.enter(1.0)
        service.note_made(ticket, FilePiece(b"", audio_seconds=pause_seconds, num_tokens=0))
        return service.admission.places

    with closing(SpeechService(scripted_synthesizer(good), settings)) as service:
        assert asyncio.run(run(service)) == 2
