"""The process pool: jobs done by this process, or by several processes of this machine.

`Executor.run` yields results as they are done, on `Processes` or a `ray_cluster.RayCluster`; `run_in_order` yields them
in the order of the jobs. Each worker loads its models once and keeps them from job to job. Workers may be killed, since
memory runs out or machines are preempted. A dead worker costs the job at hand, which another worker repeats; a job that
kills every worker is named at the end, when all others are done. A job must therefore be repeatable: whatever it
writes, it writes atomically.

Upstream: jobs of `data.tokenize`, `data.corpora`, `metrics`, `evaluation` and `preference`.  Downstream: their results.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar

from marstts.errors import DataError, MarsError, require

Job = TypeVar("Job")
Models = TypeVar("Models")
Result = TypeVar("Result")

ATTEMPTS = 3
"""Workers that one job may kill."""

Load = Callable[[], Models]
"""Loads what a worker keeps from job to job. Picklable."""

Work = Callable[[Job, Models], Result]
"""Does one job. Picklable, as are jobs and results."""


def load_nothing() -> None:
    """Load no models, for work that needs none."""


class Executor(Protocol):
    """Something that does jobs: processes of this machine, or of several."""

    def run(self, jobs: Sequence[Job], load: Load[Models], work: Work[Job, Models, Result]) -> Iterator[Result]:
        """The result of each job as it is done; DataError at the end names the jobs that killed their workers.

        `load` is called once by each worker. Errors of `load` and `work` are raised here.
        """
        ...


@dataclass(frozen=True)
class Processes:
    """`count` processes of this machine; with one, everything happens in this process."""

    count: int

    gpus: tuple[str, ...] = ()
    """GPUs of the processes, in turn; each process sees its own one only. Empty: all see all."""

    def run(self, jobs: Sequence[Job], load: Load[Models], work: Work[Job, Models, Result]) -> Iterator[Result]:
        """The result of each job, see `Executor.run`."""
        if not jobs:
            return
        if self.count <= 1 or len(jobs) == 1:
            models = load()
            yield from (work(job, models) for job in jobs)
            return
        gpus = self.gpus or (None,)
        workers = [WorkerProcess(load, gpus[index % len(gpus)]) for index in range(min(self.count, len(jobs)))]
        try:
            yield from schedule(jobs, workers, work)
        finally:
            for worker in workers:
                worker.terminate()


def run_in_order(
    executor: Executor,
    jobs: Sequence[Job],
    load: Load[Models],
    work: Work[Job, Models, Result],
    *,
    chunk_size: int = 1,
) -> Iterator[Result]:
    """The results in the order of the jobs; `chunk_size` jobs go to a worker at a time, for jobs of milliseconds."""
    chunks = [
        JobChunk(start // chunk_size, tuple(jobs[start : start + chunk_size]))
        for start in range(0, len(jobs), chunk_size)
    ]
    waiting: dict[int, list[Any]] = {}
    following = 0
    for number, results in executor.run(chunks, load, partial(work_through, work)):
        waiting[number] = results
        while following in waiting:
            yield from waiting.pop(following)
            following += 1


@dataclass(frozen=True)
class JobChunk:
    """Consecutive jobs for one worker."""

    number: int
    jobs: tuple[Any, ...]


def work_through(work: Work[Any, Any, Any], chunk: JobChunk, models: Any) -> tuple[int, list[Any]]:
    """Number and results of a chunk."""
    return chunk.number, [work(job, models) for job in chunk.jobs]


class Worker(Protocol):
    """One worker as `schedule` needs it."""

    def start(self, work: Any, job: Any) -> Future[Any]:
        """Begin a job; the future fails with BrokenProcessPool if the worker dies of it."""
        ...


class WorkerProcess:
    """One process with its own models, replaced when it dies."""

    def __init__(self, load: Load[Any], gpu: str | None = None) -> None:
        self._load, self._gpu = load, gpu
        self._processes: list[BaseProcess] = []
        self._pool = self._spawn()

    def start(self, work: Any, job: Any) -> Future[Any]:
        """Begin a job; the future fails with BrokenProcessPool if the process dies of it."""
        before = set(multiprocessing.active_children())
        with block_interrupts():  # Ctrl-C is for the parent, which ends its workers
            try:
                future = self._pool.submit(work_in_process, work, job)
            except BrokenProcessPool:  # it died between two jobs
                self._pool = self._spawn()
                future = self._pool.submit(work_in_process, work, job)
        self._processes += [child for child in multiprocessing.active_children() if child not in before]
        return future

    def terminate(self) -> None:
        """End the process at once: an unfinished job leaves nothing, since jobs write atomically."""
        for process in self._processes:
            process.terminate()
        self._pool.shutdown(cancel_futures=True)  # wait for its thread, whose pipe Python writes to at exit

    def _spawn(self) -> ProcessPoolExecutor:
        # spawn: forked children inherit the locks of ONNX Runtime's and PyTorch's threads, and hang
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), start_process, (self._load, self._gpu))


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Start processes in here that never receive Ctrl-C; this process receives it when the body ends."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def schedule(
    jobs: Sequence[Job], workers: Sequence[Worker], work: Work[Job, Models, Result], attempts: int = ATTEMPTS
) -> Iterator[Result]:
    """Give each idle worker a job; jobs whose worker died are repeated, `attempts` times in all."""
    waiting = list(reversed(range(len(jobs))))
    deaths: dict[int, int] = {}
    idle = list(workers)
    busy: dict[Future[Any], tuple[Worker, int]] = {}
    while waiting or busy:
        while waiting and idle:
            worker, index = idle.pop(), waiting.pop()
            busy[worker.start(work, jobs[index])] = (worker, index)
        done, _ = wait(busy, return_when=FIRST_COMPLETED)
        for future in done:
            worker, index = busy.pop(future)
            idle.append(worker)
            try:
                result = future.result()
            except BrokenProcessPool:
                deaths[index] = deaths.get(index, 0) + 1
                if deaths[index] < attempts:
                    waiting.append(index)
                continue
            yield result
    refuse_fatal(jobs, deaths, attempts)


def refuse_fatal(jobs: Sequence[Any], deaths: dict[int, int], attempts: int) -> None:
    """DataError that names the jobs whose workers died `attempts` times."""
    fatal = sorted(index for index, count in deaths.items() if count >= attempts)
    if fatal:
        raise DataError(
            f"the processes that worked on {', '.join(name_of(jobs[index], index) for index in fatal)} died {attempts} "
            "times each, perhaps for lack of memory; all others are finished. Give them more memory, or use fewer "
            "workers, and run again"
        )


def name_of(job: Any, index: int) -> str:
    """The name of a job for messages: its attribute `name`, or its number."""
    return str(getattr(job, "name", f"job {index}"))


process_models: list[Any] = []
"""Models of this worker process, or the error: an initializer that raises would break the pool without a reason."""


def start_process(load: Load[Any], gpu: str | None) -> None:
    """Load the models of a new process, which sees no GPU but this one, where one is given."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # read by CUDA when it starts
    if not hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process_models[:] = [load()]
    except MarsError as error:
        process_models[:] = [error]


def work_in_process(work: Any, job: Any) -> Any:
    """Do a job with the models of this process."""
    [models] = process_models
    if isinstance(models, MarsError):
        raise models
    return work(job, models)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    return [str(number) for number in range(require("torch", "train").cuda.device_count())]


# Progress of long commands: the fraction done and the time left, logged now and then.

INTERVAL_SECONDS = 10.0
"""Least time between two lines of progress."""


class Progress:
    """Counts finished items and logs a line every INTERVAL_SECONDS, with the time left by the average rate so far."""

    def __init__(
        self, log: logging.Logger, what: str, total: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`what` names the items, such as "shards"; `total` is None where the number of items is unknown."""
        self._log, self._what, self._total, self._clock = log, what, total, clock
        self._begun = self._logged = clock()
        self.done = 0

    def advance(self, note: str = "") -> None:
        """Count one item; `note` is added to the line, if one is logged now."""
        self.done += 1
        now = self._clock()
        if now - self._logged >= INTERVAL_SECONDS or self.done == self._total:
            self._logged = now
            self._log.info("%s%s", self.line(now - self._begun), f"; {note}" if note else "")

    def line(self, elapsed: float) -> str:
        """The state after `elapsed` seconds; see `progress_line`."""
        if self._total is None:
            return f"{self.done} {self._what}"
        seconds = elapsed / self.done * (self._total - self.done) if self.done else None
        return progress_line(self.done, self._total, self._what, seconds)


def progress_line(done: int, total: int, what: str, seconds: float | None) -> str:
    """The share that is done, and the time left, such as "12 of 40 shards (30%), about 3 min left"."""
    text = f"{done} of {total} {what}" + (f" ({done / total:.0%})" if total else "")
    return text + (f", about {show_duration(seconds)} left" if done < total and seconds is not None else "")


def show_duration(seconds: float) -> str:
    """A duration in its largest unit, such as 3 min."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.95 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
