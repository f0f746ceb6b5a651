"""Manifest → shards: every utterance heard once by the codec and both speaker encoders.

Utterances are cut, in manifest order, into shards; each shard is written under a temporary name and renamed when
complete, so an interrupted run restarts where it stopped and a manifest that grew at its end only adds shards. A job is
a few numbers (which bytes of the manifest), so that millions of utterances cost the run no memory. What cannot be used
is left out and listed with its reason in `rejects.jsonl`; nothing is dropped silently, and too many rejects stop the
run.

Upstream: `data.manifest`, `data.listening`.  Downstream: `data.shards`.  Who does the jobs: `data.workers`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from marstts.data.listening import Ears, Heard, Listener, ListeningConfig
from marstts.data.manifest import Utterance, parse_utterance, scan_manifest, utterance_line
from marstts.data.shards import SHARD_PATTERN, ShardInfo, read_info, read_shard, shard_path, write_shard
from marstts.data.workers import Engine, Processes
from marstts.errors import DataError

UTTERANCES_PER_SHARD = 1000
MAX_REJECT_SHARE = 0.1
REJECTS = "rejects.jsonl"

ENOUGH_TO_JUDGE = 5000
"""Utterances to be heard before a run is stopped for its rejects; the worst of a corpus may come first."""


@dataclass(frozen=True)
class Job:
    """One shard to be made: some bytes of a manifest."""

    index: int
    manifest: Path
    first_byte: int
    last_byte: int

    passed_over: tuple[int, ...]
    """Where in the manifest lines of no use begin, in bytes."""

    output: Path
    config: ListeningConfig

    def utterances(self) -> list[Utterance]:
        """The lines of use."""
        with self.manifest.open("rb") as file:
            file.seek(self.first_byte)
            content = file.read(self.last_byte - self.first_byte)
        utterances, place = [], self.first_byte
        for line in io.BytesIO(content):
            if line.strip() and place not in self.passed_over:
                utterances.append(parse_utterance(line.decode("utf-8"), f"{self.manifest}, byte {place}"))
            place += len(line)
        return utterances


@dataclass(frozen=True)
class Finished:
    """What came of a job."""

    name: str
    """Of the shard's file."""

    was: str
    """`written`, `finished` (it lay there already) or `damaged` (what lay there was unreadable, and was made again)."""

    kept: int
    rejected: int


@dataclass(frozen=True)
class TokenizeReport:
    """What a run did."""

    shards: int
    shards_made: int
    utterances: int
    rejects: int


def tokenize_manifest(
    manifest: Path,
    output: Path,
    load_ears: Callable[[], Ears],
    *,
    config: ListeningConfig | None = None,
    utterances_per_shard: int = UTTERANCES_PER_SHARD,
    max_reject_share: float = MAX_REJECT_SHARE,
    engine: Engine | None = None,
    say: Callable[[str], None] = print,
) -> TokenizeReport:
    """Make the shards of a manifest in `output`; finished ones are kept, damaged and stale ones made again.

    `load_ears` is called once by each worker of the engine (it must be picklable, and give one-threaded models). The
    bytes written do not depend on the engine. DataError if nothing can be used, or too much cannot.
    """
    output.mkdir(parents=True, exist_ok=True)
    config = config or ListeningConfig()
    jobs, problems = cut_into_jobs(manifest, output, utterances_per_shard, config)
    if not jobs:
        write_rejects(output / REJECTS, problems, [])
        raise DataError(f"{manifest}: the manifest holds no utterances of use; see {output / REJECTS}")
    remove_surplus_shards(output, jobs)
    tally = Tally(manifest, output / REJECTS, max_reject_share, heard=len(problems), rejected=len(problems))
    made = 0
    try:
        for done, finished in enumerate((engine or Processes(1)).run(jobs, load_ears, finish_shard), start=1):
            made += finished.was != "finished"
            say(f"{finished.name} was {finished.was} ({done} of {len(jobs)})")
            tally.count(finished)
    finally:
        write_rejects(output / REJECTS, problems, [shard_path(output, job.index) for job in jobs])
    tally.judge()
    return TokenizeReport(len(jobs), made, tally.heard - tally.rejected, tally.rejected)


@dataclass
class Tally:
    """How many utterances were heard and refused so far, and when that is too many."""

    manifest: Path
    rejects: Path
    max_reject_share: float
    heard: int
    rejected: int

    def count(self, finished: Finished) -> None:
        """Add a shard; DataError once enough was heard to say that too much is refused."""
        self.heard += finished.kept + finished.rejected
        self.rejected += finished.rejected
        if self.heard >= ENOUGH_TO_JUDGE:
            self.judge()

    def judge(self) -> None:
        """DataError if too much of what was heard is of no use."""
        if self.heard == self.rejected:
            raise DataError(f"{self.manifest}: none of the {self.heard} utterances could be used; see {self.rejects}")
        if self.rejected > self.max_reject_share * self.heard:
            raise DataError(
                f"{self.manifest}: {self.rejected} of {self.heard} utterances cannot be used "
                f"({self.rejected / self.heard:.1%}; allowed are {self.max_reject_share:.1%}); {self.rejects} says "
                "why. Mend the corpus, or allow more rejects; finished shards are kept"
            )


def cut_into_jobs(
    manifest: Path, output: Path, utterances_per_shard: int, config: ListeningConfig
) -> tuple[list[Job], list[tuple[str, str]]]:
    """Shards of equally many utterances, in manifest order; and (id, reason) of the lines of no use."""
    jobs: list[Job] = []
    problems: list[tuple[str, str]] = []
    first, last, count = 0, 0, 0
    passed_over: list[int] = []

    def close() -> None:
        jobs.append(Job(len(jobs), manifest.absolute(), first, last, tuple(passed_over), output.absolute(), config))

    for line in scan_manifest(manifest):
        if count == utterances_per_shard:
            close()
            first, count = line.first_byte, 0
            passed_over.clear()
        last = line.last_byte
        if line.problem:
            problems.append((line.name, line.problem))
            passed_over.append(line.first_byte)
        else:
            count += 1
    if count:
        close()
    return jobs, problems


def remove_surplus_shards(output: Path, jobs: Sequence[Job]) -> None:
    """Forget shards of an earlier, longer manifest, which would otherwise be trained on."""
    wanted = {shard_path(output, job.index) for job in jobs}
    for path in output.glob(SHARD_PATTERN):
        if path not in wanted:
            path.unlink()


def finish_shard(job: Job, ears: Ears) -> Finished:
    """Make the shard of a job unless it lies there already, whole, made from the same lines with the same settings."""
    path, utterances = shard_path(job.output, job.index), job.utterances()
    fingerprint = fingerprint_of(utterances, job.config, ears)
    was = "written"
    try:
        if path.exists():
            info = read_info(path)
            if info.fingerprint == fingerprint:
                read_shard(path)  # checks its digest
                return Finished(path.name, "finished", len(info.utterances), len(info.rejects))
    except DataError:
        was = "damaged"
    results = Listener(ears, job.config).hear_all(utterances, job.manifest.parent)
    heard = [result for result in results if isinstance(result, Heard)]
    pairs = list(zip(utterances, results, strict=True))
    info = ShardInfo(
        codec=ears.codec.spec,
        identity_encoder=ears.identity.name,
        style_encoder=ears.style.name,
        fingerprint=fingerprint,
        utterances=tuple(utterance for utterance, result in pairs if isinstance(result, Heard)),
        rejects=tuple((utterance.id, result) for utterance, result in pairs if isinstance(result, str)),
    )
    write_shard(
        path,
        info,
        [one.codes for one in heard],
        np.array([one.identity for one in heard], np.float32).reshape(-1, ears.identity.size),
        np.array([one.style for one in heard], np.float32).reshape(-1, ears.style.size),
    )
    return Finished(path.name, was, len(heard), len(utterances) - len(heard))


def fingerprint_of(utterances: Sequence[Utterance], config: ListeningConfig, ears: Ears) -> str:
    """Hash of everything the shard depends on, apart from the audio files' contents."""
    settings = [repr(ears.codec.spec), ears.identity.name, ears.style.name, *config.signature]
    lines = [utterance_line(utterance) for utterance in utterances]
    return hashlib.sha256("\n".join(settings + lines).encode()).hexdigest()[:16]


def write_rejects(path: Path, problems: Sequence[tuple[str, str]], shards: Sequence[Path]) -> None:
    """Write what was left out, with reasons: lines of no use, then what the shards say, in manifest order."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for name, reason in chain(problems, rejects_of(shards)):
            file.write(json.dumps({"id": name, "reason": reason}, ensure_ascii=False) + "\n")
    os.replace(temporary, path)


def rejects_of(shards: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """(id, reason) of everything left out of these shards, as far as they were made."""
    for path in shards:
        with contextlib.suppress(DataError):  # a run that stopped early leaves some unmade, or damaged as it found them
            yield from read_info(path).rejects
