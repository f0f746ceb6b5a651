"""Workers: the same results from one process and several, and the cost of a worker that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import soundfile

from marstts.audio import Waveform
from marstts.codec.base import Codes
from marstts.codec.toy import ToyCodec
from marstts.errors import ConfigError, DataError
from marstts.io.files import LOCK_FILE
from marstts.speaker.toy import ToySpeakerEncoder
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.data.preprocess import Encoders, PreprocessConfig
from marstts_lab.data.tokenize import TokenizeReport, cut_into_jobs, finish_shard, tokenize_manifest
from marstts_lab.data.workers import Processes, load_nothing, run_in_order, schedule, visible_gpus

UTTERANCES, PER_SHARD = 19, 3
RATE = 16000
SPEAKER = {"identity": ToySpeakerEncoder("identity", 5), "style": ToySpeakerEncoder("style", 7)}


class KillingCodec(ToyCodec):
    """Kills its own process, as a machine short of memory would, when it meets a loud recording; `lives` times."""

    def __init__(self, deaths: Path, lives: int) -> None:
        super().__init__(64)
        self.deaths, self.lives = deaths, lives

    def encode(self, waveform: Waveform) -> Codes:
        if np.abs(waveform.samples).max() > 0.85 and len(list(self.deaths.iterdir())) < self.lives:
            (self.deaths / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(waveform)


def load_encoders() -> Encoders:
    return Encoders(ToyCodec(64), SPEAKER)


def load_killing_encoders(deaths: Path, lives: int) -> Encoders:
    return Encoders(KillingCodec(deaths, lives), SPEAKER)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nineteen short recordings, number 10 louder than the others, and one that is silent."""
    folder = tmp_path_factory.mktemp("corpus")
    utterances = []
    for index in range(UTTERANCES):
        seconds = 0.4 + 0.013 * index
        loudness = 0.9 if index == 10 else 0.5 if index != 4 else 0.0
        rng = np.random.default_rng(index)
        soundfile.write(folder / f"{index}.flac", loudness * rng.uniform(-1, 1, int(RATE * seconds)), RATE)
        utterances.append(
            Utterance(id=f"u{index:02d}", audio=f"{index}.flac", text=f"Number {index}.", speaker="s", style="regular",
                      seconds=seconds, source_rate=RATE, split="train", license="CC0")
        )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


def tokenize(manifest: Path, output: Path, executor: Processes, encoders: Any = load_encoders) -> TokenizeReport:
    return tokenize_manifest(manifest, output, encoders, utterances_per_shard=PER_SHARD, executor=executor)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != LOCK_FILE}


def differing_tensors(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Names of files, and of tensors in them, that are not byte-equal, with the first differing values."""
    differing = [name for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]
    lines = []
    for name in differing:
        if name not in found or name not in expected or not name.endswith(".safetensors"):
            lines.append(name)
            continue
        ours, theirs = safetensors.numpy.load(found[name]), safetensors.numpy.load(expected[name])
        unequal = [key for key in theirs if key not in ours or not np.array_equal(ours[key], theirs[key])]
        lines += [f"{name}: {key} {ours.get(key)} instead of {theirs[key]}" for key in unequal] or [f"{name}: header"]
    return lines


@pytest.fixture(scope="module")
def expected(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The shards that one process makes of the corpus."""
    output = tmp_path_factory.mktemp("one")
    report = tokenize(manifest, output, Processes(1))
    assert (report.shards, report.utterances, report.rejects) == (7, 18, 1)
    return contents(output)


@pytest.fixture
def deaths(tmp_path: Path) -> Path:
    (tmp_path / "deaths").mkdir()
    return tmp_path / "deaths"


def test_parts_of_a_manifest_that_end_with_a_shard_make_the_shards_of_the_whole(manifest, expected, tmp_path):
    lines = manifest.read_bytes().splitlines(keepends=True)
    cut = 4 * PER_SHARD
    found = []
    for number, part in enumerate((lines[:cut], lines[cut:])):
        path = manifest.with_name(f"part-{number}")  # beside the recordings that it names
        path.write_bytes(b"".join(part))
        tokenize(path, tmp_path / str(number), Processes(1))
        found += [shard.read_bytes() for shard in sorted((tmp_path / str(number)).glob("shard-*"))]
    assert found == [content for name, content in sorted(expected.items()) if name.startswith("shard-")]


@pytest.mark.slow
def test_a_killed_process_costs_its_shard_and_nothing_else(manifest, expected, tmp_path, deaths):
    report = tokenize(manifest, tmp_path / "shards", Processes(2), partial(load_killing_encoders, deaths, 1))
    assert len(list(deaths.iterdir())) == 1
    assert report.shards_made == 7
    assert differing_tensors(contents(tmp_path / "shards"), expected) == []


class DyingWorker:
    """Works at once, in this process, and dies of shard 3."""

    def start(self, work: Any, job: Any) -> Future:
        future: Future = Future()
        if job.index == 3:
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(work(job, load_encoders()))
        return future


@pytest.mark.slow
def test_a_shard_that_kills_every_worker_is_named_when_all_others_are_finished(manifest, expected, tmp_path):
    jobs, _ = cut_into_jobs(manifest, tmp_path, PER_SHARD, PreprocessConfig())
    with pytest.raises(DataError, match=r"shard-00003.safetensors died 3 times each.*run again"):
        list(schedule(jobs, [DyingWorker(), DyingWorker()], finish_shard))
    found = contents(tmp_path)
    assert found.keys() == expected.keys() - {"shard-00003.safetensors", "rejects.jsonl"}
    assert all(found[name] == expected[name] for name in found)
    assert tokenize(manifest, tmp_path, Processes(1)).shards_made == 1
    assert contents(tmp_path) == expected


def square(number: int, models: Any) -> int:
    return number * number


def fail(number: int, models: Any) -> int:
    raise ConfigError(f"number {number} is refused")


def load_with_missing_weights() -> None:
    raise ConfigError("the weights are missing")


class Backwards:
    """Does the jobs in reverse order."""

    def run(self, jobs: Any, load: Any, work: Any) -> Iterator[Any]:
        models = load()
        yield from (work(job, models) for job in reversed(jobs))


@pytest.mark.parametrize("chunk_size", [1, 3, 50])
@pytest.mark.parametrize("executor", [Processes(1), Backwards()])
def test_results_come_in_the_order_of_the_jobs(executor: Processes, chunk_size: int):
    results = run_in_order(executor, range(10), load_nothing, square, chunk_size=chunk_size)
    assert list(results) == [number * number for number in range(10)]
    assert list(run_in_order(executor, [], load_nothing, square, chunk_size=chunk_size)) == []


@pytest.mark.slow
def test_several_processes_keep_the_order_and_raise_the_errors_of_their_work(capfd: pytest.CaptureFixture[str]):
    assert list(run_in_order(Processes(2), range(5), load_nothing, square, chunk_size=2)) == [0, 1, 4, 9, 16]
    with pytest.raises(ConfigError, match="is refused"):
        list(Processes(2).run([1, 2], load_nothing, fail))
    with pytest.raises(ConfigError, match="the weights are missing"):
        list(Processes(2).run([1, 2], load_with_missing_weights, square))
    assert "Traceback" not in capfd.readouterr().err


INTERRUPTED = """
import sys, time
sys.path[:0] = {path!r}
from marstts_lab.data.workers import Processes, load_nothing
from test_workers import wait_long
if __name__ == "__main__":
    list(Processes(2).run([1, 2, 3], load_nothing, wait_long))
"""


def wait_long(number: int, models: Any) -> None:
    sys.stdout.write("working\n")  # one write: several workers share the pipe
    sys.stdout.flush()
    time.sleep(60)


@pytest.mark.slow
def test_an_interrupt_ends_all_processes_at_once_without_tracebacks_of_workers(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED.format(path=[str(Path(__file__).parent), *sys.path]))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "working\n"
    os.killpg(process.pid, signal.SIGINT)  # as the terminal sends it: to the parent and its workers
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert errors.count("Traceback") == 1 and "SpawnProcess" not in errors


def visible_gpu(job: int, models: None) -> tuple[int, str | None]:
    return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "used"), [((), {None}), (("0", "GPU-b"), {"0", "GPU-b"})])
def test_each_process_sees_one_gpu(gpus: tuple[str, ...], used: set[str | None], monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    seen = dict(Processes(2, gpus).run(list(range(8)), load_nothing, visible_gpu))
    assert set(seen.values()) <= used and len(seen) <= 2
    assert len(seen) < len(used) or set(seen.values()) == used


@pytest.mark.parametrize(("variable", "gpus"), [("2,5", ["2", "5"]), ("", []), (" GPU-a , GPU-b", ["GPU-a", "GPU-b"])])
def test_gpus_are_those_that_cuda_may_use(variable: str, gpus: list[str], monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == gpus
