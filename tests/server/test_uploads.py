"""Uploads: callers take turns, and a book delays no recording."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from marstts.server.api_errors import ApiError
from marstts.server.book_parts import cut
from marstts.server.uploads import UploadQueue


def test_another_caller_waits_for_the_work_at_hand_alone() -> None:
    async def run() -> list[str]:
        queue, done, free = UploadQueue(8, 10.0, "test"), [], threading.Event()
        tasks = [asyncio.ensure_future(queue.run("a", free.wait))]
        tasks += [asyncio.ensure_future(queue.run("a", lambda n=n: done.append(f"a{n}"))) for n in range(3)]
        await asyncio.sleep(0.01)
        tasks += [asyncio.ensure_future(queue.run("b", lambda n=n: done.append(f"b{n}"))) for n in range(2)]
        await asyncio.sleep(0.01)
        free.set()
        await asyncio.gather(*tasks)
        queue.close()
        return done

    assert asyncio.run(run()) == ["b0", "a0", "b1", "a1", "a2"]


def test_in_a_full_queue_the_greediest_caller_gives_way_and_a_left_turn_is_passed_on() -> None:
    async def run() -> None:
        queue, free = UploadQueue(3, 10.0, "test"), threading.Event()
        tasks = [asyncio.ensure_future(queue.run("a", free.wait)) for _ in range(4)]
        await asyncio.sleep(0.01)
        with pytest.raises(ApiError):
            await queue.run("a", free.wait)
        other = asyncio.ensure_future(queue.run("b", lambda: "done"))
        await asyncio.sleep(0.01)
        with pytest.raises(ApiError, match="Try again later"):
            await tasks[3]
        tasks[1].cancel()
        free.set()
        assert await other == "done" and await tasks[2]
        queue.close()

    asyncio.run(run())


def test_work_that_fails_or_waits_too_long_frees_its_place() -> None:
    async def run() -> None:
        queue, free = UploadQueue(3, 0.05, "test"), threading.Event()
        first = asyncio.ensure_future(queue.run("a", free.wait))
        await asyncio.sleep(0)
        with pytest.raises(ApiError):
            await queue.run("b", lambda: None)
        free.set()
        await first
        with pytest.raises(ZeroDivisionError):
            await queue.run("a", lambda: 1 // 0)
        assert await queue.run("b", lambda: 5) == 5
        queue.close()

    asyncio.run(run())


@pytest.mark.parametrize("piece", ["A. ", "a.) ", "ab ", "a"])
def test_a_paragraph_without_sentences_is_divided_in_linear_time(piece: str) -> None:
    started, text = time.process_time(), piece * (400_000 // len(piece))
    parts = list(cut(text, 4096))
    assert time.process_time() - started < 4.0 and all(len(part) <= 4096 for part in parts)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
