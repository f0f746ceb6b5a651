"""The measurements, each a function from a `Case` to rows of figures.

Upstream: `plan.Case`.  Downstream: `runner`, which starts
`python -m marstts_lab.benchmark.measures` for each case, with the case as JSON in and rows as JSON out: caches,
threads and peak memory of one case must not influence another.
A row is a flat dictionary, see docs/performance.md. Times are wall time; lengths are fixed, so that every engine
generates the same number of patches; random numbers come from fixed seeds.
"""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from marstts.errors import BenchmarkError, MarsError
from marstts.generation.loop import RunningBatch, step
from marstts.generation.request import Limits, Prompt, Request
from marstts.generation.scheduler import AsyncScheduler
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.loading import load
from marstts.synthesis.speech import Chunk
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice
from marstts_lab.benchmark.inputs import fixed_length_backoff, random_voice, sample_text
from marstts_lab.benchmark.plan import Case, Measure

Figures = dict[str, Any]

AUDIBLE = 1e-3
"""Magnitude (-60 dB below full scale) of the first sample that counts as audible."""

WARM_UP_SECONDS = 1.0


def measure(case: Case) -> list[Figures]:
    """Rows of figures, each starting with the case it belongs to."""
    functions: dict[Measure, Callable[[Case], list[Figures]]] = {
        Measure.TOKENS: measure_tokens,
        Measure.SPEECH: measure_speech,
        Measure.CONCURRENCY: measure_concurrency,
        Measure.MEMORY: measure_memory,
        Measure.COLD_START: measure_cold_start,
    }
    variant = {"measure": case.measure.value, "model": case.label, "engine": case.engine, "weights": case.weights}
    return [{**variant, **row} for row in functions[case.measure](case)]


def measure_tokens(case: Case) -> list[Figures]:
    """Token generation alone, from prompts to patches. `rtf` is per second of speech of all texts together."""
    tts = load(case.model, case.engine)
    sizes = [(1, seconds) for seconds in case.lengths]
    sizes += [(batch, case.reference_seconds) for batch in case.batches if (batch, case.reference_seconds) not in sizes]
    rows = []
    for batch, seconds in sizes:
        patches = num_patches(tts, seconds)
        time_patches(tts, batch, seconds, min(patches, num_patches(tts, WARM_UP_SECONDS)))
        times = [time_patches(tts, batch, seconds, patches) for _ in range(num_runs(case, seconds))]
        first, total = min(times, key=lambda one: one[1])
        audio = batch * patches / tts.session.codec.spec.patch_rate
        rows.append(
            {
                "batch": batch,
                "seconds": seconds,
                "rtf": total / audio,
                "tokens_per_second": batch * patches * tts.session.engine.layout.patch_size / total,
                "first_patch_seconds": first,
            }
        )
    return rows


def num_runs(case: Case, seconds: float) -> int:
    """Runs of a measurement of this length."""
    return case.runs if seconds <= case.reference_seconds else 1


def time_patches(tts: Synthesizer, batch: int, seconds: float, patches: int) -> tuple[float, float]:
    """Seconds until the first patch and until the last one, for `batch` texts of that length."""
    requests = [fixed_request(tts, sample_prompt(tts, seconds), patches, seed) for seed in range(batch)]
    started = time.perf_counter()
    running = step(tts.session.engine, RunningBatch(), requests)
    first = time.perf_counter() - started
    while running.active:
        running = step(tts.session.engine, running)
    assert all(len(row.patches) == patches for row in running.rows)
    return first, time.perf_counter() - started


def fixed_request(tts: Synthesizer, prompt: Prompt, patches: int, seed: int) -> Request:
    """A request for exactly this many patches with the default sampling parameters."""
    return Request(
        prompt, tts.session.sampling.top_p, Limits(patches, patches), np.random.default_rng(seed), tts.session.sampling
    )


def sample_prompt(tts: Synthesizer, seconds: float) -> Prompt:
    """The prompt of a sample text in a random voice."""
    return tts.session.model.prompt(sample_text(seconds), random_voice(tts))


def num_patches(tts: Synthesizer, seconds: float) -> int:
    """Patches in this many seconds of audio, rounded up."""
    return max(1, math.ceil(seconds * tts.session.codec.spec.patch_rate))


def with_backoff(tts: Synthesizer, backoff: BackoffConfig) -> Synthesizer:
    """The synthesizer with other rules of when a take is sampled again."""
    return replace(tts, session=replace(tts.session, backoff=backoff))


def measure_speech(case: Case) -> list[Figures]:
    """Text to audio, codec included. `rtf` is per second of tokens: audio trimmed from takes counts as speech."""
    started = time.perf_counter()
    tts = with_backoff(load(case.model, case.engine), fixed_length_backoff())
    loading = time.perf_counter() - started
    voice = random_voice(tts)
    tts.speak(sample_text(WARM_UP_SECONDS), voice)
    rows = []
    for seconds in case.lengths:
        speeches = [tts.speak(sample_text(seconds), voice, seed=seed) for seed in range(num_runs(case, seconds))]
        speech = min(speeches, key=lambda one: one.compute_seconds)
        audio = sum(len(take.codes[0]) for take in speech.takes) / tts.session.codec.spec.patch_rate
        rows.append({"seconds": seconds, "rtf": speech.compute_seconds / audio, "load_seconds": loading})
    return rows


def measure_concurrency(case: Case) -> list[Figures]:
    """Latency with concurrent callers: each asks for a few seconds, reads the whole stream, and asks again."""
    tts = with_backoff(load(case.model, case.engine), fixed_length_backoff())
    rows = []
    for callers in case.concurrency:
        each = -(-case.requests // callers)
        started = time.perf_counter()
        latencies = run_concurrent(tts, callers, each + 1, case.caller_seconds)
        total = time.perf_counter() - started
        counted = np.array([latency for of_caller in latencies for latency in of_caller[1:]])
        rows.append(
            {
                "concurrency": callers,
                "seconds": case.caller_seconds,
                "requests": len(counted),
                "first_audible_p50": float(np.percentile(counted, 50)),
                "first_audible_p95": float(np.percentile(counted, 95)),
                "rtf": total / (callers * (each + 1) * case.caller_seconds),
            }
        )
    return rows


def run_concurrent(tts: Synthesizer, callers: int, requests: int, seconds: float) -> list[list[float]]:
    """Latency of the first audible sample of each request, per caller."""
    voice, text = random_voice(tts), sample_text(seconds)

    def call(caller: int) -> list[float]:
        seeds = range(caller * requests, (caller + 1) * requests)
        return [first_audible_seconds(tts.stream(text, voice, seed=seed, scheduler=scheduler)) for seed in seeds]

    with AsyncScheduler(tts.session.engine, capacity=callers) as scheduler, ThreadPoolExecutor(callers) as pool:
        return list(pool.map(call, range(callers)))


def first_audible_seconds(chunks: Iterator[Chunk]) -> float:
    """Seconds until the first audible sample; consumes the whole stream. Infinite where no sample is audible."""
    started, latency = time.perf_counter(), math.inf
    for chunk in chunks:
        if math.isinf(latency) and np.abs(chunk.samples).max(initial=0.0) >= AUDIBLE:
            latency = time.perf_counter() - started
    return latency


def measure_memory(case: Case) -> list[Figures]:
    """Peak memory of loading and of speaking once at the reference length."""
    tts = with_backoff(load(case.model, case.engine), fixed_length_backoff())
    tts.speak(sample_text(case.reference_seconds), random_voice(tts))
    row = {"seconds": case.reference_seconds, "peak_megabytes": peak_megabytes()}
    if case.engine == "cuda":
        import torch  # not part of the light install

        row["gpu_peak_megabytes"] = torch.cuda.max_memory_allocated() / 2**20
    return [row]


def measure_cold_start(case: Case) -> list[Figures]:
    """Time from the start of a new process to the first sample in its pipe, with a warm disk cache."""
    voice = random_voice(load(case.model, case.engine))
    times = [
        first_sample_seconds(case.model, case.engine, sample_text(WARM_UP_SECONDS), voice) for _ in range(case.runs + 1)
    ]
    return [{"first_sample_seconds": min(times)}]


SAMPLE_BYTES = 2


def first_sample_seconds(model: str, engine: str, text: str, voice: Voice) -> float:
    """Seconds from the start of a `marstts speak --stream` process to its first sample."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.voice"
        voice.save(path)
        command = [sys.executable, "-m", "marstts", "speak", text, "--model", model, "--voice", str(path)]
        return first_output_seconds([*command, "--engine", engine, "--stream", "--output", "-"], SAMPLE_BYTES)


def first_output_seconds(command: list[str], count: int) -> float:
    """Seconds until a command has written `count` bytes to standard output; waits for the end of the command."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        received = process.stdout.read(count)
        seconds = time.perf_counter() - started
        _, errors = process.communicate()
    if process.returncode or len(received) < count:
        raise BenchmarkError(f"{shlex.join(command)} failed: {errors.decode(errors='replace').strip()}")
    return seconds


def peak_megabytes() -> float:
    """Peak memory of this process.

    Linux counts it per program; `getrusage` may include the memory of the parent at the time of the fork.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        [line] = [line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def main() -> None:
    """Read the case from standard input, and print the rows or exit with a sentence."""
    try:
        rows = measure(Case.model_validate_json(sys.stdin.read()))
    except MarsError as error:
        sys.exit(str(error))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
