"""The measurements themselves, each a function from a `Case` to rows of figures.

Upstream: `plan.Case`.  Downstream: `child`, which runs one in a fresh process.
A row is a flat dictionary, see docs/speed.md. Times are wall time; lengths are forced, so that every engine says as
much; random numbers come from fixed seeds.
"""

from __future__ import annotations

import math
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from marstts.benchmark.plan import Case, Measure
from marstts.benchmark.texts import exact_length, passage, somebody
from marstts.engine.batcher import LiveBatcher
from marstts.errors import BenchmarkError
from marstts.mars6.generate import Batch, Job, Limits, Row, patch_draws, step
from marstts.mars6.prompt import Prompt, build_prompt
from marstts.synthesis.loading import load
from marstts.synthesis.stream import Chunk
from marstts.synthesis.synthesizer import Synthesizer

Figures = dict[str, Any]

AUDIBLE = 1e-3
"""The first sample of this magnitude, -60 dB below full scale, is where a listener's wait ends."""

WARM_UP_SECONDS = 1.0

SAMPLE_BYTES = 2


def measure(case: Case) -> list[Figures]:
    """Rows of figures, each beginning with which case it belongs to."""
    functions: dict[Measure, Callable[[Case], list[Figures]]] = {
        Measure.TOKENS: measure_tokens,
        Measure.SPEECH: measure_speech,
        Measure.CALLERS: measure_callers,
        Measure.MEMORY: measure_memory,
        Measure.START: measure_start,
        Measure.NAIVE: measure_naive,
    }
    about = {"measure": case.measure.value, "model": case.label, "engine": case.engine, "weights": case.weights}
    return [{**about, **row} for row in functions[case.measure](case)]


def measure_tokens(case: Case) -> list[Figures]:
    """Tokens alone: prompts in, patches out. `rtf` is per second of speech of all texts together."""
    tts = load(case.model, case.engine)
    sizes = [(1, seconds) for seconds in case.lengths]
    sizes += [(batch, case.reference_seconds) for batch in case.batches if (batch, case.reference_seconds) not in sizes]
    rows = []
    for batch, seconds in sizes:
        patches = num_patches(tts, seconds)
        make_patches(tts, batch, seconds, min(patches, num_patches(tts, WARM_UP_SECONDS)))
        times = [make_patches(tts, batch, seconds, patches) for _ in range(runs_of(case, seconds))]
        first, total = min(times, key=lambda one: one[1])
        audio = batch * patches / tts.codec.spec.patch_rate
        rows.append(
            {
                "batch": batch,
                "seconds": seconds,
                "rtf": total / audio,
                "tokens_per_second": batch * patches * tts.stepper.config.patch_size / total,
                "first_patch_seconds": first,
            }
        )
    return rows


def runs_of(case: Case, seconds: float) -> int:
    return case.runs if seconds <= case.reference_seconds else 1


def make_patches(tts: Synthesizer, batch: int, seconds: float, patches: int) -> tuple[float, float]:
    """Seconds until the first patch and until the last, for `batch` texts of that length."""
    jobs = [job(tts, prompt_of(tts, seconds), patches, seed) for seed in range(batch)]
    started = time.perf_counter()
    running = step(tts.stepper, Batch(), jobs)
    first = time.perf_counter() - started
    while running.speaking:
        running = step(tts.stepper, running)
    assert all(len(row.patches) == patches for row in running.rows)
    return first, time.perf_counter() - started


def job(tts: Synthesizer, prompt: Prompt, patches: int, seed: int) -> Job:
    """Exactly so many patches, sampled as by default."""
    return Job(prompt, tts.sampling.top_p, Limits(patches, patches), np.random.default_rng(seed), tts.sampling)


def prompt_of(tts: Synthesizer, seconds: float) -> Prompt:
    return build_prompt(passage(seconds), somebody(tts), tts.tokenizer, tts.stepper.config, tts.quality)


def num_patches(tts: Synthesizer, seconds: float) -> int:
    return max(1, math.ceil(seconds * tts.codec.spec.patch_rate))


def measure_naive(case: Case) -> list[Figures]:
    """The naive mode at the reference length, in PyTorch on the CPU with as many threads as PyTorch takes."""
    from marstts.benchmark.naive import Naive
    from marstts.checkpoint import load_mars6

    tts = load(case.model, case.engine)
    config, patches = tts.stepper.config, num_patches(tts, case.reference_seconds)
    spoken = job(tts, prompt_of(tts, case.reference_seconds), patches, seed=0)
    naive = Naive(load_mars6(case.model), spoken.prompt)
    codes = np.random.default_rng(1).integers(config.codebook_size, size=(patches, config.patch_size))
    said = codes + np.array(config.position_levels) * config.codebook_size
    draws = patch_draws([Row.begin(spoken, config)], config)
    naive.patch(said[:1], draws)
    timed = range(0, patches, case.naive_every)
    seconds = [fastest(partial(naive.patch, said[:number], draws), case.runs) for number in timed]
    rtf = float(np.mean(np.interp(range(patches), timed, seconds))) * tts.codec.spec.patch_rate
    return [{"batch": 1, "seconds": case.reference_seconds, "rtf": rtf, "timed_patches": len(timed)}]


def fastest(work: Callable[[], object], runs: int) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def measure_speech(case: Case) -> list[Figures]:
    """Text to audio, codec included. `rtf` is per second of tokens: what is trimmed from takes counts as spoken."""
    started = time.perf_counter()
    tts = replace(load(case.model, case.engine), backoff=exact_length())
    loading = time.perf_counter() - started
    voice = somebody(tts)
    tts.speak(passage(WARM_UP_SECONDS), voice)
    rows = []
    for seconds in case.lengths:
        speeches = [tts.speak(passage(seconds), voice, seed=seed) for seed in range(runs_of(case, seconds))]
        speech = min(speeches, key=lambda one: one.compute_seconds)
        audio = sum(len(take.codes[0]) for take in speech.takes) / tts.codec.spec.patch_rate
        rows.append({"seconds": seconds, "rtf": speech.compute_seconds / audio, "load_seconds": loading})
    return rows


def measure_callers(case: Case) -> list[Figures]:
    """Every caller asks for a few seconds, reads all of the stream, and asks again."""
    tts = replace(load(case.model, case.engine), backoff=exact_length())
    rows = []
    for callers in case.callers:
        each = -(-case.requests // callers)
        started = time.perf_counter()
        waits = ask_at_once(tts, callers, each + 1, case.caller_seconds)
        total = time.perf_counter() - started
        counted = np.array([wait for own in waits for wait in own[1:]])
        rows.append(
            {
                "callers": callers,
                "seconds": case.caller_seconds,
                "requests": len(counted),
                "first_audible_p50": float(np.percentile(counted, 50)),
                "first_audible_p95": float(np.percentile(counted, 95)),
                "rtf": total / (callers * (each + 1) * case.caller_seconds),
            }
        )
    return rows


def ask_at_once(tts: Synthesizer, callers: int, requests: int, seconds: float) -> list[list[float]]:
    """How long each caller waited for the first audible sample of each request."""
    voice, text = somebody(tts), passage(seconds)

    def call(caller: int) -> list[float]:
        seeds = range(caller * requests, (caller + 1) * requests)
        return [first_audible(tts.stream(text, voice, seed=seed, batcher=batcher)) for seed in seeds]

    with LiveBatcher(tts.stepper, capacity=callers) as batcher, ThreadPoolExecutor(callers) as pool:
        return list(pool.map(call, range(callers)))


def first_audible(chunks: Iterator[Chunk]) -> float:
    """Seconds until a sample came that can be heard; hears the stream to its end. Infinite where none came."""
    started, waited = time.perf_counter(), math.inf
    for chunk in chunks:
        if math.isinf(waited) and np.abs(chunk.samples).max(initial=0.0) >= AUDIBLE:
            waited = time.perf_counter() - started
    return waited


def measure_memory(case: Case) -> list[Figures]:
    """Load, speak once at the reference length, and look how much memory that took at most."""
    tts = replace(load(case.model, case.engine), backoff=exact_length())
    tts.speak(passage(case.reference_seconds), somebody(tts))
    row = {"seconds": case.reference_seconds, "peak_megabytes": peak_megabytes()}
    if case.engine == "cuda":
        import torch

        row["gpu_peak_megabytes"] = torch.cuda.max_memory_allocated() / 2**20
    return [row]


def measure_start(case: Case) -> list[Figures]:
    """From the start of a new process to the first sample in its pipe; what the disk holds is warm."""
    tts = load(case.model, case.engine)
    with tempfile.TemporaryDirectory() as folder:
        voice = Path(folder) / "voice.safetensors"
        somebody(tts).save(voice)
        command = [sys.executable, "-m", "marstts", "speak", passage(WARM_UP_SECONDS), "--model", case.model]
        command += ["--voice", str(voice), "--engine", case.engine, "--stream", "--output", "-"]
        times = [first_bytes(command, SAMPLE_BYTES) for _ in range(case.runs + 1)]
    return [{"first_sample_seconds": min(times)}]


def first_bytes(command: list[str], count: int) -> float:
    """Seconds until a command has written so many bytes to standard output; the command then runs to its end."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        got = process.stdout.read(count)
        seconds = time.perf_counter() - started
        _, errors = process.communicate()
    if process.returncode or len(got) < count:
        raise BenchmarkError(f"{shlex.join(command)} failed: {errors.decode(errors='replace').strip()}")
    return seconds


def peak_megabytes() -> float:
    """The most memory this process ever held.

    The kernel's own book for this program where there is one: `getrusage` may also count what its parent held when it
    made this process.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        [line] = [line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
