"""Load test of the speech server over loopback: first audio, dry buffers, refusals and throughput by number of callers.

    python benchmarks/serve_load.py --concurrency 1 8 24 --output serve_load.json

Starts a server of the model in this process, on a free port, and calls it from threads. All callers begin at once, with
different texts, and read raw PCM. A buffer is dry while a listener who began to play at the first bytes has none left.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from marstts.server.app import create_app
from marstts.server.base import Server
from marstts.server.service import measure_listeners
from marstts.server.settings import ServeSettings
from marstts.synthesis.loading import load

TEXTS = (
    "The quick brown fox jumps over the lazy dog, and then it rests for a while in the shade of an old tree.",
    "She had not expected to find the door open. Nobody answered when she called, so she went in.",
    "Trains to the coast leave every hour. The last one departs a little after ten in the evening.",
    "It was a bright cold day in April, and all the clocks in the town were striking at the same time.",
)
BYTES_PER_SECOND = 48_000


@dataclass(frozen=True)
class Call:
    """One request as its caller saw it."""

    status: int
    first_seconds: float
    total_seconds: float
    audio_seconds: float
    dry_seconds: float
    retry_after: int | None


def call(host: str, port: int, number: int) -> Call:
    """Ask for speech and read it."""
    body = json.dumps(
        {
            "model": "tts-1",
            "voice": "alloy",
            "input": TEXTS[number % len(TEXTS)],
            "response_format": "pcm",
            "seed": number,
        }
    )
    started = time.perf_counter()
    connection = HTTPConnection(host, port, timeout=120)
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    first = dry = played_until = 0.0
    count = 0
    while block := response.read1(65_536):
        now = time.perf_counter() - started
        if count == 0:
            first = played_until = now
        dry, played_until = dry + max(0.0, now - played_until), max(played_until, now)
        played_until += len(block) / BYTES_PER_SECOND
        count += len(block)
    total, retry = time.perf_counter() - started, response.headers.get("Retry-After")
    connection.close()
    audio = count / BYTES_PER_SECOND if response.status == 200 else 0.0
    return Call(response.status, first, total, audio, dry, None if retry is None else int(retry))


def measure(host: str, port: int, callers: int) -> dict[str, Any]:
    """All callers at once -> what they saw."""
    started, cpu_started = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(callers) as pool:
        calls = list(pool.map(lambda number: call(host, port, number), range(callers)))
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    audio = sum(one.audio_seconds for one in calls)
    served = sorted((one for one in calls if one.status == 200), key=lambda one: one.first_seconds)
    firsts = [one.first_seconds for one in served]
    return {
        "callers": callers,
        "served": len(served),
        "refused": sum(one.status == 429 for one in calls),
        "retry_after_seconds": sorted({one.retry_after for one in calls if one.retry_after is not None}),
        "first_audio_p50_seconds": round(statistics.median(firsts), 3),
        "first_audio_p95_seconds": round(firsts[min(len(firsts) - 1, int(0.95 * len(firsts)))], 3),
        "largest_dry_seconds": round(max(one.dry_seconds for one in served), 3),
        "audio_seconds": round(sum(one.audio_seconds for one in served), 2),
        "wall_seconds": round(wall, 2),
        "cpu_seconds_per_audio_second": round(cpu / audio, 4),
        "load_average": os.getloadavg()[0],
        "realtime_factor": round(sum(one.audio_seconds for one in served) / wall, 2),
        "calls": [asdict(one) for one in calls],
    }


def commit() -> str:
    """The commit of the working tree, as `git describe` names it."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Serve, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--capacity", type=int, default=ServeSettings().capacity)
    parser.add_argument("--listeners", type=int, help="requests spoken at a time; otherwise measured")
    parser.add_argument("--queue", type=int, default=ServeSettings().queue)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8, 24])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if not all(1 <= callers <= 64 for callers in options.concurrency):
        parser.error("--concurrency: 1 to 64")
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        synthesizer = load(options.model)
        listeners = options.listeners or measure_listeners(synthesizer, options.capacity)
        settings = ServeSettings(
            capacity=options.capacity, listeners=listeners, queue=options.queue, voices_folder=Path(folder)
        )
        app = create_app(synthesizer, settings)
        with Server(app, "127.0.0.1", 0) as server:
            host, port = server.socket.getsockname()
            thread = threading.Thread(target=server.serve)
            thread.start()
            call(host, port, 0)  # opens the voice
            rows = [measure(host, port, callers) for callers in options.concurrency]
            server.stop()
            thread.join()
            app.state.service.close()
    report = {
        "model": options.model,
        "capacity": options.capacity,
        "listeners": listeners,
        "queue": options.queue,
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "load_average_before": load_before,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "results": rows,
    }
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    for row in rows:
        print({name: value for name, value in row.items() if name != "calls"})


if __name__ == "__main__":
    main()
