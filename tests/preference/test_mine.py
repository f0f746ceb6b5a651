"""Mining: every take with all that led to it, the same whoever speaks it and however often it is stopped."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from marstts.data.manifest import read_manifest, write_manifest
from marstts.data.workers import Processes
from marstts.errors import ConfigError, DataError
from marstts.mars6.generate import Limits, generate
from marstts.mars6.patches import patchify
from marstts.mars6.prompt import build_prompt
from marstts.preference.mine import MineConfig, Miner, choose_references, mine, read_texts
from marstts.preference.takes import CLAIM_FILE, PLAN_FILE, Leg, TakeLine, read_lines, read_takes
from marstts.synthesis.loading import load

ONE = Processes(1)


def config(**changes) -> MineConfig:
    return MineConfig.model_validate({"references": 4, "takes_per_shard": 3, "top_p": 0.9, "max_seconds": 3} | changes)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("takes-*"))}


@pytest.fixture(scope="module")
def mined(toy_bundle: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mined")
    texts = folder / "texts.txt"
    texts.write_text("She sells sea shells.\nthe mat sat\n")
    said: list[str] = []
    report = mine(str(toy_bundle), corpus, texts, folder / "out", config(), engine=ONE, say=said.append)
    assert report.takes == report.made_now == 4 and said[-1] == "takes-00001.jsonl written (2 of 2)"
    return folder


def again(mined: Path, toy_bundle: Path, corpus: Path, output: Path, **changes):
    settings = changes.pop("settings", config())
    return mine(
        str(changes.pop("model", toy_bundle)), corpus, changes.pop("texts", mined / "texts.txt"), output, settings,
        engine=changes.pop("engine", ONE), say=lambda line: None,
    )  # fmt: skip


def test_takes_are_kept_with_all_that_led_to_them(mined: Path, corpus: Path):
    takes = [take for path in sorted((mined / "out").glob("takes-*.jsonl")) for take in read_takes(path)]
    utterances = {utterance.id: utterance for utterance in read_manifest(corpus)}
    assert sorted({take.plan.speaker for take in takes}) == ["anna", "bert"]
    for take in takes:
        assert take.plan.audio.is_file() and take.plan.transcript == utterances[take.plan.reference].text
        assert take.plan.text in ("She sells sea shells.", "the mat sat") and take.top_p == 0.9
        assert len(take.truth[0]) > 15
        assert (take.problem is None) == (take.cycle is not None)
        for leg in (take.forward, take.cycle):
            assert leg is None or (len(leg.codes[1]) == 2 * len(leg.codes[0]) and not len(leg.prefix[0]))
    assert any(take.cycle is not None for take in takes)


def test_a_take_is_a_function_of_its_plan(mined: Path, toy_bundle: Path):
    """Spoken again by hand, alone: the same codes as among the others."""
    take = next(t for t in read_takes(mined / "out" / "takes-00000.jsonl") if t.cycle is not None)
    synthesizer = load(toy_bundle)
    model = synthesizer.stepper.config
    voice = synthesizer.clone(take.plan.audio)
    for leg, text in ((Leg.FORWARD, take.plan.text), (Leg.CYCLE, take.plan.transcript)):
        kept = take.leg(leg)
        np.testing.assert_array_equal(kept.identity, voice.identity)
        np.testing.assert_array_equal(kept.style, voice.style)
        limits: Limits = synthesizer.backoff.limits(text, synthesizer.codec.spec.patch_rate)
        [said] = generate(
            synthesizer.stepper, [build_prompt(text, voice, synthesizer.tokenizer, model, synthesizer.quality)],
            top_p=[0.9], limits=[limits], rngs=[np.random.default_rng((take.plan.seed, leg is Leg.CYCLE))],
            sampling=synthesizer.sampling,
        )  # fmt: skip
        np.testing.assert_array_equal(said.tokens, patchify(kept.codes, model.patch_layout, model.codebook_size))
        assert said.stop is kept.stop
        voice = synthesizer.clone(synthesizer.decode(kept.codes)) if leg is Leg.FORWARD else voice


def test_a_stopped_run_goes_on_and_equals_an_uninterrupted_one(mined, toy_bundle, corpus, tmp_path):
    shutil.copytree(mined / "out", tmp_path / "out")
    (tmp_path / "out" / "takes-00001.jsonl").unlink()
    report = again(mined, toy_bundle, corpus, tmp_path / "out")
    assert report.made_now == 1 and report.takes == 4
    assert files_of(tmp_path / "out") == files_of(mined / "out")
    assert again(mined, toy_bundle, corpus, tmp_path / "out").made_now == 0


class Backwards:
    """Two workers that open a model each, after it was sent to them, and take the last jobs first."""

    def run(self, jobs, load_ears, finish):
        crew = [pickle.loads(pickle.dumps(load_ears))() for _ in range(2)]
        yield from (finish(job, crew[index % 2]) for index, job in enumerate(reversed(jobs)))


def test_many_workers_speak_what_one_speaks(mined, toy_bundle, corpus, tmp_path):
    again(mined, toy_bundle, corpus, tmp_path / "out", engine=Backwards())
    assert files_of(tmp_path / "out") == files_of(mined / "out")


def test_the_plan_stays_when_the_corpus_grows_but_not_when_it_shrinks(mined, toy_bundle, corpus, tmp_path):
    shutil.copytree(mined / "out", tmp_path / "out")
    utterances = read_manifest(corpus)
    plan = (tmp_path / "out" / PLAN_FILE).read_text()
    used = {json.loads(line)["reference"] for line in plan.splitlines()}
    spare = next(u for u in utterances if u.id not in used and u.split == "train")
    smaller = corpus.with_name("smaller.jsonl")
    write_manifest([u for u in utterances if u.id != spare.id], smaller)
    assert again(mined, toy_bundle, smaller, tmp_path / "out").made_now == 0
    write_manifest([u for u in utterances if u.id not in used], smaller)
    with pytest.raises(DataError, match=r"4 recordings of the plan in .* are not in it"):
        again(mined, toy_bundle, smaller, tmp_path / "out")


def test_another_model_configuration_or_text_goes_elsewhere(mined, toy_bundle, corpus, tmp_path):
    shutil.copytree(mined / "out", tmp_path / "out")
    other = tmp_path / "other.txt"
    other.write_text("the cat sat\n")
    with pytest.raises(ConfigError, match=r"another file of texts and configuration; choose a new --output"):
        again(mined, toy_bundle, corpus, tmp_path / "out", texts=other, settings=config(seed=7))
    claim = json.loads((tmp_path / "out" / CLAIM_FILE).read_text())
    (tmp_path / "out" / CLAIM_FILE).write_text(json.dumps(claim | {"model_digest": "0"}))
    with pytest.raises(ConfigError, match="another model; choose"):
        again(mined, toy_bundle, corpus, tmp_path / "out")


def test_deep_cycles_go_on_from_what_was_said_before(mined, toy_bundle, corpus, tmp_path):
    again(mined, toy_bundle, corpus, tmp_path / "out", settings=config(deep=True, references=2))
    takes = read_takes(tmp_path / "out" / "takes-00000.jsonl")
    assert all(len(take.forward.prefix[0]) > 10 for take in takes)
    assert any(take.cycle is not None and len(take.cycle.prefix[0]) > 5 for take in takes)


def test_what_cannot_be_spoken_is_told_and_the_others_are_not_lost(mined, toy_bundle, tmp_path):
    miner = Miner.open(str(toy_bundle), config())
    plans = [take.plan for take in read_takes(mined / "out" / "takes-00000.jsonl")]
    lost = plans[0].model_copy(update={"audio": tmp_path / "gone.wav"})
    broken, *others = miner.cycles([lost, *plans[1:]])
    assert "gone.wav" in broken.problem and broken.forward is broken.cycle is None and not len(broken.truth[0])
    assert all(other.forward is not None for other in others)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"split": "test"}, {"u6"}),
        ({"min_seconds": 1.95}, {"u4", "u5"}),
        ({"max_seconds": 1.75}, {"u0", "u1"}),
        ({"styles": ["whisper"]}, set()),
        ({"min_source_rate": 48_000}, set()),
        ({"references": 2}, None),
    ],
)
def test_references_are_chosen_by_what_they_are(corpus: Path, changes: dict, names: set[str] | None):
    found = choose_references(read_manifest(corpus), config(**({"references": 9} | changes)))
    if names is None:
        assert len(found) == 2 and {u.speaker for u in found} == {"anna", "bert"}
    else:
        assert {u.id for u in found} == names


def test_several_texts_and_takes_of_a_reference_have_seeds_of_their_own(mined, toy_bundle, corpus, tmp_path):
    settings = config(references=1, texts_per_reference=2, takes_per_text=2, takes_per_shard=9)
    again(mined, toy_bundle, corpus, tmp_path / "out", settings=settings)
    lines: list[TakeLine] = read_lines(TakeLine, tmp_path / "out" / "takes-00000.jsonl")
    assert len({line.plan.seed for line in lines}) == len({line.plan.id for line in lines}) == 4
    assert lines[0].plan.text == lines[1].plan.text


def test_texts_are_read_once_each_and_what_has_no_words_is_left_out(texts: Path, tmp_path: Path):
    assert read_texts(texts, 100) == ["She sells sea shells.", "the mat sat"]
    assert read_texts(texts, 15) == ["the mat sat"]
    packed = tmp_path / "texts.tsv.gz"
    packed.write_bytes(gzip.compress(texts.read_bytes()))
    assert read_texts(packed, 100) == read_texts(texts, 100)
    with pytest.raises(DataError, match="no sentence of at most 3 characters"):
        read_texts(texts, 3)
    with pytest.raises(DataError, match="expected a file of sentences"):
        read_texts(tmp_path / "none.txt", 9)


def test_a_folder_of_something_else_is_named(tmp_path: Path, toy_bundle: Path, corpus: Path, texts: Path):
    with pytest.raises(DataError, match="no recording of split 'train', styles whisper"):
        mine(str(toy_bundle), corpus, texts, tmp_path, config(styles=["whisper"]), engine=ONE)
    (tmp_path / "takes-00000.jsonl").write_text("{}\n")
    with pytest.raises(Exception, match=r"takes-00000\.jsonl"):
        read_takes(tmp_path / "takes-00000.jsonl")
