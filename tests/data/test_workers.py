"""Engines that make shards: the same bytes from one process, several, and a Ray cluster, and what a death costs.

The cluster is three nodes of processes on this machine. Starting it takes longer than a test may, so it is asked for:
`MARSTTS_TEST_RAY=1 python -m pytest tests/data/test_workers.py`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from marstts.audio import Waveform
from marstts.codec.base import Codes
from marstts.codec.toy import ToyCodec
from marstts.data.listening import Ears, ListeningConfig
from marstts.data.manifest import Utterance, write_manifest
from marstts.data.tokenize import TokenizeReport, cut_into_jobs, finish_shard, tokenize_manifest
from marstts.data.workers import Engine, Processes, RayCluster, share_out
from marstts.errors import DataError
from marstts.speaker.toy import ToySpeakerEncoder

UTTERANCES, PER_SHARD = 19, 3
RATE = 16000

needs_cluster = pytest.mark.skipif(
    os.environ.get("MARSTTS_TEST_RAY") != "1", reason="starts a Ray cluster; asked for by MARSTTS_TEST_RAY=1"
)


class MortalCodec(ToyCodec):
    """Kills its own process, as a machine short of memory would, when it meets a loud recording; `lives` times."""

    def __init__(self, graveyard: Path, lives: int) -> None:
        super().__init__(64)
        self.graveyard, self.lives = graveyard, lives

    def encode(self, waveform: Waveform) -> Codes:
        if np.abs(waveform.samples).max() > 0.85 and len(list(self.graveyard.iterdir())) < self.lives:
            (self.graveyard / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(waveform)


def load_ears() -> Ears:
    return Ears(ToyCodec(64), ToySpeakerEncoder("identity", 5), ToySpeakerEncoder("style", 7))


def load_mortal_ears(graveyard: Path, lives: int) -> Ears:
    return Ears(MortalCodec(graveyard, lives), ToySpeakerEncoder("identity", 5), ToySpeakerEncoder("style", 7))


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
                      seconds=seconds, source_rate=RATE, split="train", licence="CC0")
        )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


def tokenize(manifest: Path, output: Path, engine: Engine, ears: Any = load_ears) -> TokenizeReport:
    return tokenize_manifest(
        manifest, output, ears, utterances_per_shard=PER_SHARD, engine=engine, say=lambda _: None
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def expected(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process makes of the corpus."""
    output = tmp_path_factory.mktemp("one")
    report = tokenize(manifest, output, Processes(1))
    assert (report.shards, report.utterances, report.rejects) == (7, 18, 1)
    return contents(output)


@pytest.fixture
def graveyard(tmp_path: Path) -> Path:
    (tmp_path / "graveyard").mkdir()
    return tmp_path / "graveyard"


def test_a_killed_process_costs_its_shard_and_nothing_else(manifest, expected, tmp_path, graveyard):
    report = tokenize(manifest, tmp_path / "shards", Processes(2), partial(load_mortal_ears, graveyard, 1))
    assert len(list(graveyard.iterdir())) == 1
    assert report.shards_made == 7
    assert contents(tmp_path / "shards") == expected


class DoomedHelper:
    """Works at once, in this process; shard 3 is the death of it."""

    def start(self, finish: Any, job: Any) -> Future:
        future: Future = Future()
        if job.index == 3:
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result(finish(job, load_ears()))
        return future


def test_a_shard_that_kills_every_worker_is_named_when_all_others_are_finished(manifest, expected, tmp_path):
    jobs, _ = cut_into_jobs(manifest, tmp_path, PER_SHARD, ListeningConfig())
    with pytest.raises(DataError, match=r"shards 3 died 3 times each.*run again"):
        list(share_out(jobs, [DoomedHelper(), DoomedHelper()], finish_shard))
    found = contents(tmp_path)
    assert found.keys() == expected.keys() - {"shard-00003.safetensors", "rejects.jsonl"}
    assert all(found[name] == expected[name] for name in found)
    assert tokenize(manifest, tmp_path, Processes(1)).shards_made == 1
    assert contents(tmp_path) == expected


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of three nodes, each with one processor."""
    ray = pytest.importorskip("ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no node can import this file
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


@needs_cluster
def test_three_nodes_of_a_cluster_make_the_same_bytes_as_one_process(manifest, expected, tmp_path, cluster):
    report = tokenize(manifest, tmp_path / "shards", RayCluster(cluster, 3))
    assert contents(tmp_path / "shards") == expected
    assert report.shards_made == 7
    assert tokenize(manifest, tmp_path / "shards", RayCluster(cluster, 3)).shards_made == 0
    import ray

    assert len([node for node in ray.nodes() if node["Alive"]]) == 3


@needs_cluster
def test_a_worker_killed_in_the_middle_changes_no_byte(manifest, expected, tmp_path, graveyard, cluster):
    tokenize(manifest, tmp_path / "shards", RayCluster(cluster, 3), partial(load_mortal_ears, graveyard, 2))
    assert len(list(graveyard.iterdir())) == 2
    assert contents(tmp_path / "shards") == expected
    rejects = [json.loads(line) for line in (tmp_path / "shards" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["id"] for reject in rejects] == ["u04"]
