"""Tokenization: manifest to shards. The codec and the speaker encoders process every utterance once.

Utterances are cut, in manifest order, into shards, and each shard is written atomically. An interrupted run resumes,
and a manifest that grew at its end only adds shards. A job is a few numbers (the bytes of the manifest), so that
millions of utterances take no memory. Utterances that cannot be used are listed with their reasons in `rejects.jsonl`;
too many rejects stop the run.

Upstream: `data.manifest`, `data.preprocess`.  Downstream: `data.shards`.  Jobs run on `data.workers`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path

import numpy as np

from marstts.errors import DataError
from marstts.io.files import lock_folder
from marstts.io.jsonl import write_rows
from marstts.io.reading import os_errors
from marstts_lab.data.manifest import Utterance, parse_utterance, scan_manifest, utterance_line
from marstts_lab.data.preprocess import EncodedUtterance, Encoders, PreprocessConfig, UtteranceEncoder
from marstts_lab.data.shards import SHARD_PATTERN, ShardInfo, read_info, read_shard, shard_path, write_shard
from marstts_lab.data.workers import Executor, Load, Processes, Progress

log = logging.getLogger(__name__)

UTTERANCES_PER_SHARD = 1000
MAX_REJECT_RATIO = 0.1
REJECTS = "rejects.jsonl"

MIN_UTTERANCES_FOR_RATIO = 5000
"""Utterances that are processed before a run may stop for its rejects; the worst of a corpus may come first."""


class ShardStatus(str, Enum):
    """Outcome of a job."""

    WRITTEN = "written"
    KEPT = "kept"
    """A valid shard of the same lines and settings was there."""
    REPAIRED = "written again, since it was corrupt"


@dataclass(frozen=True)
class ShardJob:
    """One shard to be made: a range of bytes of a manifest."""

    index: int
    manifest: Path
    first_byte: int
    last_byte: int

    skipped: tuple[int, ...]
    """Byte offsets of invalid lines."""

    output: Path
    config: PreprocessConfig

    @property
    def name(self) -> str:
        """File name of the shard."""
        return shard_path(self.output, self.index).name

    def utterances(self) -> list[Utterance]:
        """The utterances of the valid lines."""
        with os_errors(self.manifest, "be read", DataError), self.manifest.open("rb") as file:
            file.seek(self.first_byte)
            content = file.read(self.last_byte - self.first_byte)
        utterances, offset = [], self.first_byte
        for line in io.BytesIO(content):
            if line.strip() and offset not in self.skipped:
                utterances.append(parse_utterance(line, f"{self.manifest}, byte {offset}"))
            offset += len(line)
        return utterances


@dataclass(frozen=True)
class FinishedShard:
    """The outcome of a job."""

    name: str
    status: ShardStatus
    kept: int
    rejected: int


@dataclass(frozen=True)
class TokenizeReport:
    """The outcome of a run."""

    shards: int
    shards_made: int
    utterances: int
    rejects: int


def tokenize_manifest(
    manifest: Path,
    output: Path,
    load_encoders: Load[Encoders],
    *,
    config: PreprocessConfig | None = None,
    utterances_per_shard: int = UTTERANCES_PER_SHARD,
    max_reject_ratio: float = MAX_REJECT_RATIO,
    executor: Executor | None = None,
) -> TokenizeReport:
    """Make the shards of a manifest in `output`; valid ones are kept, corrupt and stale ones made again.

    `load_encoders` is called once by each worker of the executor (it must be picklable, and give one-threaded models).
    The bytes written do not depend on the executor. DataError if no utterance can be used, too many cannot, or another
    process works in `output`.
    """
    config = config or PreprocessConfig()
    with lock_folder(output, DataError):
        jobs, problems = cut_into_jobs(manifest, output, utterances_per_shard, config)
        if not jobs:
            write_rejects(output / REJECTS, problems, [])
            raise DataError(f"{manifest}: the manifest holds no valid utterances; see {output / REJECTS}")
        remove_surplus_shards(output, jobs)
        counter = RejectCounter(
            manifest, output / REJECTS, max_reject_ratio, seen=len(problems), rejected=len(problems)
        )
        progress, made = Progress(log, "shards", len(jobs)), 0
        try:
            for finished in (executor or Processes(1)).run(jobs, load_encoders, finish_shard):
                made += finished.status is not ShardStatus.KEPT
                log.debug("%s: %s", finished.name, finished.status.value)
                progress.advance(f"{counter.rejected + finished.rejected} utterances rejected")
                counter.count(finished)
        finally:
            write_rejects(output / REJECTS, problems, [shard_path(output, job.index) for job in jobs])
    counter.check()
    return TokenizeReport(len(jobs), made, counter.seen - counter.rejected, counter.rejected)


@dataclass
class RejectCounter:
    """Counts processed and rejected utterances, and stops the run when too many are rejected."""

    manifest: Path
    rejects: Path
    max_ratio: float
    seen: int
    rejected: int

    def count(self, finished: FinishedShard) -> None:
        """Add a shard; DataError once too many of a sufficient number of utterances are rejected."""
        self.seen += finished.kept + finished.rejected
        self.rejected += finished.rejected
        if self.seen >= MIN_UTTERANCES_FOR_RATIO:
            self.check()

    def check(self) -> None:
        """DataError if too many of the utterances seen so far were rejected."""
        if self.seen == self.rejected:
            raise DataError(f"{self.manifest}: none of the {self.seen} utterances could be used; see {self.rejects}")
        if self.rejected > self.max_ratio * self.seen:
            raise DataError(
                f"{self.manifest}: {self.rejected} of {self.seen} utterances cannot be used "
                f"({self.rejected / self.seen:.1%}; allowed are {self.max_ratio:.1%}); {self.rejects} lists the "
                "reasons. Repair the corpus, or allow more rejects; finished shards are kept"
            )


def cut_into_jobs(
    manifest: Path, output: Path, utterances_per_shard: int, config: PreprocessConfig
) -> tuple[list[ShardJob], list[tuple[str, str]]]:
    """Jobs of equally many utterances, in manifest order; and (place, reason) of the invalid lines."""
    jobs: list[ShardJob] = []
    problems: list[tuple[str, str]] = []
    first, last, count = 0, 0, 0
    skipped: list[int] = []

    def close() -> None:
        jobs.append(ShardJob(len(jobs), manifest.absolute(), first, last, tuple(skipped), output.absolute(), config))

    for line in scan_manifest(manifest):
        if count == utterances_per_shard:
            close()
            first, count = line.first_byte, 0
            skipped.clear()
        last = line.last_byte
        if line.problem:
            problems.append((f"{manifest.name}:{line.number}", line.problem))
            skipped.append(line.first_byte)
        else:
            count += 1
    if count:
        close()
    return jobs, problems


def remove_surplus_shards(output: Path, jobs: Sequence[ShardJob]) -> None:
    """Remove shards of an earlier, longer manifest, which would otherwise be trained on."""
    expected = {shard_path(output, job.index) for job in jobs}
    for path in output.glob(SHARD_PATTERN):
        if path not in expected:
            with os_errors(path, "be removed", DataError):
                path.unlink()


def finish_shard(job: ShardJob, encoders: Encoders) -> FinishedShard:
    """Make the shard of a job, unless a valid one of the same lines and settings is there."""
    path, utterances = shard_path(job.output, job.index), job.utterances()
    fingerprint = fingerprint_of(utterances, job.config, encoders)
    status = ShardStatus.WRITTEN
    try:
        if path.exists():
            info = read_info(path)
            if info.fingerprint == fingerprint:
                read_shard(path)  # checks its digest
                return FinishedShard(path.name, ShardStatus.KEPT, len(info.utterances), len(info.rejects))
    except DataError:
        status = ShardStatus.REPAIRED
    results = UtteranceEncoder(encoders, job.config).encode_all(utterances, job.manifest.parent)
    kept = write_results(path, utterances, results, encoders, fingerprint)
    return FinishedShard(path.name, status, kept, len(utterances) - kept)


def write_results(
    path: Path,
    utterances: Sequence[Utterance],
    results: Sequence[EncodedUtterance | str],
    encoders: Encoders,
    fingerprint: str,
) -> int:
    """Write a shard of the encoded utterances and the reasons of the others; the number of encoded ones."""
    pairs = list(zip(utterances, results, strict=True))
    encoded = [(utterance, result) for utterance, result in pairs if isinstance(result, EncodedUtterance)]
    info = ShardInfo(
        codec=encoders.codec.spec,
        encoders=encoders.infos,
        fingerprint=fingerprint,
        utterances=tuple(utterance for utterance, _ in encoded),
        rejects=tuple((utterance.id, result) for utterance, result in pairs if isinstance(result, str)),
    )
    embeddings = {
        role: np.array([result.embeddings[role] for _, result in encoded], np.float32).reshape(-1, encoder.size)
        for role, encoder in info.encoders.items()
    }
    write_shard(path, info, [result.codes for _, result in encoded], embeddings)
    return len(encoded)


def fingerprint_of(utterances: Sequence[Utterance], config: PreprocessConfig, encoders: Encoders) -> str:
    """Hash of everything the shard depends on, except the contents of the audio files."""
    names = [f"{role} {encoders.speaker[role].name}" for role in sorted(encoders.speaker)]
    settings = [repr(encoders.codec.spec), *names, *config.signature]
    lines = [utterance_line(utterance) for utterance in utterances]
    return hashlib.sha256("\n".join(settings + lines).encode()).hexdigest()[:16]


def write_rejects(path: Path, problems: Sequence[tuple[str, str]], shards: Sequence[Path]) -> None:
    """Write what was left out, with reasons: invalid lines first, then the rejects of the shards in manifest order."""
    write_rows(path, ({"id": name, "reason": reason} for name, reason in chain(problems, rejects_of(shards))))


def rejects_of(shards: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Ids and reasons of everything left out of these shards, as far as they were made."""
    for path in shards:
        with contextlib.suppress(DataError):  # a run that stopped early leaves some missing or corrupt
            yield from read_info(path).rejects
