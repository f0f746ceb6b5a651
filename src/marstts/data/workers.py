"""Who makes the shards: this process, some processes beside it, or a Ray cluster. All call the same function.

Upstream: jobs of `data.tokenize` and `preference`, each of which writes one file.  Downstream: nothing; what is done
lies on the disk. Workers die: memory runs out, machines are taken away. A dead worker costs the shard it was working
on, which another one makes from the start; a shard that kills every worker is named at the end, when all others are
finished.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

from marstts.errors import DataError, require


class Job(Protocol):
    """What is known of a shard to be made."""

    @property
    def index(self) -> int:
        """Names it in messages."""
        ...


Ears = Any
"""What a worker keeps from job to job: models, judges."""

Finished = Any
"""What came of a job, as its function tells."""

LoadEars = Callable[[], Ears]
FinishShard = Callable[[Any, Ears], Finished]

ATTEMPTS = 3
"""How many workers a shard may kill."""


class Engine(Protocol):
    """Does jobs, in any order."""

    def run(self, jobs: Sequence[Job], load_ears: LoadEars, finish: FinishShard) -> Iterator[Finished]:
        """What came of each job, as it is done; the ears are loaded once by each worker."""
        ...


@dataclass(frozen=True)
class Processes:
    """`count` processes of this machine; with one, everything happens in this process."""

    count: int

    def run(self, jobs: Sequence[Job], load_ears: LoadEars, finish: FinishShard) -> Iterator[Finished]:
        """As `Engine.run`."""
        if self.count <= 1 or len(jobs) == 1:
            ears = load_ears()
            yield from (finish(job, ears) for job in jobs)
            return
        crew = [Helper(load_ears) for _ in range(min(self.count, len(jobs)))]
        try:
            yield from share_out(jobs, crew, finish)
        finally:
            for helper in crew:
                helper.dismiss()


class Helper:
    """One process with ears of its own, replaced when it dies."""

    def __init__(self, load_ears: LoadEars) -> None:
        self._load_ears = load_ears
        self._pool = self._hire()

    def start(self, finish: FinishShard, job: Job) -> Future[Finished]:
        """Begin a job; the future fails with BrokenProcessPool if the process dies of it."""
        try:
            return self._pool.submit(finish_in_worker, finish, job)
        except BrokenProcessPool:  # it died between two jobs
            self._pool = self._hire()
            return self._pool.submit(finish_in_worker, finish, job)

    def dismiss(self) -> None:
        """Let the process end without waiting for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _hire(self) -> ProcessPoolExecutor:
        # spawn: forked children inherit the locks of ONNX Runtime's and PyTorch's threads, and hang
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), start_worker, (self._load_ears,))


def share_out(jobs: Sequence[Job], crew: Sequence[Helper], finish: FinishShard) -> Iterator[Finished]:
    """Give each helper a job whenever it has none; jobs whose helper died come again, a few times."""
    waiting = list(reversed(jobs))
    lost: dict[int, int] = {}
    idle = list(crew)
    busy: dict[Future[Finished], tuple[Helper, Job]] = {}
    while waiting or busy:
        while waiting and idle:
            helper, job = idle.pop(), waiting.pop()
            busy[helper.start(finish, job)] = (helper, job)
        done, _ = wait(busy, return_when=FIRST_COMPLETED)
        for future in done:
            helper, job = busy.pop(future)
            idle.append(helper)
            try:
                yield future.result()
            except BrokenProcessPool:
                lost[job.index] = lost.get(job.index, 0) + 1
                if lost[job.index] < ATTEMPTS:
                    waiting.append(job)
    hopeless = sorted(index for index, times in lost.items() if times >= ATTEMPTS)
    if hopeless:
        raise DataError(
            f"the processes that made shards {', '.join(map(str, hopeless))} died {ATTEMPTS} times each, perhaps for "
            "lack of memory; all others are finished. Give them more memory, or fewer workers, and run again"
        )


worker_ears: list[Ears] = []
"""The models of this worker process, loaded once."""


def start_worker(load_ears: LoadEars) -> None:
    """What a new process does first."""
    worker_ears[:] = [load_ears()]


def finish_in_worker(finish: FinishShard, job: Job) -> Finished:
    """What a process does with a job."""
    return finish(job, worker_ears[0])


@dataclass(frozen=True)
class RayCluster:
    """`actors` actors of a Ray cluster, through Ray Data; what jobs read and write lies where all nodes see it."""

    address: str
    """`HOST:PORT`, `ray://HOST:PORT`, `auto` for the one this machine belongs to, `local` to start one here."""

    actors: int

    gpus_per_actor: float = 0.0
    """What an actor asks of its node; 1 gives each a GPU of its own."""

    def run(self, jobs: Sequence[Job], load_ears: LoadEars, finish: FinishShard) -> Iterator[Finished]:
        """As `Engine.run`. An actor that dies is started again, and its shard with it."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray = require("ray", "data")
        require("ray.data", "data")
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, logging_level="warning")
        ray.data.DataContext.get_current().enable_progress_bars = False  # shards are told one by one
        # a block is a job: a lost actor costs one shard
        rows = ray.data.from_items([{"place": place} for place in range(len(jobs))], override_num_blocks=len(jobs))
        finished = rows.map(
            RayWorker,
            fn_constructor_args=(list(jobs), load_ears, finish),
            compute=ray.data.ActorPoolStrategy(size=min(self.actors, len(jobs))),
            num_cpus=1,
            num_gpus=self.gpus_per_actor or None,
        )
        for row in finished.iter_rows():
            yield ray.cloudpickle.loads(row["finished"])


class RayWorker:
    """One actor: loads its ears and makes shards with them."""

    def __init__(self, jobs: Sequence[Job], load_ears: LoadEars, finish: FinishShard) -> None:
        self._jobs, self._ears, self._finish = jobs, load_ears(), finish
        self._pack = require("ray", "data").cloudpickle.dumps

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The job at a place, made; what came of it, packed for the way back."""
        return {"finished": self._pack(self._finish(self._jobs[row["place"]], self._ears))}
