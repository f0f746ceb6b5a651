"""Training the mini codec: it learns, resumes exactly, revives dead codes, and can freeze what makes tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from marstts.codec.mini import MiniCodecConfig
from marstts.data.manifest import Utterance, write_manifest
from marstts.errors import ConfigError, DataError
from marstts.training.codec import (
    AdversarialConfig,
    CodecTask,
    CodecTrainingConfig,
    Stage,
    load_codec,
    open_task,
    perplexity,
)
from marstts.training.loop import LoopConfig, run
from marstts.training.phonetics import PHONES, PhonesConfig, read_timelines

TINY = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1),
    pitch_width=8, pitch_dilations=(1, 2),
)  # fmt: skip
ADVERSARIAL = AdversarialConfig(periods=(2, 3), fft_sizes=(256,), channels=4)


class Silent:
    """A writer that writes nothing."""

    def add_audio(self, *_: Any) -> None: ...


def tiny(steps: int, **changes: object) -> CodecTrainingConfig:
    loop = LoopConfig(steps=steps, log_every=2, validate_every=100)
    return CodecTrainingConfig(
        model=TINY, loop=loop, batch=3, segment_patches=12, learning_rate=5e-3, warmup_steps=2, bf16=False, **changes
    )


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    utterances = []
    for number in range(6):
        tone = 0.2 * np.sin(2 * np.pi * rng.uniform(100, 2000) * np.arange(6000) / 24000)
        soundfile.write(folder / f"{number}.wav", tone, 24000)
        utterances.append(
            Utterance(id=str(number), audio=f"{number}.wav", text="la", speaker="a", style="regular", seconds=0.25,
                      source_rate=24000, split="train" if number < 4 else "validation", licence="own")
        )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    pitched(folder)
    return folder / "utterances.jsonl"


def pitched(folder: Path) -> None:
    """Every recording's pitch rises from 100 Hz by 10 Hz every 10 ms, and is unvoiced at first."""
    lines = [json.dumps({"id": str(number), "pitch": [0, 0, *range(120, 350, 10)]}) for number in range(6)]
    (folder / "pitch.jsonl").write_text("\n".join(lines) + "\n")


def weights(task: CodecTask) -> list[torch.Tensor]:
    return [value.clone() for value in task.model.state_dict().values()]


def test_training_brings_the_resynthesis_nearer(manifest: Path) -> None:
    task = CodecTask(tiny(40), manifest)
    before = float(task.train_step(0)["spectral"])
    for step in range(1, 40):
        after = float(task.train_step(step)["spectral"])
    assert after < 0.8 * before


def test_resumed_training_equals_uninterrupted_training(manifest: Path, tmp_path: Path) -> None:
    whole = CodecTask(tiny(6), manifest)
    run(whole, tiny(6).loop, tmp_path / "whole", say=lambda _: None)
    interrupted = tiny(6)
    first = CodecTask(interrupted, manifest)
    run(first, interrupted.loop.model_copy(update={"steps": 3}), tmp_path / "parts", say=lambda _: None)
    second = CodecTask(interrupted, manifest)
    run(second, interrupted.loop, tmp_path / "parts", say=lambda _: None)
    for ours, theirs in zip(weights(second), weights(whole), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_the_decoder_stage_keeps_every_code_valid(manifest: Path) -> None:
    task = CodecTask(tiny(3, stage=Stage.DECODER, adversarial=ADVERSARIAL), manifest)
    frozen = {name: value.clone() for name, value in task.model.state_dict().items() if not name.startswith("decoder")}
    moving = task.model.decoder.head.weight.clone()
    for step in range(3):
        task.train_step(step)
    for name, value in task.model.state_dict().items():
        if name in frozen:
            torch.testing.assert_close(value, frozen[name], rtol=0, atol=0)
    assert not torch.equal(task.model.decoder.head.weight, moving)


def test_discriminators_learn_beside_the_decoder(manifest: Path) -> None:
    task = CodecTask(tiny(3, adversarial=ADVERSARIAL), manifest)
    assert task.judge is not None
    before = [parameter.clone() for parameter in task.judge.parameters()]
    scores = task.train_step(0)
    assert {"discriminators", "fooling", "features"} <= scores.keys()
    assert any(not torch.equal(old, new) for old, new in zip(before, task.judge.parameters(), strict=True))


def test_matching_the_discriminators_features_pulls_at_the_decoder(manifest: Path) -> None:
    heads = []
    for weight in (0.0, 20.0):
        adversarial = AdversarialConfig(periods=(2, 3), fft_sizes=(256,), channels=4, feature_weight=weight)
        task = CodecTask(tiny(1, adversarial=adversarial), manifest)
        task.train_step(0)
        heads.append(next(iter(task.model.decoder.head.parameters())).grad.clone())
    assert not torch.allclose(heads[0], heads[1], rtol=0.01)


def test_unused_codes_are_given_a_new_place(manifest: Path) -> None:
    task = CodecTask(tiny(1), manifest)
    _, book = task.model.quantizer.books[0]
    book.usage[5] = 0.0
    old = book.entries[5].clone()
    samples = task.segments.train(0).samples
    codes = task.model(samples).codes
    task.revive(codes, samples, step=0)
    assert not torch.equal(book.entries[5], old) and float(book.usage[5]) > 0


def test_batches_depend_on_the_step_alone(manifest: Path) -> None:
    one, other = CodecTask(tiny(1), manifest).segments, CodecTask(tiny(1), manifest).segments
    torch.testing.assert_close(tuple(one.train(7)), tuple(other.train(7)), rtol=0, atol=0)
    assert not torch.equal(one.train(7).samples, one.train(8).samples)


def test_perplexity_counts_codes_in_even_use() -> None:
    assert float(perplexity(torch.tensor([0, 1, 2, 3] * 5), 24)) == pytest.approx(4, rel=1e-4)


def test_recordings_of_another_rate_are_refused_by_name(manifest: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.zeros(9000), 16000)
    wrong = [
        Utterance(id=split, audio="x.wav", text="la", speaker="a", style="regular", seconds=0.5, source_rate=16000,
                  split=split, licence="own")
        for split in ("train", "validation")
    ]  # fmt: skip
    write_manifest(wrong, tmp_path / "utterances.jsonl")
    (tmp_path / "pitch.jsonl").write_text('{"id": "train", "pitch": []}\n{"id": "validation", "pitch": []}\n')
    with pytest.raises(DataError, match="24000 Hz, not 16000"):
        CodecTask(tiny(1), tmp_path / "utterances.jsonl").train_step(0)


def test_damaged_recordings_are_left_out_and_named_up_to_a_share(manifest: Path, tmp_path: Path) -> None:
    for path in manifest.parent.glob("*.wav"):
        shutil.copy(path, tmp_path)
    shutil.copy(manifest, tmp_path)
    pitched(tmp_path)
    soundfile.write(tmp_path / "1.wav", np.full(6000, np.nan), 24000, subtype="FLOAT")
    (tmp_path / "2.wav").unlink()
    (tmp_path / "3.wav").write_bytes((tmp_path / "3.wav").read_bytes()[:300])
    (tmp_path / "5.wav").write_text("no audio")
    patient = tiny(2, max_damaged_share=0.7)
    for _ in range(2):  # started again, a run names nothing twice
        task = open_task(patient, tmp_path / "utterances.jsonl", tmp_path / "run")
        assert all(task.segments.train(step).samples.isfinite().all() for step in range(10))
        assert sum(len(batch.samples) for batch in task.segments.validation()) == 1
    rows = [json.loads(line) for line in (tmp_path / "run" / "damaged.jsonl").read_text().splitlines()]
    reasons = {row["id"]: row["reason"] for row in rows}
    assert len(rows) == 4 and reasons.keys() == {"1", "2", "3", "5"}
    assert "not numbers" in reasons["1"] and "no such audio file" in reasons["2"] and "decoded" in reasons["5"]
    whole, *_ = CodecTask(tiny(2), manifest).segments.cut_sound(0, 0.5)
    np.testing.assert_array_equal(task.segments.cut_sound(1, 0.5)[0], whole)  # the next sound one
    with pytest.raises(DataError, match=r"of 6 recordings cannot be used, more than the share 0.01.*damaged.jsonl"):
        open_task(tiny(2), tmp_path / "utterances.jsonl", tmp_path / "run").segments.validation()
    (tmp_path / "0.wav").unlink()
    hopeless = CodecTask(tiny(2, max_damaged_share=1.0), tmp_path / "utterances.jsonl").segments
    with pytest.raises(DataError, match="none of the recordings for training can be used"):
        hopeless.train(0)


@pytest.fixture(scope="module")
def phones(manifest: Path) -> PhonesConfig:
    """All recordings but the first are an AA of 0.1 s and then an S; the file lies beside the manifest."""
    timeline = [["AA", 0.0, 0.1], ["S", 0.1, 0.15]]
    lines = [json.dumps({"id": str(number), "phones": timeline}) for number in range(1, 6)]
    (manifest.parent / "phones.jsonl").write_text("\n".join(lines) + "\n")
    return PhonesConfig(width=16)


def test_the_coarse_levels_learn_to_tell_the_phones(manifest: Path, phones: PhonesConfig) -> None:
    task = CodecTask(tiny(30, phones=phones), manifest)
    before = float(task.train_step(0)["phones"])
    codebook = task.model.quantizer.books[0][1].entries.clone()
    for step in range(1, 30):
        scores = task.train_step(step)
    assert float(scores["phones"]) < 0.8 * before
    assert {"phones_right", "phones_right0", "phones_right1"} <= scores.keys()
    assert not torch.equal(task.model.quantizer.books[0][1].entries, codebook)
    assert "phones_right1" in task.validate(30, Silent())


def test_phones_are_taught_where_they_sound(manifest: Path, phones: PhonesConfig) -> None:
    segments = CodecTask(tiny(1, phones=phones), manifest).segments
    assert {u.id for u in segments.known} == {"1", "2", "3"}  # 0 has no phones
    segments.samples = 9 * 128
    _, labels, *_ = segments.cut(segments.known[0], 0.5)
    start = int(0.5 * (6000 - 9 * 128))
    slow = [PHONES.index("AA" if start + latent * 64 + 32 < 2400 else "S") for latent in range(18)]
    assert labels.tolist() == slow


def test_phones_and_a_frozen_codebook_are_refused(manifest: Path, phones: PhonesConfig) -> None:
    with pytest.raises(ConfigError, match="phones teach the codes"):
        CodecTask(tiny(1, stage=Stage.DECODER, phones=phones), manifest)


@pytest.mark.parametrize("line", ["[]", '{"id": "1"}', '{"id": "1", "phones": [["XX", 0, 1]]}', "{"])
def test_a_line_that_is_no_timeline_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "phones.jsonl").write_text('{"id": "0", "phones": []}\n' + line)
    with pytest.raises(DataError, match="line 2"):
        read_timelines(tmp_path / "phones.jsonl")


def test_a_finished_run_can_be_loaded_for_export(manifest: Path, tmp_path: Path) -> None:
    config = tiny(2)
    task = CodecTask(config, manifest)
    run(task, config.loop, tmp_path, say=lambda _: None)
    (tmp_path / "config.json").write_text(config.model_dump_json())
    for ours, theirs in zip(load_codec(tmp_path).state_dict().values(), task.model.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_the_decoder_learns_the_pitch(manifest: Path) -> None:
    task = CodecTask(tiny(60, stage=Stage.DECODER), manifest)
    before = task.validate(0, Silent())
    for step in range(60):
        task.train_step(step)
    after = task.validate(60, Silent())
    assert after["pitch"] < 0.5 * before["pitch"] and after["semitones"] < before["semitones"]
    assert after["spectral"] != after["spectral_own_pitch"]


def test_pitch_is_taught_where_it_sounds(manifest: Path) -> None:
    segments = CodecTask(tiny(1), manifest).segments
    segments.samples = 9 * 128
    _, _, pitch, voiced = segments.cut(segments.known[0], 0.5)
    times = (int(0.5 * (6000 - 9 * 128)) + 32 * (np.arange(36) + 0.5)) / 24000
    np.testing.assert_allclose(pitch, 100 + 1000 * times, atol=0.1)
    assert voiced.all() and segments.cut(segments.known[0], 0.0)[3][:3].sum() == 0


def test_a_corpus_without_pitch_is_refused_with_what_to_do(manifest: Path, tmp_path: Path) -> None:
    shutil.copy(manifest, tmp_path)
    with pytest.raises(DataError, match=r"pitch.jsonl.*marstts prepare pitch"):
        CodecTask(tiny(1), tmp_path / "utterances.jsonl")


def test_recordings_without_pitch_in_the_file_are_left_out(manifest: Path, tmp_path: Path) -> None:
    shutil.copy(manifest, tmp_path)
    lines = (manifest.parent / "pitch.jsonl").read_text().splitlines()
    (tmp_path / "pitch.jsonl").write_text("\n".join(lines[2:]))
    assert {u.id for u in CodecTask(tiny(1), tmp_path / "utterances.jsonl").segments.known} == {"2", "3"}
