"""Speak every trial, judge every take, write one line for each: what a killed run has done stays done.

Upstream: `testset`, `systems`, `judges`.  Downstream: `report`.

The output folder holds `takes/<system>/<trial>.wav`, beside them `spoken.jsonl` (how long each took to make, and why
there is none) and `made_by.json` (what made them, and who judged), and `scores.jsonl`. Nothing is left out in silence:
a trial whose take is missing, empty or silent gets the worst score of every measure, and the reason stands in its line.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Protocol

from marstts import audio
from marstts.audio import Waveform
from marstts.config import Config, parse_config
from marstts.errors import DataError, MarsError
from marstts.evaluation.judges import Bench, Judges, open_judges
from marstts.evaluation.rivals import RivalMissing
from marstts.evaluation.scores import TakeScore, append_score, parse_object, read_scores
from marstts.evaluation.systems import System, TakesFolder
from marstts.evaluation.testset import Trial, trials_digest

TAKES_FOLDER = "takes"
CLAIM_FILE = "made_by.json"
SPOKEN_FILE = "spoken.jsonl"

Tell = Callable[[str], None]


class Claim(Config):
    """What made a system's takes, and who judged them: other ones are refused, so that scores do not mix."""

    system: str
    """The system's version."""

    testset: str
    """Digest of the trials."""

    judges: dict[str, str]
    """Versions of the judges."""

    remarks: tuple[str, ...] = ()
    """What was odd about the system's takes as a whole, in sentences."""


class Spoken(Config):
    """One trial that was spoken, or could not be."""

    trial: str

    compute_seconds: float | None
    """By the clock; None where the take was not made here."""

    problem: str | None


@dataclass(frozen=True)
class Job:
    """One take to judge; picklable."""

    system: str
    trial: Trial
    take: Path
    spoken: Spoken


class Panel(Protocol):
    """Where judges sit: in this process, or in several."""

    @property
    def versions(self) -> dict[str, str]: ...

    def judge(self, jobs: Iterable[Job]) -> Iterator[TakeScore]:
        """A score for each job, in their order."""
        ...


class HerePanel:
    """Judges in this process."""

    def __init__(self, judges: Judges) -> None:
        self._judges = judges
        self.versions = judges.versions

    def judge(self, jobs: Iterable[Job]) -> Iterator[TakeScore]:
        return (judge_job(job, self._judges) for job in jobs)


class ProcessPanel:
    """The same judges in several processes; to be used in a `with` statement."""

    def __init__(self, bench: Bench, trials: Sequence[Trial], workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool: Pool = context.Pool(workers, open_worker, (bench, list(trials)))
        self.versions: dict[str, str] = self._pool.apply(worker_versions)

    def __enter__(self) -> ProcessPanel:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.terminate()

    def judge(self, jobs: Iterable[Job]) -> Iterator[TakeScore]:
        return self._pool.imap(judge_in_worker, jobs)


WORKER: list[Judges | MarsError] = []
"""The judges of a worker process, or why they cannot be opened: an initializer that raises would be called for ever."""


def open_worker(bench: Bench, trials: Sequence[Trial]) -> None:
    try:
        WORKER[:] = [open_judges(bench, trials)]
    except MarsError as error:
        WORKER[:] = [error]


def worker_judges() -> Judges:
    [judges] = WORKER
    if isinstance(judges, MarsError):
        raise judges
    return judges


def worker_versions() -> dict[str, str]:
    return worker_judges().versions


def judge_in_worker(job: Job) -> TakeScore:
    return judge_job(job, worker_judges())


def judge_job(job: Job, judges: Judges) -> TakeScore:
    """Read the take, if there is one, and judge it."""
    take, problem = read_take(job.take, job.spoken.problem)
    return judges.score(job.system, job.trial, take, problem, job.spoken.compute_seconds)


def read_take(path: Path, problem: str | None) -> tuple[Waveform | None, str | None]:
    """The take in its file, else None and why."""
    if problem is not None:
        return None, problem
    try:
        return audio.read(path), None
    except MarsError as error:
        return None, str(error)


def score_system(system: System, trials: Sequence[Trial], output: Path, panel: Panel, tell: Tell) -> None:
    """Take and line for every trial the system has not been judged on; goes on where it stopped."""
    folder = claim_folder(output / TAKES_FOLDER / system.name, system, trials, panel.versions)
    done = {score.trial for score in read_scores(output) if score.system == system.name}
    waiting = [trial for trial in trials if trial.id not in done]
    spoken = speak_trials(system, waiting, folder, tell)
    jobs = (Job(system.name, trial, folder / f"{trial.id}.wav", spoken[trial.id]) for trial in waiting)
    for number, score in enumerate(panel.judge(jobs), len(trials) - len(waiting) + 1):
        append_score(score, output)
        tell(f"{system.name} {number}/{len(trials)} {score.trial}: {describe(score)}")


def claim_folder(folder: Path, system: System, trials: Sequence[Trial], judges: dict[str, str]) -> Path:
    """The folder of a system's takes, marked with what made them; DataError if something else did."""
    remarks = tuple(system.remarks(trials)) if isinstance(system, TakesFolder) else ()
    claim = Claim(system=system.version, testset=trials_digest(trials), judges=judges, remarks=remarks)
    file = folder / CLAIM_FILE
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(claim.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return folder
    found = read_claim(file)
    changed = [name for name in ("system", "testset", "judges") if getattr(found, name) != getattr(claim, name)]
    if changed:
        raise DataError(
            f"{folder}: was made with another {' and '.join(changed)}, so old and new scores do not mix; "
            "choose a new --output"
        )
    return folder


def read_claim(file: Path) -> Claim:
    return parse_config(Claim, parse_object(file.read_text(encoding="utf-8"), str(file)), str(file))


def read_claims(output: Path) -> dict[str, Claim]:
    """What made the takes of each system in an output folder."""
    return {file.parent.name: read_claim(file) for file in sorted((output / TAKES_FOLDER).glob(f"*/{CLAIM_FILE}"))}


def speak_trials(system: System, trials: Sequence[Trial], folder: Path, tell: Tell) -> dict[str, Spoken]:
    """A file for each trial that can be spoken, and how each went; what was spoken by an earlier run is not again."""
    diary = folder / SPOKEN_FILE
    known = {entry.trial: entry for entry in read_spoken(diary)}
    with diary.open("a", encoding="utf-8") as file:
        for number, trial in enumerate(trials, 1):
            if trial.id in known:
                continue
            known[trial.id] = speak_trial(system, trial, folder / f"{trial.id}.wav")
            file.write(known[trial.id].model_dump_json() + "\n")
            file.flush()
            if system.timed and number % 10 == 0:
                tell(f"{system.name}: {number}/{len(trials)} spoken")
    return known


def read_spoken(diary: Path) -> list[Spoken]:
    """What an earlier run has spoken; an unfinished last line is cut off."""
    if not diary.is_file():
        return []
    content = diary.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if complete != content:
        diary.write_bytes(complete)
    lines = complete.decode("utf-8").splitlines()
    return [
        parse_config(Spoken, parse_object(line, f"{diary}:{number}"), f"{diary}:{number}")
        for number, line in enumerate(lines, 1)
    ]


def speak_trial(system: System, trial: Trial, path: Path) -> Spoken:
    """Speak one trial into its file, timed by the clock where the system makes its takes now."""
    started = time.perf_counter()
    try:
        take = system.speak(trial)
        seconds = time.perf_counter() - started if system.timed else None
        write_take(take, path)
    except RivalMissing:
        raise
    except MarsError as error:
        return Spoken(trial=trial.id, compute_seconds=None, problem=str(error))
    return Spoken(trial=trial.id, compute_seconds=seconds, problem=None)


def write_take(take: Waveform, path: Path) -> None:
    """Write a take under a temporary name until complete, so that a killed run leaves no half of one."""
    unfinished = path.with_name(f"unfinished.{path.name}")
    audio.write(take, unfinished)
    os.replace(unfinished, path)


def describe(score: TakeScore) -> str:
    """One take in a line of progress."""
    if score.problem is not None:
        return score.problem
    parts = [score.verdict.value, f"{score.seconds:.1f} s"]
    if score.source_seconds is not None:
        parts[-1] += f" for {score.source_seconds:.1f} s"
    if score.words is not None:
        parts.append(f"{score.words.word_errors}/{score.words.words} words wrong")
    return ", ".join([*parts, *(f"{scale} {value:.2f}" for scale, value in score.quality.items())])
