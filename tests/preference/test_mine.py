"""Mining: takes with everything they were made from, the same for all executors and after any interruption."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marstts import audio
from marstts.errors import ConfigError, DataError
from marstts.generation.loop import generate_requests
from marstts.generation.request import Request
from marstts.io.files import lock_folder
from marstts.io.provenance import PROVENANCE_FILE
from marstts.synthesis.loading import load
from marstts_lab.data.manifest import read_manifest, write_manifest
from marstts_lab.data.mined_takes import PLAN_FILE, Half, read_takes
from marstts_lab.data.workers import Processes
from marstts_lab.preference.mine import CycleGenerator, MineConfig, Texts, choose_references, clone_any, mine

pytestmark = pytest.mark.slow

ONE = Processes(1)


def config(**changes) -> MineConfig:
    return MineConfig.model_validate(
        {"max_references": 4, "samples_per_shard": 3, "top_p": 0.9, "max_seconds": 3} | changes
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("takes-*"))}


@pytest.fixture(scope="module")
def mined(toy_bundle: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mined")
    texts = folder / "texts.txt"
    texts.write_text("She sells sea shells.\nthe mat sat\n")
    report = mine(str(toy_bundle), [corpus], texts, folder / "out", config(), executor=ONE)
    assert report.takes == report.generated_now == 4 and (folder / "out" / "takes-00001.jsonl").is_file()
    return folder


def again(mined: Path, toy_bundle: Path, corpus: Path, output: Path, **changes):
    settings = changes.pop("settings", config())
    return mine(
        str(changes.pop("model", toy_bundle)), [corpus], changes.pop("texts", mined / "texts.txt"), output, settings,
        executor=changes.pop("executor", ONE),
    )  # fmt: skip


def test_takes_are_kept_with_everything_they_were_made_from(mined: Path, corpus: Path):
    takes = [take for path in sorted((mined / "out").glob("takes-*.jsonl")) for take in read_takes(path)]
    utterances = {utterance.id: utterance for utterance in read_manifest(corpus)}
    assert sorted({take.plan.speaker for take in takes}) == ["anna", "bert"]
    for take in takes:
        assert take.plan.audio.is_file() and take.plan.transcript == utterances[take.plan.reference].text
        assert take.plan.text in ("She sells sea shells.", "the mat sat") and take.top_p == 0.9
        assert len(take.ground_truth[0]) > 15
        assert (take.error is None) == (take.cycle is not None)
        for half in (take.forward, take.cycle):
            assert half is None or (len(half.codes[1]) == 2 * len(half.codes[0]) and not len(half.prefix[0]))
    assert any(take.cycle is not None for take in takes)


def test_a_take_is_a_function_of_its_plan(mined: Path, toy_bundle: Path):
    """Generated again by hand, alone: the same codes as in a batch with others."""
    take = next(t for t in read_takes(mined / "out" / "takes-00000.jsonl") if t.cycle is not None)
    synthesizer = load(toy_bundle)
    model, rate = synthesizer.session.model, synthesizer.session.codec.spec.patch_rate
    voice = clone_any(synthesizer, take.plan.audio)
    for half, text in ((Half.FORWARD, take.plan.text), (Half.CYCLE, take.plan.transcript)):
        kept, rng = take.half(half), np.random.default_rng((take.plan.seed, half is Half.CYCLE))
        for role, values in voice.embeddings.items():
            np.testing.assert_array_equal(kept.embeddings[role], values)
        request = Request(
            model.prompt(text, voice), 0.9, synthesizer.session.backoff.limits(text, rate), rng, model.sampling
        )
        [generated] = generate_requests(model.engine, [request])
        for ours, theirs in zip(kept.codes, model.codes(generated.tokens, rng), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert generated.stop is kept.stop
        voice = clone_any(synthesizer, synthesizer.session.decode(kept.codes, voice)) if half is Half.FORWARD else voice


def test_a_resumed_run_equals_an_uninterrupted_one(mined, toy_bundle, corpus, tmp_path):
    shutil.copytree(mined / "out", tmp_path / "out")
    (tmp_path / "out" / "takes-00001.jsonl").unlink()
    report = again(mined, toy_bundle, corpus, tmp_path / "out")
    assert report.generated_now == 1 and report.takes == 4
    assert files_of(tmp_path / "out") == files_of(mined / "out")
    assert again(mined, toy_bundle, corpus, tmp_path / "out").generated_now == 0


def test_the_plan_stays_when_the_corpus_grows_but_not_when_it_shrinks(mined, toy_bundle, corpus, tmp_path):
    shutil.copytree(mined / "out", tmp_path / "out")
    utterances = read_manifest(corpus)
    plan = (tmp_path / "out" / PLAN_FILE).read_text()
    used = {json.loads(line)["reference"] for line in plan.splitlines()}
    spare = next(u for u in utterances if u.id not in used and u.split == "train")
    smaller = corpus.with_name("smaller.jsonl")
    write_manifest([u for u in utterances if u.id != spare.id], smaller)
    assert again(mined, toy_bundle, smaller, tmp_path / "out").generated_now == 0
    write_manifest([u for u in utterances if u.id not in used], smaller)
    with pytest.raises(DataError, match=r"4 recordings of the plan in .* are not in it"):
        again(mined, toy_bundle, smaller, tmp_path / "out")


def test_another_model_configuration_or_text_needs_another_folder(mined, toy_bundle, corpus, tmp_path):
    shutil.copytree(mined / "out", tmp_path / "out")
    other = tmp_path / "other.txt"
    other.write_text("the cat sat\n")
    with pytest.raises(ConfigError, match=r"another file of texts and another configuration .*choose a new folder"):
        again(mined, toy_bundle, corpus, tmp_path / "out", texts=other, settings=config(seed=7))
    record = json.loads((tmp_path / "out" / PROVENANCE_FILE).read_text())
    (tmp_path / "out" / PROVENANCE_FILE).write_text(json.dumps(record | {"model_digest": "0"}))
    with pytest.raises(ConfigError, match="was started with another model"):
        again(mined, toy_bundle, corpus, tmp_path / "out")


def test_without_cycles_forward_takes_are_the_same(mined, toy_bundle, corpus, tmp_path):
    again(mined, toy_bundle, corpus, tmp_path / "out", settings=config(cycle=False))
    for path in sorted((mined / "out").glob("takes-*.jsonl")):
        for whole, half in zip(read_takes(path), read_takes(tmp_path / "out" / path.name), strict=True):
            assert half.cycle is None and half.error == whole.error
            for one, other in zip(whole.forward.codes, half.forward.codes, strict=True):
                np.testing.assert_array_equal(one, other)


def test_deep_clones_continue_from_the_first_half(mined, toy_bundle, corpus, tmp_path):
    again(mined, toy_bundle, corpus, tmp_path / "out", settings=config(deep_clone=True, max_references=2))
    takes = read_takes(tmp_path / "out" / "takes-00000.jsonl")
    assert all(len(take.forward.prefix[0]) > 10 for take in takes)
    assert any(take.cycle is not None and len(take.cycle.prefix[0]) > 5 for take in takes)


def test_a_recording_that_cannot_be_read_is_an_error_of_its_take_alone(mined, toy_bundle, tmp_path):
    generator = CycleGenerator(load(toy_bundle), top_p=0.9)
    plans = [take.plan for take in read_takes(mined / "out" / "takes-00000.jsonl")]
    lost = plans[0].model_copy(update={"audio": tmp_path / "gone.wav"})
    broken, *others = generator.generate_cycles([lost, *plans[1:]])
    assert "gone.wav" in broken.error and broken.forward is broken.cycle is None and not len(broken.ground_truth[0])
    assert all(other.forward is not None for other in others)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"split": "test"}, {"u6"}),
        ({"min_seconds": 1.95}, {"u4", "u5"}),
        ({"max_seconds": 1.75}, {"u0", "u1"}),
        ({"max_references": 2}, None),
    ],
)
def test_references_are_chosen_by_the_configuration(corpus: Path, changes: dict, names: set[str] | None):
    found = choose_references([corpus], config(**({"max_references": 9} | changes)))
    if names is None:
        assert len(found) == 2 and {u.speaker for u in found} == {"anna", "bert"}
    else:
        assert {u.id for u in found} == names


def test_narrow_recordings_are_used_only_where_there_are_no_others(corpus: Path, tmp_path: Path, caplog):
    utterances = [replace(u, audio=str(corpus.parent / u.audio)) for u in read_manifest(corpus)]
    narrow = tmp_path / "narrow" / "utterances.jsonl"
    write_manifest([replace(u, source_rate=16_000) for u in utterances], narrow)
    both = choose_references([narrow, corpus], config(max_references=9))
    assert {u.source_rate for u in both} == {24_000} and not caplog.records
    assert {u.source_rate for u in choose_references([narrow], config(max_references=9))} == {16_000}
    assert "bandwidth below 24000 Hz" in caplog.text


def test_segments_of_longer_files_lend_their_voices(mined, toy_bundle, corpus, tmp_path):
    """The same recordings, one after another in one file: the same takes."""
    utterances = [u for u in read_manifest(corpus) if u.split == "train"]
    samples, segments, start = [], [], 0.25
    samples.append(np.zeros(int(0.25 * 24_000), np.float32))
    for one in utterances:
        waveform = audio.read(corpus.parent / one.audio)
        samples.append(waveform.samples)
        segments.append(replace(one, audio="chapter.flac", start=start, seconds=waveform.seconds))
        start += waveform.seconds
    chapter = audio.Waveform(np.concatenate(samples), 24_000)
    (tmp_path / "corpus").mkdir()
    audio.write(chapter, tmp_path / "corpus" / "chapter.flac")
    manifest = tmp_path / "corpus" / "utterances.jsonl"
    write_manifest(segments, manifest)
    for _ in range(2):
        report = mine(str(toy_bundle), [manifest], mined / "texts.txt", tmp_path / "out", config(), executor=ONE)
    assert (report.takes, report.generated_now) == (4, 0)
    for ours, theirs in zip(
        *(read_takes(f / "takes-00000.jsonl") for f in (tmp_path / "out", mined / "out")), strict=True
    ):
        assert ours.plan.reference == theirs.plan.reference and len(ours.ground_truth[0]) == len(theirs.ground_truth[0])
        assert ours.plan.audio.is_relative_to(tmp_path / "out") and ours.error is None


def drawn(texts: Path, max_characters: int) -> set[str]:
    return {Texts(texts, max_characters).draw(seed) for seed in range(20)}


def test_texts_are_drawn_among_those_with_words_that_are_not_too_long(texts: Path, tmp_path: Path):
    assert drawn(texts, 100) == {"She sells sea shells.", "the mat sat"}
    assert drawn(texts, 15) == {"the mat sat"}
    packed = tmp_path / "texts.tsv.gz"
    packed.write_bytes(gzip.compress(texts.read_bytes()))
    assert drawn(packed, 100) == drawn(texts, 100)
    with pytest.raises(DataError, match="no sentence of at most 3 characters"):
        Texts(texts, 3).draw(0)
    with pytest.raises(DataError, match="no such file"):
        Texts(tmp_path / "none.txt", 9)


def test_only_the_texts_that_are_drawn_are_normalized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = tmp_path / "many.tsv"
    lines.write_text("".join(f"book\tThe cat sat {number} times.\n" for number in range(1000)))
    seen = []
    monkeypatch.setattr("marstts_lab.preference.mine.normalize", lambda text: seen.append(text) or text)
    assert Texts(lines, 100).draw(2_500_123) == "The cat sat 123 times." and seen == ["The cat sat 123 times."]


def test_a_folder_of_something_else_is_named(tmp_path: Path, toy_bundle: Path, corpus: Path, texts: Path):
    with pytest.raises(DataError, match="no recording of split 'train', styles whisper"):
        mine(str(toy_bundle), [corpus], texts, tmp_path, config(styles=["whisper"]), executor=ONE)
    (tmp_path / "takes-00000.jsonl").write_text("{}\n")
    with pytest.raises(Exception, match=r"takes-00000\.jsonl"):
        read_takes(tmp_path / "takes-00000.jsonl")


def test_two_processes_in_one_folder_are_refused(toy_bundle: Path, corpus: Path, texts: Path, tmp_path: Path):
    with lock_folder(tmp_path), pytest.raises(DataError, match="another process is working in this folder"):
        mine(str(toy_bundle), [corpus], texts, tmp_path, config(), executor=ONE)
