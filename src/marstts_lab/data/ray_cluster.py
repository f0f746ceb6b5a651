"""Workers on the nodes of a Ray cluster: jobs of several machines that share a file system.

Each worker is an actor with one processor, and a GPU where one is needed; it loads its models once. Actors, nodes and
networks fail: an actor that is lost costs the job at hand, which another one repeats, as with `workers.Processes`. Jobs
go to actors that have started only, so that a cluster which has lost a node finishes on those that are left.

Upstream: jobs of `data.tokenize`, `evaluation.score` and `preference`; a cluster that `ray start` made.
Downstream: their results.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from marstts.errors import ConfigError, DataError, require
from marstts_lab.data.workers import ATTEMPTS, Executor, Job, Load, Models, Processes, Result, Work, refuse_fatal

log = logging.getLogger(__name__)

WORDS = ("auto", "local")
"""Addresses that are not of a machine: the cluster of this one, and one that is started for the command alone."""

CONNECT_SECONDS = 5.0
"""Longest time in which the cluster's port must answer."""

WAITING_SECONDS = 60.0
"""Time without an actor after which a warning is logged."""


@dataclass(frozen=True)
class RayCluster:
    """Actors of a Ray cluster, whose nodes see the files of the jobs and the folder of the command under one path."""

    address: str
    """`HOST:PORT`, `auto` for the cluster that this machine is a node of, `local` for one that ends with the jobs."""

    actors: int | None = None
    """None: one for each processor of the cluster, or for each GPU where they need one."""

    needs_gpu: bool = False
    """Each actor reserves a GPU of its node, and sees no other."""

    def run(self, jobs: Sequence[Job], load: Load[Models], work: Work[Job, Models, Result]) -> Iterator[Result]:
        """The result of each job, see `Executor.run`; ConfigError where the cluster cannot be used."""
        if not jobs:
            return
        with connected(self.address) as ray:
            crew = Crew(ray, load, self.needs_gpu)
            try:
                yield from schedule(jobs, crew, self.actors or crew.capacity, work)
            finally:
                crew.end()


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; a connection that was there before is used and kept."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    check_address(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        raise unusable(address, str(error).partition("\n")[0]) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def unusable(address: str, reason: str) -> ConfigError:
    """The error of a cluster that cannot be connected to."""
    return ConfigError(
        f"--ray {address}: cannot use this cluster ({reason}); expected the HOST:PORT that `ray start --head` has "
        "printed, with this machine as one of its nodes (`ray start --address HOST:PORT`), or one of "
        f"{', '.join(WORDS)}"
    )


def check_address(address: str) -> None:
    """ConfigError unless a cluster answers there: Ray itself would try for minutes."""
    if address in WORDS:
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 2**16:
        raise unusable(address, "not HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as error:
        raise unusable(address, f"no answer: {error}") from error


class Actor:
    """One worker, in a process of a node."""

    def start(self, folder: str, load: Load[Any]) -> None:
        """Load the models, in the folder of the command, whose relative paths are then those of the worker."""
        try:
            os.chdir(folder)
        except OSError as error:
            raise ConfigError(
                f"{folder}: the node {socket.gethostname()} of the cluster cannot enter this folder, in which the "
                f"command was run ({error.strerror}); all nodes must share it under the same path"
            ) from error
        self._models = load()

    def work(self, work: Work[Any, Any, Any], job: Any) -> Any:
        """Do a job."""
        return work(job, self._models)


class Crew:
    """The actors of a run: starting, idle or busy with a job."""

    def __init__(self, ray: Any, load: Load[Any], needs_gpu: bool) -> None:
        """ConfigError where no node has what an actor needs."""
        self._ray, self._load = ray, load
        self.resource = "GPU" if needs_gpu else "CPU"
        self.capacity = int(ray.cluster_resources().get(self.resource, 0))
        if not self.capacity:
            raise ConfigError(f"the Ray cluster has no {self.resource}; add nodes that have some (`ray start`)")
        options = {"num_cpus": 1, "num_gpus": int(needs_gpu), "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(Actor).options(**options)
        self.starting: dict[Any, Any] = {}
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, int]] = {}
        self._failed = 0

    @property
    def size(self) -> int:
        """Actors in all."""
        return len(self.starting) + len(self.idle) + len(self.busy)

    def add(self) -> None:
        """Start an actor, where and when the cluster has room for it."""
        actor = self._actor.remote()
        self.starting[actor.start.remote(os.getcwd(), self._load)] = actor

    def give(self, work: Work[Any, Any, Any], job: Any, index: int) -> None:
        """Give a job to an idle actor."""
        actor = self.idle.pop()
        self.busy[actor.work.remote(work, job)] = actor, index

    def wait(self) -> Iterator[tuple[int, Any, bool]]:
        """Index, result and whether the actor was lost, of every job that has ended; none where nothing did for long.

        Errors of `load` and `work` are raised here. DataError where actors are lost as they load.
        """
        done, _ = self._ray.wait([*self.busy, *self.starting], timeout=WAITING_SECONDS)
        if not done and not self.busy:
            log.warning("the Ray cluster has had no free %s for %.0f s; still waiting", self.resource, WAITING_SECONDS)
        for reference in done:
            actor, index = self.busy.pop(reference) if reference in self.busy else (self.starting.pop(reference), None)
            result, lost = self._get(reference)
            if lost:
                self._ray.kill(actor)
            else:
                self.idle.append(actor)
            if index is not None:
                yield index, result, lost
            else:
                self._count_start(lost)

    def end(self) -> None:
        """End all actors at once: an unfinished job leaves nothing, since jobs write atomically."""
        for actor in (*self.starting.values(), *self.idle, *(actor for actor, _ in self.busy.values())):
            self._ray.kill(actor)

    def _get(self, reference: Any) -> tuple[Any, bool]:
        try:
            return self._ray.get(reference), False
        except self._ray.exceptions.RayActorError:
            return None, True
        except self._ray.exceptions.RayTaskError as error:
            raise getattr(error, "cause", None) or error from None

    def _count_start(self, lost: bool) -> None:
        self._failed = self._failed + 1 if lost else 0
        if self._failed > ATTEMPTS * max(1, self.size):
            raise DataError(
                f"{self._failed} workers of the Ray cluster were lost, one after the other, while they loaded their "
                "models, perhaps for lack of memory; use fewer workers, and run again"
            )


def schedule(jobs: Sequence[Any], crew: Crew, count: int, work: Work[Any, Any, Any]) -> Iterator[Any]:
    """Results of the jobs on at most `count` actors; those whose actor was lost are repeated, ATTEMPTS times in all."""
    waiting = list(reversed(range(len(jobs))))
    deaths: dict[int, int] = {}
    while waiting or crew.busy:
        while crew.size < min(count, len(waiting) + len(crew.busy)):
            crew.add()
        while waiting and crew.idle:
            index = waiting.pop()
            crew.give(work, jobs[index], index)
        for index, result, lost in crew.wait():
            if not lost:
                yield result
                continue
            log.warning("a worker of the Ray cluster was lost; its job is done again")
            deaths[index] = deaths.get(index, 0) + 1
            if deaths[index] < ATTEMPTS:
                waiting.append(index)
    refuse_fatal(jobs, deaths, ATTEMPTS)


def open_executor(
    workers: int | None, ray: str | None = None, *, gpus: Sequence[str] = (), needs_gpu: bool = False, default: int = 1
) -> Executor:
    """The executor that the options `--workers` and `--ray` of a command ask for; without `--ray`, this machine.

    `workers` None: `default` processes, one for each of `gpus` where there are some, or all of the cluster.
    """
    if ray is not None:
        require("ray", "ray")
        return RayCluster(ray, workers, needs_gpu)
    return Processes(workers or max(default, len(gpus)), tuple(gpus))
