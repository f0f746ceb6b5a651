"""Ranking: the worst by both judges is rejected, within thresholds and quotas; scores that are none are refused."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.data.pairs import check_pairs, read_pairs
from marstts.data.workers import Processes
from marstts.errors import ConfigError, DataError
from marstts.evaluation.metrics.alignment import Alignment
from marstts.evaluation.metrics.word_choice import WordChoices
from marstts.mars6.generate import StopReason
from marstts.preference import judging
from marstts.preference.judging import Judged, Scale, Score, Wanted
from marstts.preference.mine import MineConfig, mine
from marstts.preference.rank import rank
from marstts.preference.ranking import RankConfig, Scheme, as_pair, make_pairs, places, rank_takes
from marstts.preference.takes import CLAIM_FILE, Leg, PlannedTake, Spoken, Take, read_takes
from marstts.synthesis.loading import load

NOISE = Waveform(np.random.default_rng(0).standard_normal(4000).astype(np.float32) * 0.1, 8000)
MADE_BY = {"codec": "toy", "identity_encoder": "i", "style_encoder": "s"}


def codes(seed: int, patches: int = 3):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, 9, patches * count) for count in (1, 2, 4))


def take(name: str, reference: str = "", speaker: str = "anna", text: str = "hello") -> Take:
    seed = sum(map(ord, name))
    plan = PlannedTake(
        id=name, reference=reference or name, audio=Path("/a.wav"), transcript=f"words of {reference or name}",
        speaker=speaker, style="regular", text=text, seed=seed,
    )  # fmt: skip
    sides = [
        Spoken(
            np.full(5, n, np.float32), np.full(4, n, np.float32), codes(0, 0), codes(seed * n, 3 + n), StopReason.EOS
        )
        for n in (1, 2)
    ]
    return Take(plan, 0.2, codes(seed + 99), *sides, None)


def judged(
    one: Take, cer: float, mos: float, forward: tuple[float, float] | None = None, **others: float
) -> tuple[Take, Judged]:
    front = None if forward is None else Score(heard="", cer=forward[0], mos=forward[1])
    return one, Judged(id=one.id, forward=front, cycle=Score(heard="", cer=cer, mos=mos, **others))


def rejected(takes, **changes) -> list[str]:
    config = RankConfig.model_validate({"rejected_share": 1.0} | changes)
    return [one.take.id for one, _ in make_pairs(rank_takes(takes, config), config)]


TAKES = [
    judged(take("a"), 0.1, 4.0), judged(take("b", speaker="bert"), 0.9, 1.5), judged(take("c"), 0.5, 2.0),
    judged(take("d", speaker="bert"), 0.5, 3.0), judged(take("e"), 0.7, 3.5),
]  # fmt: skip


def test_places_are_shared_by_equals():
    assert places([3.0, 1.0, 3.0, 7.0]).tolist() == [0.5, 0.0, 0.5, 1.0]
    assert places([4.0]).tolist() == [0.0]


def test_the_worst_by_both_judges_comes_first():
    assert rejected(TAKES) == ["b", "c", "e", "d", "a"]
    assert rejected(TAKES, mos_weight=0)[:2] == ["b", "e"]
    assert rejected(TAKES, cer_weight=0) == ["b", "c", "d", "e", "a"]
    with pytest.raises(ConfigError, match="nothing to rank by"):
        rejected(TAKES, cer_weight=0, mos_weight=0)


@pytest.mark.parametrize(
    ("scale", "weight", "threshold"),
    [
        ("wrong_words", "wrong_words_weight", "rejected_min_wrong_words"),
        ("misfit", "misfit_weight", "rejected_min_misfit"),
    ],
)
def test_other_judges_rank_as_well_and_those_without_a_say_are_not_asked(scale: str, weight: str, threshold: str):
    takes = [judged(one, line.cycle.cer, line.cycle.mos, **{scale: n / 4}) for n, (one, line) in enumerate(TAKES)]
    only = {"cer_weight": 0, "mos_weight": 0, weight: 1}
    assert rejected(takes, **only) == ["e", "d", "c", "b", "a"]
    assert rejected(takes, **{weight: 2})[:2] == ["e", "b"]
    assert rejected(takes, **only, **{threshold: 0.5}) == ["e", "d", "c"]
    found = Scale(scale)
    assert RankConfig.model_validate(only).scales == (found,)
    assert RankConfig.model_validate(only | {"rejected_max_mos": 3}).scales == (found, Scale.MOS)
    assert RankConfig.model_validate(only | {"chosen_max_cer": 1}).scales == (Scale.CER, found)
    assert RankConfig.model_validate({"mos_weight": 0, threshold: 0.1}).scales == (Scale.CER, found)


def test_equals_are_ordered_by_their_ids_alone():
    equal = [judged(take(name), 0.5, 2.0) for name in "abcd"]
    assert rejected(equal) == rejected(equal[::-1])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rejected_share": 0.4}, ["b", "c"]),
        ({"rejected_share": 0.01}, ["b"]),
        ({"rejected_min_cer": 0.6}, ["b", "e"]),
        ({"rejected_max_mos": 2.5}, ["b", "c"]),
        ({"pairs_per_speaker": 1}, ["b", "c"]),
    ],
)
def test_thresholds_and_quotas(changes: dict, expected: list[str]):
    assert rejected(TAKES, **changes) == expected


def test_takes_that_broke_off_or_said_nothing_are_not_rejected():
    silent = take("x")
    silent = Take(silent.plan, 0.2, silent.truth, silent.forward, None, "too short to clone")
    mute = take("y")
    mute = Take(
        mute.plan, 0.2, mute.truth, mute.forward, Spoken(*[np.zeros(1)] * 2, (), codes(0, 0), StopReason.EOS), None
    )
    untold = take("z")
    untold = Take(untold.plan, 0.2, codes(0, 0), untold.forward, untold.cycle, None)
    scored = [(silent, Judged(id="x", forward=None, cycle=None)), judged(mute, 2.0, 1.0), judged(untold, 2.0, 1.0)]
    assert rejected([*TAKES, *scored]) == rejected(TAKES)


def test_a_take_that_equals_its_recording_is_no_failure():
    one = take("a")
    same = Take(one.plan, 0.2, one.cycle.codes, one.forward, one.cycle, None)
    assert rejected([judged(same, 0.9, 1.0)]) == []


def test_truth_against_the_worst_keeps_the_prompt_of_the_worst():
    config = RankConfig(rejected_share=0.1)
    [sides] = make_pairs(rank_takes(TAKES, config), config)
    pair = as_pair(*sides, config.scheme, MADE_BY)
    worst = TAKES[1][0]
    assert (pair.line.text, pair.line.transcript, pair.line.chosen.source) == ("words of b", None, "recording")
    assert pair.line.rejected.source == "cycle b" and (pair.line.rejected.cer, pair.line.rejected.mos) == (0.9, 1.5)
    assert pair.identity.tolist() == [2.0] * 5
    for got, expected in ((pair.chosen, worst.truth), (pair.rejected, worst.cycle.codes)):
        assert all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True))


def test_best_against_worst_compares_takes_of_the_same_words():
    takes = [
        judged(take("a1", "a"), 0.9, 2.0), judged(take("a2", "a"), 0.1, 3.0), judged(take("a3", "a"), 0.5, 2.5),
        judged(take("b1", "b"), 0.4, 2.0), judged(take("b2", "b"), 0.4, 2.0), judged(take("c1", "c"), 0.2, 2.9),
    ]  # fmt: skip
    config = RankConfig(scheme=Scheme.BEST_VS_WORST, rejected_share=1.0)
    [(worst, best)] = make_pairs(rank_takes(takes, config), config)  # equals, and those alone, make no pair
    assert (worst.take.id, best.take.id) == ("a1", "a2")
    pair = as_pair(worst, best, config.scheme, MADE_BY)
    assert (pair.line.text, pair.line.chosen.source, pair.line.rejected.source) == (
        "words of a",
        "cycle a2",
        "cycle a1",
    )
    assert rejected(takes, scheme="best_vs_worst", chosen_max_cer=0.05) == []
    heard = [judged(one, line.cycle.cer, line.cycle.mos, wrong_words=line.cycle.cer) for one, line in takes]
    assert rejected(heard, scheme="best_vs_worst", chosen_max_wrong_words=0.1) == ["a1"]
    assert rejected(heard, scheme="best_vs_worst", chosen_max_wrong_words=0.05) == []
    assert rejected(takes, scheme="best_vs_worst", least_margin=0.99) == []


def test_both_sides_judges_a_take_by_its_own_cycle_too():
    takes = [
        judged(take("a1", "a"), 0.1, 3.0, (0.6, 3.0)), judged(take("a2", "a"), 0.9, 1.0, (0.5, 3.0)),
        judged(take("b1", "b"), 0.2, 3.0, (0.3, 3.0)), judged(take("b2", "b", text="other"), 0.9, 1.0, (0.9, 1.0)),
    ]  # fmt: skip
    config = RankConfig(scheme=Scheme.BOTH_SIDES, rejected_share=1.0)
    [(worst, best)] = make_pairs(rank_takes(takes, config), config)
    assert (worst.take.id, best.take.id) == ("a2", "a1")
    pair = as_pair(worst, best, config.scheme, MADE_BY)
    assert (pair.line.text, pair.line.rejected.source, pair.line.rejected.cer) == ("hello", "forward a2", 0.5)
    assert pair.identity.tolist() == [1.0] * 5


# ---- from a folder of takes


@pytest.fixture(scope="module")
def mined(toy_bundle: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranked")
    (folder / "texts.txt").write_text("She sells sea shells.\nthe mat sat\n")
    config = MineConfig(references=4, takes_per_shard=2, top_p=0.9, takes_per_text=2)
    arguments = str(toy_bundle), corpus, folder / "texts.txt", folder / "mined", config
    mine(*arguments, engine=Processes(1), say=lambda line: None)
    return folder / "mined"


@pytest.fixture
def own(mined: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(mined, tmp_path / "mined"))


def make(mined: Path, say=lambda line: None, **changes) -> dict:
    config = RankConfig.model_validate({"rejected_share": 0.5, "mos": "dnsmos", "extremes": 2} | changes)
    return rank(mined, mined.parent / "out" / "pairs.jsonl", config, engine=Processes(1), say=say)


def test_mined_takes_become_pairs_a_model_can_learn_from(own: Path, toy_bundle: Path, quick_judges):
    report = make(own)
    path = own.parent / "out" / "pairs.jsonl"
    pairs = read_pairs(path)
    model = load(toy_bundle)
    check_pairs(pairs, model.codec.spec, model.identity_encoder.name, model.style_encoder.name)
    assert report["pairs"] == len(pairs) == math.ceil(report["ranked"] / 2) and report["takes"] == 8
    assert report["rejected"]["cer"]["mean"] >= report["all_takes"]["cer"]["mean"]
    assert all(pair.line.chosen.audio.is_file() for pair in pairs)
    folder = path.with_name("pairs-report")
    assert json.loads((folder / "report.json").read_text()) == report
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in ("cer.png", "mos.png"))
    assert len(list((folder / "extremes").glob("worst-*-cer*.wav"))) == 2
    assert len(list((folder / "extremes").glob("*-recording.wav"))) == 4


def test_takes_are_judged_once(own: Path, quick_judges):
    said: list[str] = []
    make(own, said.append)
    assert len(said) == 5 and said[0].endswith("judged by sphinx and dnsmos")
    make(own, said.append, cer_weight=0.5)
    assert len(said) == 6
    (own / "judged" / "takes-00002.jsonl").unlink()
    make(own, said.append)
    assert said[7:] == ["takes-00002.jsonl judged (1 of 1)"]
    make(own, said.append, scheme="both_sides", rejected_share=1)  # looks at both halves
    assert len(said) == 13
    with pytest.raises(ConfigError, match="judged by dnsmos, not plcmos"):
        make(own, mos="plcmos")


def test_scores_that_are_no_numbers_are_refused_by_name(own: Path, quick_judges, monkeypatch: pytest.MonkeyPatch):
    make(own)
    path, name = next(
        (path, take.id)
        for path in sorted(own.glob("takes-*.jsonl"))
        for take in read_takes(path)
        if take.cycle is not None
    )
    judged_path = own / "judged" / path.name
    lines = [json.loads(line) for line in judged_path.read_text().splitlines()]
    next(line for line in lines if line["id"] == name)["cycle"]["cer"] = math.nan
    judged_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DataError, match=f"take '{name}': its cycle cer is nan, which is no number"):
        make(own)
    judged_path.unlink()
    dizzy = SimpleNamespace(scales=("mood",), rate=lambda waveform: {"mood": math.nan})
    monkeypatch.setattr(judging, "open_quality_judge", lambda name: dizzy)
    with pytest.raises(DataError, match=f"take '{name}': its cycle mos is None, which is no number"):
        make(own)


def test_what_cannot_be_ranked_is_told(own: Path, tmp_path: Path, quick_judges):
    with pytest.raises(DataError, match="expected a folder that `marstts mine` wrote"):
        make(tmp_path)
    with pytest.raises(DataError, match=r"none of .* judged takes makes a pair; relax the thresholds"):
        make(own, rejected_min_cer=99)
    with pytest.raises(ConfigError, match="recogniser 'ear' was asked for"):
        judging.open_ears("mini", Wanted("ear", "dnsmos", (Scale.CER,), (Leg.CYCLE,)))
    claim = json.loads((own / CLAIM_FILE).read_text())
    (own / CLAIM_FILE).write_text(json.dumps(claim | {"codec": "older"}))
    with pytest.raises(DataError, match="codes of 'older', but the model"):
        make(own)
    for path in own.glob("takes-*.jsonl"):
        path.unlink()
    (own / CLAIM_FILE).write_text(json.dumps(claim))
    with pytest.raises(DataError, match="no takes here"):
        make(own)


def test_utmos_judges_where_it_can_and_dnsmos_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def offline(name: str):
        raise OSError("no network")

    monkeypatch.setattr(judging, "open_quality_judge", lambda name: None)
    assert judging.choose_mos("auto", tmp_path) == "utmos" and judging.choose_mos("plcmos", tmp_path) == "plcmos"
    monkeypatch.setattr(judging, "open_quality_judge", offline)
    assert judging.choose_mos("auto", tmp_path) == "dnsmos"
    judging.claim_judges(tmp_path, {"mos": "utmos"})
    assert judging.choose_mos("auto", tmp_path) == "dnsmos"
    (tmp_path / "takes-00000.jsonl").touch()
    assert judging.choose_mos("auto", tmp_path) == "utmos"


def test_silence_gets_the_worst_scores(toy_bundle: Path, quick_judges):
    ears = judging.open_ears(str(toy_bundle), Wanted("sphinx", "dnsmos", tuple(Scale), (Leg.CYCLE,)))
    nothing = (np.zeros(0, np.int64),) * 3
    worst = Score(heard="", cer=1.0, wrong_words=1.0, misfit=judging.WORST_MISFIT, mos=1.0)
    assert ears.score("the cat sat", nothing, Score()) == worst
    assert ears.score("the cat sat", nothing, Score(heard="", cer=0.5, mos=2)).cer == 0.5  # what was said stays


def test_the_word_test_is_asked_later_and_what_others_said_stays(own: Path, quick_judges):
    only = {"cer_weight": 0, "mos_weight": 0, "wrong_words_weight": 1}
    report = make(own, **only)
    folder = own.parent / "out" / "pairs-report"
    assert report["judges"] == {} and report["all_takes"].keys() == {"wrong_words"}
    assert report["all_takes"]["wrong_words"]["mean"] == pytest.approx(0.5)
    assert len(list((folder / "extremes").glob("worst-*-wrong_words0.50.wav"))) == 2
    pairs = read_pairs(own.parent / "out" / "pairs.jsonl")
    assert all(pair.line.rejected.wrong_words == 0.5 and pair.line.rejected.cer is None for pair in pairs)
    assert make(own)["all_takes"].keys() == {"cer", "mos"}
    line = Judged.model_validate_json((own / "judged" / "takes-00000.jsonl").read_text().splitlines()[0])
    assert line.cycle.wrong_words == 0.5 and line.cycle.cer is not None and line.forward is None


def test_words_that_nothing_sounds_like_are_not_wrong():
    test = SimpleNamespace(score=lambda pcm, words: WordChoices(right=0, choices=len(words) - 1, skipped=0))
    assert judging.wrong_words(test, ["strengths"], NOISE) == 0.0
    assert judging.wrong_words(test, ["cat", "dog"], NOISE) == 1.0


def test_words_that_cannot_be_placed_fit_worst():
    fits = [Alignment("cat", -9.0, 0, -4.5), Alignment("cat", -90.0, 0, -80.0), Alignment(None, None, 0)]
    aligners = [SimpleNamespace(align=lambda pcm, words, one=one: one) for one in fits]
    assert [judging.misfit(aligner, ["cat"], NOISE) for aligner in aligners] == [4.5, 20.0, 20.0]
