"""Scoring and ranking: the worst takes by all metrics are rejected, within thresholds and quotas."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.bundle import load_bundle
from marstts.codec.toy import ToyCodec
from marstts.errors import ConfigError, DataError
from marstts.generation.request import StopReason
from marstts.io.config import read_config
from marstts.io.provenance import write_provenance
from marstts.speaker.base import encoder_input
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.loading import load
from marstts_lab.data.mined_takes import GeneratedHalf, MinedTake, MiningProvenance, PlannedTake
from marstts_lab.data.pairs import check_pairs, read_pairs
from marstts_lab.data.workers import Processes
from marstts_lab.preference.mine import MineConfig, mine
from marstts_lab.preference.pairs import as_pair, make_pairs
from marstts_lab.preference.ranking import RankConfig, Scheme, choose_pairs, percentiles, rank_takes
from marstts_lab.preference.scoring import MetricModels, Score, ScoredTake, TakeMetric

MINI = Path(__file__).parents[2] / "recipes" / "mini" / "pairs.toml"
ONE = Processes(1)
NOISE = Waveform(np.random.default_rng(0).standard_normal(4000).astype(np.float32) * 0.1, 8000)
ENCODERS = {"identity": "i", "style": "s"}
MADE_BY = MiningProvenance(model="m", model_digest="d", codec="toy", encoders=ENCODERS, texts="t", config={})


def codes(seed: int, patches: int = 3):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, 9, patches * count) for count in (1, 2, 4))


def embeddings(value: float) -> dict[str, np.ndarray]:
    return {"identity": np.full(5, value, np.float32), "style": np.full(4, value, np.float32)}


def take(name: str, reference: str = "", speaker: str = "anna", text: str = "hello") -> MinedTake:
    seed = sum(map(ord, name))
    plan = PlannedTake(
        id=name, reference=reference or name, audio=Path("/a.wav"), transcript=f"words of {reference or name}",
        speaker=speaker, style="regular", text=text, seed=seed,
    )  # fmt: skip
    sides = [GeneratedHalf(embeddings(n), codes(0, 0), codes(seed * n, 3 + n), StopReason.EOS) for n in (1, 2)]
    return MinedTake(plan, 0.2, codes(seed + 99), *sides, None)


def scored(
    one: MinedTake, cer: float, mos: float, forward: tuple[float, float] | None = None, **others: float
) -> tuple[MinedTake, ScoredTake]:
    front = None if forward is None else Score(transcript="", cer=forward[0], mos=forward[1])
    return one, ScoredTake(id=one.id, forward=front, cycle=Score(transcript="", cer=cer, mos=mos, **others))


def rejected(takes, **changes) -> list[str]:
    config = RankConfig.model_validate({"rejected_fraction": 1.0} | changes)
    return [one.take.id for one, _ in choose_pairs(rank_takes(takes, config), config)]


TAKES = [
    scored(take("a"), 0.1, 4.0), scored(take("b", speaker="bert"), 0.9, 1.5), scored(take("c"), 0.5, 2.0),
    scored(take("d", speaker="bert"), 0.5, 3.0), scored(take("e"), 0.7, 3.5),
]  # fmt: skip


def test_equal_values_share_a_percentile():
    assert percentiles([3.0, 1.0, 3.0, 7.0]).tolist() == [0.5, 0.0, 0.5, 1.0]
    assert percentiles([4.0]).tolist() == [0.0]


def test_the_worst_by_both_metrics_comes_first():
    assert rejected(TAKES) == ["b", "c", "e", "d", "a"]
    assert rejected(TAKES, mos_weight=0)[:2] == ["b", "e"]
    assert rejected(TAKES, cer_weight=0) == ["b", "c", "d", "e", "a"]
    with pytest.raises(ConfigError, match="nothing to rank by"):
        rejected(TAKES, cer_weight=0, mos_weight=0)


def test_metrics_without_weight_or_threshold_are_not_computed():
    def metrics(**changes) -> tuple[TakeMetric, ...]:
        return RankConfig.model_validate(changes).metrics

    assert metrics() == (TakeMetric.CER, TakeMetric.MOS)
    assert metrics(mos_weight=0) == metrics(mos_weight=0, rejected_min_cer=0.1) == (TakeMetric.CER,)
    assert metrics(cer_weight=0) == (TakeMetric.MOS,)
    assert metrics(cer_weight=0, rejected_min_cer=0.1) == metrics(cer_weight=0, chosen_max_cer=1) == metrics()


def test_equals_are_ordered_by_their_ids_alone():
    equal = [scored(take(name), 0.5, 2.0) for name in "abcd"]
    assert rejected(equal) == rejected(equal[::-1])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rejected_fraction": 0.4}, ["b", "c"]),
        ({"rejected_fraction": 0.01}, ["b"]),
        ({"rejected_min_cer": 0.6}, ["b", "e"]),
    ],
)
def test_thresholds_and_quotas(changes: dict, expected: list[str]):
    assert rejected(TAKES, **changes) == expected


def test_a_take_that_equals_its_recording_is_not_rejected():
    one = take("a")
    same = replace(one, ground_truth=one.cycle.codes)
    assert rejected([scored(same, 0.9, 1.0)]) == []


def test_ground_truth_against_the_worst_keeps_the_prompt_of_the_worst():
    config = RankConfig(rejected_fraction=0.1)
    [sides] = choose_pairs(rank_takes(TAKES, config), config)
    pair = as_pair(*sides, config.scheme, MADE_BY)
    worst = TAKES[1][0]
    assert (pair.line.text, pair.line.transcript, pair.line.chosen.source) == ("words of b", None, "recording")
    assert pair.line.rejected.source == "cycle b" and (pair.line.rejected.cer, pair.line.rejected.mos) == (0.9, 1.5)
    assert pair.embeddings["identity"].tolist() == [2.0] * 5
    for got, expected in ((pair.chosen, worst.ground_truth), (pair.rejected, worst.cycle.codes)):
        assert all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True))


def test_forward_takes_of_a_text_are_paired_better_with_worse():
    takes = [
        scored(take("a1", "a"), 0.9, 3.0, (0.3, 3.0)), scored(take("a2", "a"), 0.1, 3.0, (0.5, 3.0)),
        scored(take("a3", "a"), 0.1, 3.0, (0.9, 3.0)), scored(take("a4", "a"), 0.1, 3.0, (0.9, 3.0)),
        scored(take("b1", "b", text="other"), 0.2, 3.0, (0.0, 3.0)),
    ]  # fmt: skip
    config = RankConfig(scheme=Scheme.FORWARD_TAKES, rejected_fraction=1.0, mos_weight=0.0)
    pairs = choose_pairs(rank_takes(takes, config), config)
    found = {(worse.take.id, better.take.id) for worse, better in pairs}
    assert found == {("a3", "a1"), ("a4", "a1"), ("a3", "a2"), ("a4", "a2"), ("a2", "a1")}
    assert {worse.take.id for worse, _ in pairs[:4]} == {"a3", "a4"}  # the worst first
    assert len({as_pair(*sides, config.scheme, MADE_BY).line.id for sides in pairs}) == len(pairs)
    pair = as_pair(*next(pair for pair in pairs if pair[0].take.id == "a2"), config.scheme, MADE_BY)
    assert (pair.line.text, pair.line.rejected.source, pair.line.rejected.cer) == ("hello", "forward a2", 0.5)
    assert pair.embeddings["identity"].tolist() == [1.0] * 5
    strict = config.model_copy(update={"chosen_max_cer": 0.4})
    assert {better.take.id for _, better in choose_pairs(rank_takes(takes, strict), strict)} == {"a1"}
    far_apart = config.model_copy(update={"min_margin": 0.99})
    assert choose_pairs(rank_takes(takes, far_apart), far_apart) == []


@pytest.mark.parametrize(
    ("better", "worse", "is_pair"),
    [
        ((0.1, 0.8), (0.2, 0.8), True),  # fewer errors
        ((0.1, 0.8), (0.1, 0.6), True),  # a more similar voice
        ((0.1, 0.8), (0.14, 0.76), False),  # 0.06 better in both together
        ((0.1, 0.8), (0.14, 0.73), True),
        ((0.1, 0.9), (0.085, 0.6), True),
        ((0.1, 0.9), (0.075, 0.6), False),  # not for wrong words
        ((0.13, 0.9), (0.9, 0.6), False),
    ],
)
def test_a_more_similar_voice_is_chosen_where_the_words_are_kept(better: tuple, worse: tuple, is_pair: bool):
    def one(name: str, cer: float, similarity: float) -> tuple[MinedTake, ScoredTake]:
        score = Score(transcript="", cer=cer, similarity=similarity)
        return take(name, "a"), ScoredTake(id=name, forward=score, cycle=None)

    config = read_config(RankConfig, MINI)
    found = choose_pairs(rank_takes([one("better", *better), one("worse", *worse)], config), config)
    assert [(rejected.take.id, chosen.take.id) for rejected, chosen in found] == [("worse", "better")] * is_pair
    lines = [as_pair(*sides, config.scheme, MADE_BY).line for sides in found]
    assert [(line.rejected.similarity, line.chosen.similarity) for line in lines] == [(worse[1], better[1])] * is_pair


def test_similarity_is_that_of_the_take_as_a_reference_to_its_prompt():
    codec, encoder = ToyCodec(64), ToySpeakerEncoder("identity", 5)
    output = take("a").forward
    speech = tuple(np.full(12 * count, 43) for count in codec.spec.patch_layout)
    own = encoder.embed(encoder_input(codec.decode(speech), codec.spec.sample_rate))
    models = MetricModels(codec, recognizer=None, quality=None, identity=encoder)
    before = Score(transcript="", cer=0.5)
    for prompt, spoken, expected in ((own, speech, 1), (-own, speech, -1), (own, codes(0, 0), -1)):
        one = replace(output, embeddings={"identity": prompt}, codes=spoken)
        found = models.score("the mat sat", one, before)
        assert found.similarity == pytest.approx(expected, abs=1e-4) and (found.cer, found.mos) == (0.5, None)


def test_takes_in_voices_of_another_encoder_are_refused_where_similarity_counts(tmp_path: Path, toy_bundle: Path):
    codec = load_bundle(toy_bundle).codec.spec.name
    write_provenance(tmp_path, MADE_BY.model_copy(update={"model": str(toy_bundle), "codec": codec}))
    with pytest.raises(DataError, match="mine again, or set similarity_weight = 0"):
        make(tmp_path, similarity_weight=0.5)


# ---- from a folder of takes


@pytest.fixture(scope="module")
def mined(toy_bundle: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranked")
    (folder / "texts.txt").write_text("She sells sea shells.\nthe mat sat\n")
    config = MineConfig(max_references=4, samples_per_shard=2, top_p=0.9, samples_per_text=2)
    arguments = str(toy_bundle), [corpus], folder / "texts.txt", folder / "mined", config
    mine(*arguments, executor=Processes(1))
    return folder / "mined"


@pytest.fixture
def copy_of_mined(mined: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mined, tmp_path / "mined"))


def make(mined: Path, executor=ONE, **changes) -> dict:
    values = {"rejected_fraction": 0.5, "mos_predictor": "dnsmos", "num_examples": 2} | changes
    return make_pairs(mined, mined.parent / "out" / "pairs.jsonl", RankConfig.model_validate(values), executor=executor)


@pytest.mark.slow
def test_mined_takes_become_pairs_that_a_model_can_be_trained_on(copy_of_mined: Path, toy_bundle: Path, quick_metrics):
    report = make(copy_of_mined)
    path = copy_of_mined.parent / "out" / "pairs.jsonl"
    pairs = read_pairs(path)
    model = load(toy_bundle)
    check_pairs(pairs, model.session.codec.spec, model.session.encoder_names)
    assert report["pairs"] == len(pairs) == math.ceil(report["ranked"] / 2) and report["takes"] == 8
    assert report["rejected"]["cer"]["mean"] >= report["all_takes"]["cer"]["mean"]
    assert all(pair.line.chosen.audio.is_file() for pair in pairs)
    folder = path.with_name("pairs-report")
    assert json.loads((folder / "report.json").read_text()) == report
    assert len(list((folder / "examples").glob("worst-*-cer*.wav"))) == 2
    assert len(list((folder / "examples").glob("*-recording.wav"))) == 4


class CountingExecutor:
    """Does the jobs in this process, and records their names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run(self, jobs, load, work):
        self.names += [job.name for job in jobs]
        return ONE.run(jobs, load, work)


@pytest.mark.slow
def test_takes_are_scored_once(copy_of_mined: Path, quick_metrics):
    shards = sorted(path.name for path in copy_of_mined.glob("takes-*.jsonl"))
    for changes, expected in (
        ({}, shards),
        ({"cer_weight": 0.5}, []),
        ({"scheme": "forward_takes", "rejected_fraction": 1}, shards),  # scores the other half
    ):
        executor = CountingExecutor()
        make(copy_of_mined, executor, **changes)
        assert executor.names == expected
    (copy_of_mined / "scores" / shards[2]).unlink()
    make(copy_of_mined, executor := CountingExecutor())
    assert executor.names == [shards[2]]
    with pytest.raises(ConfigError, match=r"another mos_predictor \(mos_predictor: dnsmos before, utmos now\)"):
        make(copy_of_mined, mos_predictor="utmos")


@pytest.mark.slow
def test_a_metric_can_be_added_later_and_other_scores_stay(copy_of_mined: Path, quick_metrics):
    report = make(copy_of_mined, mos_weight=0)
    folder = copy_of_mined.parent / "out" / "pairs-report"
    assert report["metrics"] == {"recognizer": "faster-whisper"} and report["all_takes"].keys() == {"cer"}
    assert len(list((folder / "examples").glob("worst-*-cer*.wav"))) == 2
    pairs = read_pairs(copy_of_mined.parent / "out" / "pairs.jsonl")
    assert all(pair.line.rejected.mos is None and pair.line.rejected.cer is not None for pair in pairs)
    before = ScoredTake.model_validate_json(first_line(copy_of_mined / "scores" / "takes-00000.jsonl"))
    assert make(copy_of_mined)["all_takes"].keys() == {"cer", "mos"}
    assert make(copy_of_mined, similarity_weight=0.5)["all_takes"].keys() == {"cer", "mos", "similarity"}
    line = ScoredTake.model_validate_json(first_line(copy_of_mined / "scores" / "takes-00000.jsonl"))
    assert line.cycle.mos is not None and line.cycle.cer == before.cycle.cer and line.forward is None
    assert before.cycle.similarity is None and -1 <= line.cycle.similarity <= 1


def first_line(path: Path) -> str:
    return path.read_text().splitlines()[0]
