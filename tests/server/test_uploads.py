"""Uploads: callers take turns, and a book delays no recording."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shutil
import threading
import time
import zipfile
from pathlib import Path

import pytest

from marstts.errors import DataError
from marstts.server.api_errors import ApiError
from marstts.server.book_parts import REFUSED, cut, main, parts_in_process
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


def test_between_two_steps_of_work_another_callers_work_is_done() -> None:
    async def run() -> list[str]:
        queue, done, free = UploadQueue(1, 10.0, "test"), [], threading.Event()

        def step() -> tuple[int] | None:
            free.wait()
            done.append("a")
            return (7,) if done.count("a") == 3 else None

        heavy = asyncio.ensure_future(queue.run_steps("a", step))
        await asyncio.sleep(0.01)
        other = asyncio.ensure_future(queue.run("b", lambda: done.append("b")))  # fills the queue
        await asyncio.sleep(0.01)
        free.set()
        assert await heavy == 7
        await other
        queue.close()
        return done

    assert asyncio.run(run()) == ["a", "b", "a", "a"]


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


def test_where_two_callers_may_work_each_has_one_work_at_a_time() -> None:
    async def run() -> list[str]:
        queue, done, free = UploadQueue(8, 10.0, "test", at_once=2), [], threading.Event()
        heavy = asyncio.ensure_future(queue.run("a", free.wait))
        second = asyncio.ensure_future(queue.run("a", lambda: done.append("a")))
        await queue.run("b", lambda: done.append("b"))  # though the other caller's work goes on
        await queue.run("b", lambda: done.append("b"))
        free.set()
        await asyncio.gather(heavy, second)
        queue.close()
        return done

    assert asyncio.run(run()) == ["b", "b", "a"]


def test_three_callers_share_two_places_in_turn() -> None:
    async def run() -> list[str]:
        queue, done, free = UploadQueue(8, 10.0, "test", at_once=2), [], threading.Event()
        tasks = [asyncio.ensure_future(queue.run(owner, free.wait)) for owner in "ab"]
        await asyncio.sleep(0.01)
        tasks += [asyncio.ensure_future(queue.run(owner, lambda o=owner: done.append(o))) for owner in "abc"]
        await asyncio.sleep(0.01)
        free.set()
        await asyncio.gather(*tasks)
        queue.close()
        return done

    assert sorted(asyncio.run(run())) == ["a", "b", "c"]


def test_a_book_takes_no_time_of_the_server() -> None:
    content = epub_of("<p>On 12/25/2024, at 10:30, $5.3m of 1,234.</p>" * 100_000)
    started = time.process_time()
    with contextlib.suppress(DataError):  # on a slow processor it takes longer than a book may
        parts_in_process(content, "a.epub", 4096)
    assert time.process_time() - started < 0.5


def test_a_book_that_a_busy_machine_does_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marstts.server.book_parts.MAX_SECONDS", 0.01)
    with pytest.raises(DataError, match=r"^a\.txt: the file takes too long"):
        parts_in_process(b"It rained.", "a.txt", 4096)


def test_a_process_that_ends_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    with pytest.raises(DataError, match=r"^a\.txt: the file could not be read; give it in smaller files$"):
        parts_in_process(b"It rained.", "a.txt", 4096)


def test_a_book_without_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsysbinary) -> None:
    def fail(path: Path) -> None:
        raise MemoryError

    monkeypatch.setattr("marstts.server.book_parts.read_book", fail)
    monkeypatch.setattr("marstts.server.book_parts.MAX_MEMORY_BYTES", -1)  # none: that of the tests stays as it is
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"path": "/a", "name": "a.txt", "max_characters": 9})))
    assert main() == REFUSED
    assert capsysbinary.readouterr().out == b"a.txt: the file takes too much memory to read; give it in smaller files"


def epub_of(body: str) -> bytes:
    """A book of one part."""
    package = (
        '<package><metadata/><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/></spine></package>'
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        container = '<container><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>'
        for name, content in {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": container,
            "b.opf": package,
            "a.xhtml": f"<html><body>{body}</body></html>",
        }.items():
            archive.writestr(name, content)
    return out.getvalue()
