"""Work on a Ray cluster: two nodes on loopback, one of which is killed midway, make the files of a local run.

Each command is run by one process, and then on the cluster with a job in the hands of the node that is killed.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from marstts import audio
from marstts.audio import Waveform
from marstts.cli.main import app
from marstts.codec.toy import ToyCodec
from marstts.errors import ConfigError, DataError, MissingExtraError
from marstts.io.files import LOCK_FILE
from marstts.speaker.toy import ToySpeakerEncoder
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.data.mined_takes import Half
from marstts_lab.data.preprocess import Encoders
from marstts_lab.data.ray_cluster import RayCluster
from marstts_lab.data.tokenize import tokenize_manifest
from marstts_lab.data.workers import Executor, Processes, load_nothing
from marstts_lab.evaluation.score import score_systems
from marstts_lab.evaluation.systems import GroundTruth
from marstts_lab.evaluation.testset import make_testset
from marstts_lab.metrics.panel import Metrics
from marstts_lab.metrics.scores import SCORES_FILE
from marstts_lab.preference.mine import MineConfig, mine
from marstts_lab.preference.scoring import ScoringPlan, TakeMetric, score_takes

RATE, SHARDS = 24_000, 6
RUN = CliRunner()
TOYS = ["--codec", "toy:64", "--identity", "toy:5", "--style", "toy:7", "--shard-size", "2"]

HOST = "127.0.0.1"
"""Loopback, on which Ray's processes then listen alone."""

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # read at Ray's import: keep to loopback on all systems

START_ATTEMPTS = 3
"""Nodes that may fail to start: Ray gives its processes 15 s, which a busy machine may exceed."""

SMALL_NODE = {"num_cpus": 1, "node_ip_address": HOST, "object_store_memory": 80 * 2**20}
"""One processor, so that each of two workers has a node of its own."""


# ---- without a cluster


def test_a_cluster_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = RUN.invoke(app, ["tokenize", "m.jsonl", "--output", str(tmp_path), *TOYS, "--ray", "auto"])
    assert result.exit_code == 2 and "pip install 'marstts[ray]'" in result.stderr
    with pytest.raises(MissingExtraError, match=r"marstts\[ray\]"):
        list(RayCluster("auto").run([1], load_nothing, root))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:99999", ":6379", ""])
def test_an_address_without_a_cluster_is_refused_at_once(address: str) -> None:
    pytest.importorskip("ray", reason="needs pip install 'marstts[ray]'")
    started = time.monotonic()
    with pytest.raises(ConfigError, match=r"cannot use this cluster \(.*ray start --head"):
        list(RayCluster(address).run([1], load_nothing, root))
    assert time.monotonic() - started < 60


# ---- with one

on_cluster = [pytest.mark.slow, pytest.mark.end_to_end, pytest.mark.timeout(600)]


@dataclass
class Nodes:
    """A cluster of a head and one more node, which can be killed and replaced."""

    cluster: Any
    extra: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self) -> None:
        if not self.extra:
            self.extra = [patiently(partial(self.cluster.add_node, **SMALL_NODE))]
            self.cluster.wait_for_nodes(timeout=90)

    @property
    def victim(self) -> str:
        return str(self.extra[0].node_id)

    def kill(self) -> None:
        self.cluster.remove_node(self.extra.pop(), allow_graceful=False)


def patiently(start: Any) -> Any:
    """What `start` makes, tried anew where Ray's processes were too slow."""
    for _ in range(START_ATTEMPTS - 1):
        try:
            return start()
        except Exception as error:  # Ray raises a bare one
            print(f"a node did not start: {error}")
    return start()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    ray = pytest.importorskip("ray", reason="needs pip install 'marstts[ray]'")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no node can import this file
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    config = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
    head = {**SMALL_NODE, "include_dashboard": False, "_system_config": config}
    cluster = patiently(lambda: cluster_utils.Cluster(initialize_head=True, head_node_args=head))
    yield Nodes(cluster)
    cluster.shutdown()


class HalvedCluster:
    """The cluster, whose second node is killed while it has a job; `begun` has a file for every job that was begun."""

    def __init__(self, nodes: Nodes, begun: Path) -> None:
        self.nodes, self.begun = nodes, begun
        nodes.add()
        self.victim = nodes.victim
        begun.mkdir()

    def run(self, jobs: Any, load: Any, work: Any) -> Iterator[Any]:
        watch = threading.Thread(target=self.kill_midway)
        watch.start()
        try:
            yield from RayCluster(self.nodes.address).run(jobs, load, partial(begin, self.begun, work))
        finally:
            watch.join()

    def jobs_of(self, node: str) -> list[str]:
        return sorted(path.name.partition(" ")[2] for path in self.begun.glob(f"{node} *"))

    def kill_midway(self) -> None:
        deadline = time.monotonic() + 120
        while not self.jobs_of(self.victim) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.nodes.kill()

    def check(self) -> None:
        """The node that was killed had begun jobs, and each of them is done."""
        lost = self.jobs_of(self.victim)
        others = {path.name.partition(" ")[2] for path in self.begun.iterdir() if not path.name.startswith(self.victim)}
        assert lost and lost[-1] in others


def begin(begun: Path, work: Any, job: Any, models: Any) -> Any:
    """Say which node does a job, and do it; long enough for the node to be killed meanwhile."""
    import ray

    number = getattr(job, "name", None) or getattr(job, "number", job)
    (begun / f"{ray.get_runtime_context().get_node_id()} {number}").touch()
    time.sleep(1.0)
    return work(job, models)


def root(number: float, models: Any) -> float:
    return number**0.5


def refuse(number: float, models: Any) -> None:
    raise ConfigError(f"number {number} is refused")


def die(number: float, models: Any) -> float:
    if number == 2:
        os._exit(9)
    return number


def load_toys() -> Encoders:
    return Encoders(ToyCodec(64), {role: ToySpeakerEncoder(role, 5) for role in ("identity", "style")})


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, but for locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != LOCK_FILE)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve buzzing recordings of four speakers, the last two of them for tests."""
    folder = tmp_path_factory.mktemp("corpus")
    utterances = []
    for number in range(2 * SHARDS):
        seconds = 1.5 + 0.05 * number
        moments = np.arange(int(RATE * seconds)) / RATE
        buzz = sum(np.sin(2 * np.pi * (90 + 9 * number) * h * moments) / h for h in range(1, 9))
        samples = 0.2 * buzz * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * moments))
        audio.write(Waveform(samples.astype(np.float32), RATE), folder / f"{number}.wav")
        speaker = f"speaker{number % 4}"
        utterances.append(
            Utterance(
                id=f"u{number:02d}", audio=f"{number}.wav", text=f"the number {number} sat", speaker=speaker,
                style="regular", seconds=seconds, source_rate=RATE, split="train" if number % 4 < 2 else "test",
                license="CC0",
            )
        )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


class TestCluster:
    """One cluster for all."""

    pytestmark = on_cluster

    def test_tokenization_makes_the_local_shards_though_a_node_is_killed(
        self, nodes: Nodes, manifest: Path, tmp_path: Path
    ) -> None:
        def tokenize(output: Path, executor: Executor) -> int:
            made = tokenize_manifest(manifest, output, load_toys, utterances_per_shard=2, executor=executor)
            return made.shards_made

        tokenize(tmp_path / "local", Processes(1))
        halved = HalvedCluster(nodes, tmp_path / "begun")
        assert tokenize(tmp_path / "cluster", halved) == SHARDS
        halved.check()
        assert contents(tmp_path / "cluster") == contents(tmp_path / "local")
        (tmp_path / "cluster" / "shard-00002.safetensors").unlink()
        assert tokenize(tmp_path / "cluster", RayCluster(nodes.address)) == 1  # on the node that is left
        assert contents(tmp_path / "cluster") == contents(tmp_path / "local")

    def test_mining_and_scoring_make_the_local_files_though_a_node_is_killed(
        self, nodes: Nodes, manifest: Path, toy_bundle: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "texts.txt").write_text("She sells sea shells.\nthe mat sat\n")
        config = MineConfig(max_references=6, samples_per_shard=2, top_p=0.9, samples_per_text=2)
        plan = ScoringPlan("sphinx", "dnsmos", (TakeMetric.SIMILARITY,), Half.FORWARD)

        def make(output: Path, mining: Executor, scoring: Executor) -> None:
            report = mine(str(toy_bundle), [manifest], tmp_path / "texts.txt", output, config, executor=mining)
            assert report.takes == report.generated_now == 12
            score_takes(output, str(toy_bundle), plan, scoring)

        make(tmp_path / "local", Processes(1), Processes(1))
        mining = HalvedCluster(nodes, tmp_path / "mining")
        scoring = LaterHalved(nodes, tmp_path / "scoring")
        make(tmp_path / "cluster", mining, scoring)
        mining.check()
        scoring.check()
        assert contents(tmp_path / "cluster") == contents(tmp_path / "local")

    def test_evaluation_scores_as_locally_though_a_node_is_killed(
        self, nodes: Nodes, manifest: Path, tmp_path: Path
    ) -> None:
        trials = make_testset(manifest, num_speakers=2, num_sentences=4, recordings=tmp_path / "testset")
        load = partial(open_toy_metrics, trials)
        score_systems([GroundTruth()], trials, tmp_path / "local", load)
        halved = HalvedCluster(nodes, tmp_path / "begun")
        score_systems([GroundTruth()], trials, tmp_path / "cluster", load, halved)
        halved.check()
        scores = [(tmp_path / name / SCORES_FILE).read_bytes() for name in ("local", "cluster")]
        assert scores[0] and scores[0] == scores[1]

    def test_commands_work_on_the_cluster_that_they_are_given(
        self, nodes: Nodes, manifest: Path, toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)  # whose relative paths the nodes must resolve, too
        shutil.copytree(manifest.parent, "corpus")
        shutil.copytree(toy_bundle, "bundle")
        Path("texts.txt").write_text("the mat sat\n")
        Path("mine.toml").write_text("max_references = 4\nsamples_per_shard = 2\nsamples_per_text = 2\n")
        Path("pairs.toml").write_text(
            'scheme = "forward_takes"\nrecognizer = "sphinx"\ncer_weight = 0\nmos_weight = 0\n'
            "similarity_weight = 1\nrejected_fraction = 1\n"
            "num_examples = 1\n"
        )
        for name, more in (("local", []), ("cluster", ["--ray", nodes.address, "--workers", "1"])):
            commands = [
                ["tokenize", "corpus/utterances.jsonl", "--output", f"{name}/shards", *TOYS],
                ["preference", "mine", "bundle", "--references", "corpus/utterances.jsonl", "--texts", "texts.txt",
                 "--output", f"{name}/mined", "--config", "mine.toml"],
                ["preference", "pairs", f"{name}/mined", "--output", f"{name}/pairs.jsonl", "--config", "pairs.toml"],
            ]  # fmt: skip
            for command in commands:
                result = RUN.invoke(app, [*command, *more])
                assert result.exit_code == 0, result.output
        found, expected = contents(Path("cluster")), contents(Path("local"))
        reports = {"pairs-report/report.json", "pairs-report/report.md"}  # which name the folder of the takes
        assert found.keys() == expected.keys()
        assert [one for one in expected if found[one] != expected[one] and one not in reports] == []

    def test_errors_of_the_work_are_those_of_a_local_run(self, nodes: Nodes) -> None:
        assert sorted(RayCluster(nodes.address).run([1, 4, 9], load_nothing, root)) == [1, 2, 3]
        with pytest.raises(ConfigError, match="is refused"):
            list(RayCluster(nodes.address).run([1, 4], load_nothing, refuse))
        with pytest.raises(ConfigError, match="has no GPU"):
            list(RayCluster(nodes.address, needs_gpu=True).run([1], load_nothing, root))

    def test_a_job_that_kills_every_worker_is_named_when_all_others_are_done(self, nodes: Nodes) -> None:
        done = []
        with pytest.raises(DataError, match="worked on job 1 died 3 times each"):
            done += RayCluster(nodes.address).run([1, 2, 3], load_nothing, die)
        assert done == [] or done == [1, 3]


class LaterHalved(HalvedCluster):
    """The same, whose node is there when the run begins: another run kills it first."""

    def __init__(self, nodes: Nodes, begun: Path) -> None:
        self.nodes, self.begun = nodes, begun

    def run(self, jobs: Any, load: Any, work: Any) -> Iterator[Any]:
        super().__init__(self.nodes, self.begun)
        yield from super().run(jobs, load, work)


def open_toy_metrics(trials: Any) -> Metrics:
    return Metrics(trials, encoders={"toy": ToySpeakerEncoder("identity", 24)})
