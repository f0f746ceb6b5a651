"""Manifest → shards: every utterance heard once by the codec and both speaker encoders.

Utterances are cut, in manifest order, into shards; each shard is written under a temporary name and renamed when
complete, so an interrupted run restarts where it stopped and a manifest that grew at its end only adds shards. What
cannot be used is left out and listed with its reason in `rejects.jsonl`; nothing is dropped silently.

Upstream: `data.manifest`, a `Codec`, two `SpeakerEncoder`s.  Downstream: `data.shards`.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.codec.base import Codec, Codes
from marstts.data.manifest import Utterance, read_manifest, utterance_line
from marstts.data.shards import SHARD_PATTERN, ShardInfo, read_info, shard_path, write_shard
from marstts.errors import DataError, MarsError
from marstts.speaker.base import SpeakerEncoder

UTTERANCES_PER_SHARD = 1000
MIN_SECONDS = 0.3
MAX_SECONDS = 30.0
REJECTS = "rejects.jsonl"


@dataclass(frozen=True)
class Ears:
    """The three models that hear an utterance."""

    codec: Codec
    identity: SpeakerEncoder
    style: SpeakerEncoder


@dataclass(frozen=True)
class Job:
    """One shard to be made."""

    index: int
    utterances: tuple[Utterance, ...]
    audio_folder: Path
    output: Path
    min_seconds: float
    max_seconds: float


@dataclass(frozen=True)
class Heard:
    """What the three models made of one utterance: codes per level, (E1,) and (E2,) embeddings."""

    codes: Codes
    identity: np.ndarray
    style: np.ndarray


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
    workers: int = 1,
    utterances_per_shard: int = UTTERANCES_PER_SHARD,
    min_seconds: float = MIN_SECONDS,
    max_seconds: float = MAX_SECONDS,
    say: Callable[[str], None] = print,
) -> TokenizeReport:
    """Make the shards of a manifest in `output`; finished ones are kept, stale ones made again.

    `load_ears` is called once in each worker process (it must be picklable, and give one-threaded models); with one
    worker everything happens in this process. The bytes written do not depend on `workers`.
    """
    utterances = read_manifest(manifest)
    if not utterances:
        raise DataError(f"{manifest}: the manifest holds no utterances")
    output.mkdir(parents=True, exist_ok=True)
    jobs = cut_into_jobs(utterances, manifest.parent, output, utterances_per_shard, min_seconds, max_seconds)
    remove_surplus_shards(output, jobs)
    made = 0
    for index, path, was_made in run_jobs(jobs, load_ears, workers):
        made += was_made
        say(f"{path.name} {'written' if was_made else 'was finished'} ({index} of {len(jobs)})")
    infos = [read_info(shard_path(output, job.index)) for job in jobs]
    rejects = write_rejects(output / REJECTS, infos)
    kept = sum(len(info.utterances) for info in infos)
    if not kept:
        raise DataError(f"{manifest}: none of the {len(utterances)} utterances could be used; see {output / REJECTS}")
    return TokenizeReport(shards=len(jobs), shards_made=made, utterances=kept, rejects=rejects)


def cut_into_jobs(
    utterances: Sequence[Utterance],
    audio_folder: Path,
    output: Path,
    utterances_per_shard: int,
    min_seconds: float,
    max_seconds: float,
) -> list[Job]:
    """Shards of equal size, in manifest order."""
    return [
        Job(
            index,
            tuple(utterances[start : start + utterances_per_shard]),
            audio_folder,
            output,
            min_seconds,
            max_seconds,
        )
        for index, start in enumerate(range(0, len(utterances), utterances_per_shard))
    ]


def remove_surplus_shards(output: Path, jobs: Sequence[Job]) -> None:
    """Forget shards of an earlier, longer manifest, which would otherwise be trained on."""
    wanted = {shard_path(output, job.index) for job in jobs}
    for path in output.glob(SHARD_PATTERN):
        if path not in wanted:
            path.unlink()


def run_jobs(jobs: Sequence[Job], load_ears: Callable[[], Ears], workers: int) -> Iterator[tuple[int, Path, bool]]:
    """(how many are done, shard, whether it had to be made) as shards become finished."""
    if workers <= 1 or len(jobs) == 1:
        ears = load_ears()
        for done, job in enumerate(jobs, start=1):
            yield done, *finish_shard(job, ears)
        return
    # spawn: forked children inherit the locks of ONNX Runtime's and PyTorch's threads, and hang
    with multiprocessing.get_context("spawn").Pool(min(workers, len(jobs)), start_worker, (load_ears,)) as pool:
        for done, (path, was_made) in enumerate(pool.imap_unordered(finish_shard_in_worker, jobs), start=1):
            yield done, path, was_made


worker_ears: list[Ears] = []
"""The models of this worker process, loaded once."""


def start_worker(load_ears: Callable[[], Ears]) -> None:
    worker_ears[:] = [load_ears()]


def finish_shard_in_worker(job: Job) -> tuple[Path, bool]:
    return finish_shard(job, worker_ears[0])


def finish_shard(job: Job, ears: Ears) -> tuple[Path, bool]:
    """Make the shard of a job unless it lies there already, made from the same lines with the same settings."""
    path = shard_path(job.output, job.index)
    fingerprint = fingerprint_of(job, ears)
    if is_finished(path, fingerprint):
        return path, False
    kept: list[Utterance] = []
    heard: list[Heard] = []
    rejects: list[tuple[str, str]] = []
    for utterance in job.utterances:
        try:
            heard.append(hear(utterance, job, ears))
            kept.append(utterance)
        except MarsError as error:
            rejects.append((utterance.id, str(error)))
    info = ShardInfo(
        codec=ears.codec.spec,
        identity_encoder=ears.identity.name,
        style_encoder=ears.style.name,
        fingerprint=fingerprint,
        utterances=tuple(kept),
        rejects=tuple(rejects),
    )
    write_shard(
        path,
        info,
        [one.codes for one in heard],
        np.array([one.identity for one in heard], np.float32).reshape(-1, ears.identity.size),
        np.array([one.style for one in heard], np.float32).reshape(-1, ears.style.size),
    )
    return path, True


def hear(utterance: Utterance, job: Job, ears: Ears) -> Heard:
    """Codes and embeddings of one utterance; a MarsError says why it cannot be used."""
    if not utterance.text.strip():
        raise DataError("the text is empty")
    waveform = audio.read(job.audio_folder / utterance.audio)
    if not job.min_seconds <= waveform.seconds <= job.max_seconds:
        raise DataError(f"{waveform.seconds:.2f} s of audio; kept are {job.min_seconds} to {job.max_seconds} s")
    if not np.isfinite(waveform.samples).all():
        raise DataError("the audio has samples that are not numbers")
    if not waveform.samples.any():
        raise DataError("the audio is digital silence")
    identity, style = ears.identity.embed(waveform), ears.style.embed(waveform)
    if not (np.isfinite(identity).all() and np.isfinite(style).all()):
        raise DataError("an embedding has values that are not numbers")
    return Heard(ears.codec.encode(waveform), identity, style)


def fingerprint_of(job: Job, ears: Ears) -> str:
    """Hash of everything the shard depends on, apart from the audio files' contents."""
    settings = [repr(ears.codec.spec), ears.identity.name, ears.style.name, f"{job.min_seconds} {job.max_seconds}"]
    lines = [utterance_line(utterance) for utterance in job.utterances]
    return hashlib.sha256("\n".join(settings + lines).encode()).hexdigest()[:16]


def is_finished(path: Path, fingerprint: str) -> bool:
    """Whether a good shard with this fingerprint lies at `path`."""
    try:
        return path.exists() and read_info(path).fingerprint == fingerprint
    except DataError:
        return False


def write_rejects(path: Path, infos: Sequence[ShardInfo]) -> int:
    """Write what was left out, with reasons, in manifest order; returns how many."""
    rejects = [reject for info in infos for reject in info.rejects]
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for name, reason in rejects:
            file.write(json.dumps({"id": name, "reason": reason}, ensure_ascii=False) + "\n")
    os.replace(temporary, path)
    return len(rejects)
