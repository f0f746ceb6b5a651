"""All measurements of the speech server on one machine: callers, refusals, leavers, and the engine by itself.

    python tools/serve_bars.py --output docs/results/server/bars.json

Servers run as `marstts serve` in separate processes; the callers share this process, whose CPU time is not counted.
All callers begin at once, with different texts, and read raw PCM. A buffer is dry while a listener who began to play at
the first bytes has none left. The engine by itself is measured in the same minutes.
Takes about five minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

from marstts.bundle import label_of
from marstts.synthesis.loading import load

TEXTS = (
    "The quick brown fox jumps over the lazy dog, and then it rests for a while in the shade of an old tree.",
    "She had not expected to find the door open. Nobody answered when she called, so she went in.",
    "Trains to the coast leave every hour. The last one departs a little after ten in the evening.",
    "It was a bright cold day in April, and all the clocks in the town were striking at the same time.",
)
LONG_TEXT = " ".join(TEXTS * 4)
SHORT_TEXT, CONCURRENT = "Hello there.", 8
BYTES_PER_SECOND = 48_000
SERVE = "import typer; from marstts.cli.serve import serve; typer.run(serve)"
MAX_SECONDS = 180.0


@dataclass(frozen=True)
class Server:
    """A server in a separate process."""

    host: str
    port: int
    process_id: int

    def cpu_seconds(self) -> float:
        """CPU time of the process so far."""
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mebibytes(self) -> float:
        """Memory of the process that is resident."""
        status = Path(f"/proc/{self.process_id}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return round(int(found[1]) / 1024, 1)

    def metrics(self) -> dict[str, float]:
        """Metrics of the server that are single numbers."""
        with urlopen(f"http://{self.host}:{self.port}/metrics") as response:
            lines = response.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


@dataclass(frozen=True)
class Call:
    """One request as its caller saw it."""

    status: int
    first_seconds: float
    total_seconds: float
    audio_seconds: float
    dry_seconds: float
    retry_after: int | None


@contextmanager
def serving(*options: str) -> Iterator[Server]:
    """A server with these options."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SERVE, "--port", "0", "--voices", folder, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
            try:
                assert process.stdout is not None
                found = re.search(r"http://([\d.]+):(\d+)/", process.stdout.readline().decode())
                assert found, "the server did not start"
                server = Server(found[1], int(found[2]), process.pid)
                asyncio.run(call(server, 0))  # opens the voice
                yield server
            finally:
                process.terminate()
                process.wait(30)


def head(text: str, seed: int) -> bytes:
    """The bytes of a request."""
    fields = {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm", "seed": seed}
    body = json.dumps(fields).encode()
    lines = ("POST /v1/audio/speech HTTP/1.1", "Host: localhost", "Connection: close", "Content-Type: application/json")
    return "\r\n".join((*lines, f"Content-Length: {len(body)}", "", "")).encode() + body


async def chunks(reader: asyncio.StreamReader) -> Any:
    """The chunks of a chunked body."""
    while size := int(await reader.readline() or b"0", 16):
        yield await reader.readexactly(size)
        await reader.readline()


async def call(server: Server, number: int, text: str | None = None) -> Call:
    """Ask for speech and read it."""
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(head(text or TEXTS[number % len(TEXTS)], number))
    status = int((await reader.readline()).split()[1])
    headers = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    first = dry = played_until = 0.0
    count = 0
    if headers.get("transfer-encoding") == "chunked":
        async for block in chunks(reader):
            now = time.perf_counter() - started
            first, played_until = (first, played_until) if count else (now, now)
            dry, played_until = dry + max(0.0, now - played_until), max(played_until, now)
            played_until += len(block) / BYTES_PER_SECOND
            count += len(block)
    writer.close()
    retry = headers.get("retry-after")
    total = time.perf_counter() - started
    return Call(status, first, total, count / BYTES_PER_SECOND, dry, None if retry is None else int(retry))


async def all_at_once(server: Server, callers: int) -> list[Call]:
    """Calls that begin at the same time."""
    return await asyncio.gather(*(call(server, number) for number in range(callers)))


def measure(server: Server, callers: int) -> dict[str, Any]:
    """All callers at once -> what they saw."""
    started, cpu_started = time.perf_counter(), server.cpu_seconds()
    calls = asyncio.run(all_at_once(server, callers))
    wall, cpu = time.perf_counter() - started, server.cpu_seconds() - cpu_started
    served = sorted((one for one in calls if one.status == 200), key=lambda one: one.first_seconds)
    firsts, dry = [one.first_seconds for one in served], sorted(one.dry_seconds for one in served)
    audio = sum(one.audio_seconds for one in served)
    return {
        "callers": callers,
        "served": len(served),
        "refused": sum(one.status == 429 for one in calls),
        "other_statuses": sorted({one.status for one in calls} - {200, 429}),
        "retry_after_seconds": sorted({one.retry_after for one in calls if one.retry_after is not None}),
        "first_audio_p50_seconds": round(median(firsts), 3),
        "first_audio_p95_seconds": round(firsts[min(len(firsts) - 1, int(0.95 * len(firsts)))], 3),
        "listeners_with_dry_buffer": sum(seconds > 0.0 for seconds in dry),
        "largest_dry_seconds": round(dry[-1], 3),
        "audio_seconds": round(audio, 2),
        "wall_seconds": round(wall, 2),
        "realtime_factor": round(audio / wall, 2),
        "server_cpu_seconds_per_audio_second": round(cpu / audio, 4),
        "load_average": os.getloadavg()[0],
        "calls": [asdict(one) for one in calls],
    }


def measure_engine(model: str, callers: int, batches: list[int]) -> list[dict[str, float]]:
    """The same texts as one call of `speak_many`, for several sizes of the batch."""
    synthesizer, texts = load(model), [TEXTS[number % len(TEXTS)] for number in range(callers)]
    rows = []
    for batch in (batches[0], *batches):  # the first run of a process is slower, and not kept
        started, cpu_started = time.perf_counter(), time.process_time()
        results = synthesizer.speak_many(texts, "ada", seeds=list(range(callers)), batch=batch)
        audio = sum(result.speech.seconds for result in results if result.speech)
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
        factor, per_second = round(audio / wall, 2), round(cpu / audio, 4)
        rows.append({"rows": batch, "realtime_factor": factor, "cpu_seconds_per_audio_second": per_second})
    return rows[1:]


def leave(server: Server, *, while_waiting: bool) -> float:
    """Open a long stream and close the connection, in the middle or in the queue -> seconds until all is free."""

    async def leave_and_wait() -> float:
        streams = []
        for seed in range(2 if while_waiting else 1):
            streams.append(await asyncio.open_connection(server.host, server.port))
            streams[-1][1].write(head(LONG_TEXT, seed))
            if seed == 0:
                await streams[0][0].readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        streams[-1][1].transport.abort()
        left = time.perf_counter()
        while not is_free(server.metrics(), while_waiting) and time.perf_counter() < left + MAX_SECONDS:
            await asyncio.sleep(0.002)
        waited = time.perf_counter() - left
        streams[0][1].transport.abort()
        while not is_free(server.metrics(), False):
            await asyncio.sleep(0.01)
        return waited

    return asyncio.run(leave_and_wait())


def is_free(metrics: dict[str, float], while_waiting: bool) -> bool:
    """Whether nothing waits, and, unless another request runs, nothing runs."""
    waiting = metrics["marstts_waiting_requests"]
    running = metrics["marstts_active_requests"] + sum(
        value for name, value in metrics.items() if name.startswith("marstts_rows")
    )
    return waiting == 0 and (while_waiting or running == 0)


def measure_leavers(model: str, times: int) -> dict[str, list[float]]:
    """Seconds until the place and the rows of a client that left are free."""
    with serving("--model", model, "--capacity", "1", "--listeners", "1") as server:
        return {
            name: sorted(round(leave(server, while_waiting=while_waiting), 4) for _ in range(times))
            for name, while_waiting in (("listening", False), ("waiting", True))
        }


def measure_memory(server: Server, requests: int) -> list[float]:
    """Resident memory in MiB before, and after each tenth of many short requests, eight at a time."""

    async def some(start: int, count: int) -> None:
        for first in range(start, start + count, CONCURRENT):
            numbers = range(first, min(first + CONCURRENT, start + count))
            await asyncio.gather(*(call(server, number, SHORT_TEXT) for number in numbers))

    sizes = [server.resident_mebibytes()]
    for part in range(10):
        asyncio.run(some(part * requests // 10, requests // 10))
        sizes.append(server.resident_mebibytes())
    return sizes


def describe(command: list[str]) -> dict[str, Any]:
    """Command, date, commit and machine; of folders outside of this one only the name."""
    command = [Path(part).name if Path(part).is_absolute() else part for part in command]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "command": " ".join(["python", *command]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "load_average_before": os.getloadavg(),
    }


def main() -> None:
    """Measure all, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8, 24, 64])
    parser.add_argument("--one-at-a-time", type=int, nargs="*", default=[1, 8, 24])
    parser.add_argument("--listeners", type=int, help="requests spoken at a time; otherwise measured")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 16, 24], help="rows of the engine by itself")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each number of callers")
    parser.add_argument("--leavers", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1000, help="short requests, after which memory is compared")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    started, report = time.perf_counter(), {**describe(sys.argv), "models": label_of(options.model)}
    report["engine_by_itself"] = measure_engine(options.model, 24, options.batches)
    listeners = ("--listeners", str(options.listeners)) if options.listeners else ()
    with serving("--model", options.model, *listeners) as server:
        report["listeners"] = server.metrics()["marstts_places"]
        report["server"] = [measure(server, n) for n in options.concurrency for _ in range(options.repeat)]
        report["resident_mebibytes"] = measure_memory(server, options.requests)
    if options.one_at_a_time:
        lock = ("--capacity", "1", "--listeners", "1", "--queue", "64", "--max-wait", "120")
        with serving("--model", options.model, *lock) as server:
            report["one_request_at_a_time"] = [measure(server, n) for n in options.one_at_a_time]
    if options.leavers:
        report["seconds_until_free"] = measure_leavers(options.model, options.leavers)
    report["seconds_of_the_whole"] = round(time.perf_counter() - started, 1)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    for kind in ("engine_by_itself", "server", "one_request_at_a_time"):
        for row in report.get(kind, []):
            print(kind, {name: value for name, value in row.items() if name != "calls"})
    print(report["listeners"], "listeners;", report.get("seconds_until_free"))
    print("resident MiB", report["resident_mebibytes"], "; all took", report["seconds_of_the_whole"], "s")


if __name__ == "__main__":
    main()
