"""Preference training from end to end with quick metrics: the best weights are kept, and resuming changes nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from marstts import models
from marstts.bundle import load_bundle
from marstts.cli.main import app
from marstts.errors import DataError
from marstts.generation.request import Generated, StopReason
from marstts.io.config import read_config
from marstts_lab.data.pairs import Pair, PairLine, SideLine, read_pairs, write_pairs
from marstts_lab.evaluation.testset import make_testset, read_testset, write_testset
from marstts_lab.preference.scoring import decode
from marstts_lab.preference.train import PreferenceConfig, check_held_out
from marstts_lab.preference.train import train as train_model
from marstts_lab.preference.validation import (
    TakeResult,
    ValidationConfig,
    ValidationResult,
    Validator,
    best_of,
    disqualification,
    summarize,
)
from marstts_lab.training.mars6.run_folder import trained_model

CONFIG = """
[orpo]
pairs_per_batch = 2
precision = "fp32"
device = "cpu"
[orpo.loop]
steps = 4
log_every = 1
validate_every = 2
[orpo.optimizer]
learning_rate = 1e-3
warmup_steps = 0
[validation]
sentences = 2
top_p = 0.9
"""


def validation(step: int, cer: float, similarity: float = 0.8, failure_rate: float = 0.1) -> ValidationResult:
    spread = (similarity - 0.05, similarity + 0.05)
    return ValidationResult(
        step=step, cer=cer, cer_interval=(cer, cer), similarity=similarity, similarity_interval=spread, length_ratio=1,
        repetition_rate=0, failure_rate=failure_rate, takes=9,
    )  # fmt: skip


INITIAL = validation(0, 0.5)


@pytest.mark.parametrize(
    ("later", "best"),
    [
        ([validation(10, 0.4), validation(20, 0.3), validation(30, 0.35)], 20),
        ([validation(10, 0.6)], 0),  # no step is better
        ([validation(10, 0.4), validation(20, 0.1, similarity=0.74)], 10),  # fewer errors, another voice
        ([validation(10, 0.4), validation(20, 0.1, similarity=0.76)], 20),  # within the interval of the initial model
        ([validation(10, 0.4), validation(20, 0.1, failure_rate=0.2)], 10),
        ([validation(10, 0.3), validation(20, 0.3)], 10),  # the earlier of equals
        ([validation(10, 0.5)], 0),
    ],
)
def test_the_best_is_chosen_by_the_stated_rule(later: list[ValidationResult], best: int):
    assert best_of([INITIAL, *later]).step == best


def test_a_validation_that_does_not_count_has_a_reason():
    assert disqualification(INITIAL, INITIAL) is None
    assert "similarity 0.700 is below 0.750" in disqualification(validation(1, 0.1, similarity=0.7), INITIAL)
    assert "30% of its takes fail, instead of 10%" in disqualification(validation(1, 0.1, failure_rate=0.3), INITIAL)


def test_takes_are_summarized_over_sentences():
    good = TakeResult(
        character_errors=1, characters=10, similarity=0.9, length_ratio=1.0,
        has_repetition=False, is_empty=False, too_long_or_no_eos=False,
    )  # fmt: skip
    bad = [good.model_copy(update={name: True}) for name in ("has_repetition", "is_empty", "too_long_or_no_eos")]
    long = good.model_copy(update={"characters": 30, "character_errors": 11, "similarity": 0.5, "length_ratio": 2.0})
    found = summarize(7, [good, *bad, long])
    assert (found.step, found.takes, found.cer, found.failure_rate, found.repetition_rate) == (7, 5, 15 / 70, 0.6, 0.2)
    assert found.similarity == pytest.approx(0.82) and found.length_ratio == 1.2
    assert found.similarity_interval[0] < 0.82 < found.similarity_interval[1] <= 0.9


@pytest.fixture(scope="module")
def testset(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sentences of the corpus, each with another recording of the same speaker as reference."""
    from marstts_lab.data.manifest import read_manifest, write_manifest

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

    encoders = {role: encoder.name for role, encoder in bundle.encoders.items()}
    found = []
    for number in range(3):
        line = PairLine(
            id=f"p{number}", scheme="ground_truth_vs_worst", text="the mat sat", transcript=None, speaker="anna", row=0,
            chosen=SideLine(source="recording", patches=6, has_eos=True),
            rejected=SideLine(source="cycle", patches=4 + number, has_eos=bool(number)),
            codec=bundle.codec.spec.name, encoders=encoders,
        )  # fmt: skip
        voice = {
            role: rng.standard_normal(encoder.size).astype(np.float32) for role, encoder in bundle.encoders.items()
        }
        found.append(Pair(line, voice, codes(0), codes(6), codes(4 + number)))
    path = tmp_path / "pairs.jsonl"
    write_pairs(found, path, bundle.codec.spec.patch_layout)
    return path


def train(bundle: Path, pairs: Path | list[Path], testset: Path, output: Path, text: str = CONFIG) -> str:
    config = output.with_suffix(".toml")
    config.write_text(text)
    words = ["preference", "train", bundle, "--held-out", testset]
    words += [word for path in (pairs if isinstance(pairs, list) else [pairs]) for word in ("--pairs", path)]
    words += ["--config", config, "--output", output]
    result = CliRunner().invoke(app, [*map(str, words), "--threads", "1"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_training_keeps_the_best_checkpoint_and_resumes(toy_bundle, pairs, testset, tmp_path, quick_metrics):
    others = [shutil.copy(path, path.with_stem("others")) for path in (pairs, pairs.with_suffix(".safetensors"))]
    output = train(toy_bundle, [pairs, others[0]], testset, tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "whole" / "validation.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 2, 4] and "6 pairs; the initial model: cer" in output
    best = best_of([ValidationResult.model_validate(line) for line in lines])
    state = json.loads((tmp_path / "whole" / "best" / "state.json").read_text())
    assert state == {"step": best.step}
    assert trained_model(tmp_path / "whole").config == models.load_for_training(toy_bundle).config
    log = [json.loads(line) for line in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert {"chosen_nll", "preference_loss", "margin", "preference_accuracy", "flux"} <= log[0].keys()

    train(
        toy_bundle,
        pairs,
        testset,
        tmp_path / "cut",
        CONFIG.replace("steps = 4", "steps = 2").replace("1e-3", "1e-3\nschedule = 'constant'"),
    )
    train(toy_bundle, pairs, testset, tmp_path / "cut", CONFIG.replace("1e-3", "1e-3\nschedule = 'constant'"))
    train(toy_bundle, pairs, testset, tmp_path / "straight", CONFIG.replace("1e-3", "1e-3\nschedule = 'constant'"))
    for name in ("validation.jsonl", "step-00000004/ema.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_pairs_of_another_model_are_refused_before_training(toy_bundle, pairs, testset, tmp_path):
    pairs.write_text(pairs.read_text().replace('"codec": "', '"codec": "another '))
    config = tmp_path / "preference.toml"
    config.write_text(CONFIG)
    words = [
        "preference",
        "train",
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


def test_every_failure_of_a_take_is_found(toy_bundle: Path, testset: Path, quick_metrics):
    bundle = load_bundle(toy_bundle)
    validator = Validator(bundle, read_testset(testset), ValidationConfig(sentences=1))
    [trial], [voice] = validator.trials, validator.voices
    layout = bundle.codec.spec.patch_layout

    def score(patches: int, stop: StopReason = StopReason.EOS) -> TakeResult:
        tokens = np.zeros((patches, sum(layout)), np.int64)
        waveform = decode(bundle.codec, tuple(np.full(patches * count, 43) for count in layout))
        return validator.score_take(trial, voice.embeddings["identity"], Generated(tokens, stop), waveform)

    plausible = score(12)
    assert not plausible.is_empty and not plausible.too_long_or_no_eos and -1 <= plausible.similarity <= 1
    assert plausible.has_repetition  # the recognizer's transcript is "the the"
    without_eos = score(12, StopReason.MAX_PATCHES)
    assert without_eos.too_long_or_no_eos and without_eos.failed
    too_long = score(108)
    assert too_long.too_long_or_no_eos and too_long.length_ratio > 2
    empty = score(0)
    assert empty.is_empty and empty.similarity == -1 and empty.character_errors == empty.characters


def test_sentences_of_the_pairs_are_refused_for_validation(
    toy_bundle, pairs, testset, caplog: pytest.LogCaptureFixture
):
    trials, found = read_testset(testset), read_pairs(pairs)
    check_held_out(trials, found, testset)
    assert [record.message for record in caplog.records] == [f"{testset}: 1 of its voices are in the pairs: anna"]
    other = [trial.model_copy(update={"speaker": "dora"}) for trial in trials]
    check_held_out(other, found, testset)
    assert len(caplog.records) == 1
    known = [*other, other[0].model_copy(update={"id": "x", "text": "The mat: SAT!"})]
    with pytest.raises(DataError, match="1 of 3 sentences are in the pairs, the first is that of 'x'"):
        check_held_out(known, found, testset)


def test_a_missing_test_set_is_named(toy_bundle, pairs, tmp_path):
    (tmp_path / "c.toml").write_text(CONFIG)
    config = read_config(PreferenceConfig, tmp_path / "c.toml")
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        train_model(str(toy_bundle), [pairs], tmp_path / "none.jsonl", tmp_path / "o", config)
