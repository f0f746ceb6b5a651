"""Tuning from end to end with quick judges: the best weights are kept by the rule, and stopping changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from marstts.checkpoint import load_bundle, load_mars6
from marstts.cli.main import app
from marstts.data.pairs import Pair, PairLine, SideLine, read_pairs, write_pairs
from marstts.errors import DataError
from marstts.evaluation.testset import make_testset, read_testset, write_testset
from marstts.preference.checkup import (
    Checkup,
    CheckupConfig,
    Guardian,
    TakeCheck,
    Ward,
    best_of,
    objection,
    summarize,
)
from marstts.preference.tune import check_held_out
from marstts.training.loop import latest
from marstts.training.pretrain import trained_model

CONFIG = """
[tune]
pairs_per_batch = 2
precision = "fp32"
device = "cpu"
[tune.loop]
steps = 4
log_every = 1
validate_every = 2
[tune.optimizer]
learning_rate = 1e-3
warmup_steps = 0
[checkup]
sentences = 2
top_p = 0.9
"""


def checkup(step: int, cer: float, similarity: float = 0.8, failures: float = 0.1, **others: float) -> Checkup:
    spread = (similarity - 0.05, similarity + 0.05)
    words = {"wrong_words": 0.5, "misfit": 7.0} | others
    return Checkup(
        step=step, cer=cer, cer_interval=(cer, cer), similarity=similarity, similarity_interval=spread, length_ratio=1,
        repetition=0, failures=failures, takes=9, **words,
        wrong_words_interval=(words["wrong_words"],) * 2, misfit_interval=(words["misfit"],) * 2,
    )  # fmt: skip


BEGINNING = checkup(0, 0.5)


@pytest.mark.parametrize(
    ("later", "best"),
    [
        ([checkup(10, 0.4), checkup(20, 0.3), checkup(30, 0.35)], 20),
        ([checkup(10, 0.6)], 0),  # nothing got better
        ([checkup(10, 0.4), checkup(20, 0.1, similarity=0.74)], 10),  # words bought with the voice
        ([checkup(10, 0.4), checkup(20, 0.1, similarity=0.76)], 20),  # within the interval it began with
        ([checkup(10, 0.4), checkup(20, 0.1, failures=0.2)], 10),
        ([checkup(10, 0.3), checkup(20, 0.3)], 10),  # the earlier of equals
        ([checkup(10, 0.5)], 0),
    ],
)
def test_the_best_is_chosen_by_the_stated_rule(later: list[Checkup], best: int):
    assert best_of([BEGINNING, *later]).step == best


@pytest.mark.parametrize("scale", ["wrong_words", "misfit"])
def test_another_judge_may_decide(scale: str):
    later = [checkup(10, 0.3, **{scale: 0.4}), checkup(20, 0.4, **{scale: 0.2}), checkup(30, 0.1, 0.7, **{scale: 0.1})]
    beginning = checkup(0, 0.5, **{scale: 0.45})
    assert best_of([beginning, *later], CheckupConfig(best_by=scale).best_by).step == 20
    with pytest.raises(ValueError, match="best_by"):
        CheckupConfig(best_by="mos")


def test_what_does_not_count_is_told_why():
    assert objection(BEGINNING, BEGINNING) is None
    assert "similarity 0.700 is below 0.750" in objection(checkup(1, 0.1, similarity=0.7), BEGINNING)
    assert "30% of its takes fail, instead of 10%" in objection(checkup(1, 0.1, failures=0.3), BEGINNING)


def test_takes_are_summed_up_over_sentences():
    good = TakeCheck(
        character_errors=1, characters=10, wrong_words=0.25, misfit=4.0, similarity=0.9, length_ratio=1.0,
        repeats=False, empty=False, runaway=False,
    )  # fmt: skip
    bad = [good.model_copy(update={name: True}) for name in ("repeats", "empty", "runaway")]
    long = good.model_copy(update={"characters": 30, "character_errors": 11, "similarity": 0.5, "length_ratio": 2.0})
    long = long.model_copy(update={"wrong_words": 0.75, "misfit": 9.0})
    found = summarize(7, [good, *bad, long])
    assert (found.step, found.takes, found.cer, found.failures, found.repetition) == (7, 5, 15 / 70, 0.6, 0.2)
    assert found.similarity == pytest.approx(0.82) and found.length_ratio == 1.2
    assert found.wrong_words == pytest.approx(0.35) and found.misfit == pytest.approx(5.0)
    assert found.misfit_interval[0] < 5.0 < found.misfit_interval[1] and found.wrong_words_interval[0] < 0.35
    assert found.similarity_interval[0] < 0.82 < found.similarity_interval[1] <= 0.9


@pytest.fixture(scope="module")
def testset(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sentences of the corpus, each with another recording of the same person as reference."""
    from marstts.data.manifest import read_manifest, write_manifest

    held_out = corpus.with_name("held_out.jsonl")
    import dataclasses

    write_manifest(
        [dataclasses.replace(u, split="test") for u in read_manifest(corpus) if u.speaker == "anna"], held_out
    )
    path = tmp_path_factory.mktemp("testset") / "testset.jsonl"
    write_testset(make_testset(held_out, num_speakers=1, num_sentences=2), path)
    return path


@pytest.fixture
def pairs(toy_bundle: Path, tmp_path: Path) -> Path:
    bundle, rng = load_bundle(toy_bundle), np.random.default_rng(2)

    def codes(patches: int):
        return tuple(rng.integers(0, 64, patches * count) for count in bundle.codec.spec.patch_layout)

    made_by = {
        "codec": bundle.codec.spec.name,
        "identity_encoder": bundle.identity_encoder.name,
        "style_encoder": bundle.style_encoder.name,
    }
    found = []
    for number in range(3):
        line = PairLine(
            id=f"p{number}", scheme="truth_vs_worst", text="the mat sat", transcript=None, speaker="anna", row=0,
            chosen=SideLine(source="recording", patches=6, ended=True),
            rejected=SideLine(source="cycle", patches=4 + number, ended=bool(number)), **made_by,
        )  # fmt: skip
        voice = rng.standard_normal(5).astype(np.float32), rng.standard_normal(7).astype(np.float32)
        found.append(Pair(line, *voice, codes(0), codes(6), codes(4 + number)))
    path = tmp_path / "pairs.jsonl"
    write_pairs(found, path, bundle.codec.spec.patch_layout)
    return path


def tune(bundle: Path, pairs: Path, testset: Path, output: Path, text: str = CONFIG) -> str:
    config = output.with_suffix(".toml")
    config.write_text(text)
    words = ["tune", bundle, "--pairs", pairs, "--held-out", testset, "--config", config, "--output", output]
    result = CliRunner().invoke(app, [*map(str, words), "--threads", "1"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_tuning_keeps_the_best_and_goes_on_where_it_stopped(toy_bundle, pairs, testset, tmp_path, quick_judges):
    told = tune(toy_bundle, pairs, testset, tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "checkups.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 2, 4] and "3 pairs; before tuning: cer" in told
    best = best_of([Checkup.model_validate(line) for line in lines])
    folder = tmp_path / "whole" / "best"
    assert latest(folder).name == f"step-{best.step:08d}" and len(list(folder.glob("step-*"))) == 1
    assert trained_model(folder).config == load_mars6(toy_bundle).config
    log = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert {"likelihood", "odds", "margin", "preferred", "flux"} <= log[0].keys()

    tune(
        toy_bundle,
        pairs,
        testset,
        tmp_path / "cut",
        CONFIG.replace("steps = 4", "steps = 2").replace("1e-3", "1e-3\nschedule = 'constant'"),
    )
    tune(toy_bundle, pairs, testset, tmp_path / "cut", CONFIG.replace("1e-3", "1e-3\nschedule = 'constant'"))
    tune(toy_bundle, pairs, testset, tmp_path / "straight", CONFIG.replace("1e-3", "1e-3\nschedule = 'constant'"))
    for name in ("checkups.jsonl", "step-00000004/average.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_pairs_that_cannot_be_learnt_from_stop_the_tuning_before_it_begins(toy_bundle, pairs, testset, tmp_path):
    pairs.write_text(pairs.read_text().replace('"codec": "', '"codec": "another '))
    config = tmp_path / "tune.toml"
    config.write_text(CONFIG)
    words = [
        "tune",
        toy_bundle,
        "--pairs",
        pairs,
        "--held-out",
        testset,
        "--config",
        config,
        "--output",
        tmp_path / "o",
    ]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 2 and "pair 'p0': was made with the codec 'another" in result.output
    assert not (tmp_path / "o").exists()


def test_a_ward_hears_what_is_wrong_with_a_take(toy_bundle: Path, testset: Path, quick_judges):
    from marstts.mars6.generate import Generated, StopReason

    ward = Ward(load_bundle(toy_bundle), read_testset(testset), CheckupConfig(sentences=1))
    assert len(ward.prompts) == 1
    config = ward.bundle.config
    loud = np.tile(np.array(config.position_levels) * config.codebook_size + 43, (12, 1))
    fine = ward.check_take(ward.trials[0], ward.references[0], Generated(loud, StopReason.EOS))
    assert not fine.empty and not fine.runaway and -1 <= fine.similarity <= 1 and fine.repeats  # it hears "the the"
    cut = ward.check_take(ward.trials[0], ward.references[0], Generated(loud, StopReason.MAX_PATCHES))
    assert cut.runaway and cut.failed
    endless = ward.check_take(ward.trials[0], ward.references[0], Generated(np.tile(loud, (9, 1)), StopReason.EOS))
    assert endless.runaway and endless.length_ratio > 2
    none = ward.check_take(ward.trials[0], ward.references[0], Generated(loud[:0], StopReason.EOS))
    assert none.empty and none.similarity == -1 and none.character_errors == none.characters
    assert (none.wrong_words, none.misfit, fine.wrong_words) == (1.0, 20.0, 0.5)


def test_a_guardian_remembers_what_was_found_before_a_stop(tmp_path: Path, toy_bundle: Path):
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    found = {0: BEGINNING, 5: checkup(5, 0.2), 10: checkup(10, 0.3)}
    ward = SimpleNamespace(check=lambda engine, step: found[step], config=CheckupConfig())
    model = load_mars6(toy_bundle)
    first = Guardian(tmp_path, ward)
    assert not first.has_begun
    for step in (0, 5):
        first(model, step)
    again = Guardian(tmp_path, ward)
    assert again.has_begun and dict(again(model, 10))["cer"] == 0.3
    assert again.best.step == 5 and latest(tmp_path / "best").name == "step-00000005"


def test_another_test_set_does_not_mix(toy_bundle, pairs, testset, tmp_path, quick_judges):
    tune(toy_bundle, pairs, testset, tmp_path / "run", CONFIG.replace("steps = 4", "steps = 1"))
    lines = testset.read_text().splitlines()
    other = shutil.copy(testset, testset.with_name("other.jsonl"))
    Path(other).write_text(lines[0] + "\n")
    with pytest.raises(AssertionError, match="begun with another test set"):
        tune(toy_bundle, pairs, Path(other), tmp_path / "run")


def test_what_is_learnt_from_is_not_judged_by(toy_bundle, pairs, testset, tmp_path):
    trials, found, said = read_testset(testset), read_pairs(pairs), []
    check_held_out(trials, found, testset, said.append)
    assert said == [f"{testset}: 1 of its voices are learnt from: anna"]
    other = [trial.model_copy(update={"speaker": "dora"}) for trial in trials]
    check_held_out(other, found, testset, said.append)
    assert len(said) == 1
    known = [*other, other[0].model_copy(update={"id": "x", "text": "The mat: SAT!"})]
    with pytest.raises(DataError, match="1 of 3 sentences are among those learnt from, the first is that of 'x'"):
        check_held_out(known, found, testset, said.append)


def test_a_test_set_that_is_none_is_named(toy_bundle, pairs, tmp_path):
    from marstts.config import read_config
    from marstts.preference.tune import TuningConfig
    from marstts.preference.tune import tune as tune_model

    (tmp_path / "c.toml").write_text(CONFIG)
    with pytest.raises(DataError, match="expected a test set"):
        tune_model(
            str(toy_bundle),
            pairs,
            tmp_path / "none.jsonl",
            tmp_path / "o",
            read_config(TuningConfig, tmp_path / "c.toml"),
        )
