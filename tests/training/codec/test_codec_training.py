"""Training of the mini codec: losses fall, resumption is exact, dead codes are reset, the encoder can be frozen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from marstts.codec.mini import MiniCodecConfig
from marstts.errors import CheckpointError, DataError
from marstts.io.precision import Precision
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.training.codec.codebooks import perplexity, reset_dead_codes
from marstts_lab.training.codec.config import AdversarialConfig, CodecTrainingConfig, Stage
from marstts_lab.training.codec.export import load_codec
from marstts_lab.training.codec.task import CodecTask, open_task
from marstts_lab.training.loop import LoopConfig, run

pytestmark = pytest.mark.slow

TINY = MiniCodecConfig(
    fft_size=128, hop=32, num_mels=12, codebook_size=24, codebook_width=3, latent_width=10, encoder_width=14,
    encoder_blocks=(1, 1), decoder_width=18, decoder_blocks=(1, 1),
    pitch_width=8, pitch_dilations=(1, 2),
)  # fmt: skip
ADVERSARIAL = AdversarialConfig(fft_sizes=(256,), channels=4)


def tiny(steps: int, **changes: object) -> CodecTrainingConfig:
    loop = LoopConfig(steps=steps, log_every=2, validate_every=100)
    return CodecTrainingConfig(
        model=TINY,
        loop=loop,
        batch_size=3,
        segment_patches=12,
        learning_rate=5e-3,
        warmup_steps=2,
        precision=Precision.FP32,
        **changes,
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
                      source_rate=24000, split="train" if number < 4 else "validation", license="own")
        )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    pitched(folder)
    return folder / "utterances.jsonl"


def pitched(folder: Path) -> None:
    """Every recording's pitch rises from 100 Hz by 10 Hz every 10 ms, and is unvoiced at first."""
    lines = [json.dumps({"id": str(number), "f0": [0, 0, *range(120, 350, 10)]}) for number in range(6)]
    (folder / "f0.jsonl").write_text("\n".join(lines) + "\n")


def weights(task: CodecTask) -> list[torch.Tensor]:
    return [value.clone() for value in task.model.state_dict().values()]


def test_training_lowers_the_spectral_loss(manifest: Path) -> None:
    task = CodecTask(tiny(40), manifest)
    before = float(task.train_step(0)["spectral"])
    for step in range(1, 40):
        after = float(task.train_step(step)["spectral"])
    assert after < 0.8 * before


def test_resumed_training_equals_uninterrupted_training(manifest: Path, tmp_path: Path) -> None:
    whole = CodecTask(tiny(4), manifest)
    run(whole, tiny(4).loop, tmp_path / "whole")
    interrupted = tiny(4)
    first = CodecTask(interrupted, manifest)
    run(first, interrupted.loop.model_copy(update={"steps": 2}), tmp_path / "parts")
    second = CodecTask(interrupted, manifest)
    run(second, interrupted.loop, tmp_path / "parts")
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


def test_discriminators_are_trained_with_the_decoder(manifest: Path) -> None:
    task = CodecTask(tiny(3, adversarial=ADVERSARIAL), manifest)
    discriminators = task.modules["discriminators"]
    before = [parameter.clone() for parameter in discriminators.parameters()]
    scores = task.train_step(0)
    assert {"discriminator_loss", "adversarial", "feature_matching"} <= scores.keys()
    assert any(not torch.equal(old, new) for old, new in zip(before, discriminators.parameters(), strict=True))


def test_feature_matching_changes_the_decoders_gradient(manifest: Path) -> None:
    heads = []
    for weight in (0.0, 20.0):
        adversarial = AdversarialConfig(fft_sizes=(256,), channels=4, feature_matching_weight=weight)
        task = CodecTask(tiny(1, adversarial=adversarial), manifest)
        task.train_step(0)
        heads.append(next(iter(task.model.decoder.head.parameters())).grad.clone())
    assert not torch.allclose(heads[0], heads[1], rtol=0.01)


def test_dead_codes_are_reset(manifest: Path) -> None:
    task = CodecTask(tiny(1), manifest)
    _, book = task.model.quantizer.codebooks[0]
    book.usage[5] = 0.0
    old = book.entries[5].clone()
    output = task.model(task.segments.train(0).samples)
    reset_dead_codes(task.model.quantizer, output.codes, output.latents.detach(), step=0)
    assert not torch.equal(book.entries[5], old) and float(book.usage[5]) > 0


def test_batches_depend_on_the_step_alone(manifest: Path) -> None:
    one, other = CodecTask(tiny(1), manifest).segments, CodecTask(tiny(1), manifest).segments
    ours, theirs = one.train(7), other.train(7)
    torch.testing.assert_close(ours[:6], theirs[:6], rtol=0, atol=0)
    assert ours[6:] == theirs[6:], "the same recordings"
    assert not torch.equal(one.train(7).samples, one.train(8).samples)


def test_perplexity_counts_codes_in_even_use() -> None:
    assert float(perplexity(torch.tensor([0, 1, 2, 3] * 5), 24)) == pytest.approx(4, rel=1e-4)


def test_recordings_of_another_rate_are_resampled(manifest: Path, tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 500 * np.arange(8000) / 16000)
    soundfile.write(tmp_path / "x.wav", 0.5 * tone, 16000)
    slower = [
        Utterance(id=split, audio="x.wav", text="la", speaker="a", style="regular", seconds=0.5, source_rate=16000,
                  split=split, license="own")
        for split in ("train", "validation")
    ]  # fmt: skip
    write_manifest(slower, tmp_path / "utterances.jsonl")
    (tmp_path / "f0.jsonl").write_text('{"id": "train", "f0": []}\n{"id": "validation", "f0": []}\n')
    segments = CodecTask(tiny(1), tmp_path / "utterances.jsonl").segments
    samples = segments.segment(segments.known[0], 0.0, np.random.default_rng(0)).samples
    expected = 0.5 * np.sin(2 * np.pi * 500 * np.arange(len(samples)) / 24000)
    np.testing.assert_allclose(samples[200:-200], expected[200:-200], atol=0.01)


def test_a_run_with_checkpoints_keeps_the_configuration_of_its_model(manifest: Path, tmp_path: Path) -> None:
    run(open_task(tiny(1), manifest, tmp_path), tiny(1).loop, tmp_path)
    narrower = tiny(2).model_copy(update={"model": TINY.model_copy(update={"decoder_width": 10})})
    with pytest.raises(CheckpointError, match="decoder_width is 10 instead of 18"):
        open_task(narrower, manifest, tmp_path)
    load_codec(tmp_path)


def test_corrupt_recordings_are_skipped_and_listed_up_to_a_ratio(manifest: Path, tmp_path: Path) -> None:
    for path in manifest.parent.glob("*.wav"):
        shutil.copy(path, tmp_path)
    shutil.copy(manifest, tmp_path)
    pitched(tmp_path)
    soundfile.write(tmp_path / "1.wav", np.full(6000, np.nan), 24000, subtype="FLOAT")
    (tmp_path / "2.wav").unlink()
    (tmp_path / "3.wav").write_bytes((tmp_path / "3.wav").read_bytes()[:300])
    (tmp_path / "5.wav").write_text("no audio")
    patient = tiny(2, max_corrupt_ratio=0.7)
    for _ in range(2):  # started again, a run names nothing twice
        task = open_task(patient, tmp_path / "utterances.jsonl", tmp_path / "run")
        assert all(task.segments.train(step).samples.isfinite().all() for step in range(10))
        assert sum(len(batch.samples) for _, batch in task.segments.validation()) == 1
    rows = [json.loads(line) for line in (tmp_path / "run" / "corrupt.jsonl").read_text().splitlines()]
    reasons = {row["id"]: row["reason"] for row in rows}
    assert len(rows) == 4 and reasons.keys() == {"1", "2", "3", "5"}
    assert "not numbers" in reasons["1"] and "no such audio file" in reasons["2"] and "decoded" in reasons["5"]
    whole = CodecTask(tiny(2), manifest).segments.valid_segment(0, np.random.default_rng(0))
    next_valid = task.segments.valid_segment(1, np.random.default_rng(0))
    np.testing.assert_array_equal(next_valid.samples, whole.samples)
    with pytest.raises(DataError, match=r"of 6 recordings cannot be used, more than the ratio 0.01.*corrupt.jsonl"):
        open_task(tiny(2), tmp_path / "utterances.jsonl", tmp_path / "run").segments.validation()
    (tmp_path / "0.wav").unlink()
    hopeless = CodecTask(tiny(2, max_corrupt_ratio=1.0), tmp_path / "utterances.jsonl").segments
    with pytest.raises(DataError, match="none of the recordings for training can be used"):
        hopeless.train(0)


def test_a_finished_run_can_be_loaded_for_export(manifest: Path, tmp_path: Path) -> None:
    config = tiny(2)
    task = CodecTask(config, manifest)
    run(task, config.loop, tmp_path)
    (tmp_path / "config.json").write_text(config.model_dump_json())
    for ours, theirs in zip(load_codec(tmp_path).state_dict().values(), task.model.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_the_decoder_learns_f0(manifest: Path) -> None:
    task = CodecTask(tiny(30, stage=Stage.DECODER), manifest)
    before = task.validate(0)
    for step in range(30):
        task.train_step(step)
    after = task.validate(30)
    assert after["f0_loss"] < 0.5 * before["f0_loss"]
    assert after["f0_error_semitones"] < before["f0_error_semitones"]
    assert after["spectral"] != after["spectral_predicted_f0"]


def test_f0_labels_follow_the_recording(manifest: Path) -> None:
    segments = CodecTask(tiny(1), manifest).segments
    segments.samples = 9 * 128
    rng = np.random.default_rng(0)
    segment = segments.segment(segments.known[0], 0.5, rng)
    times = (int(0.5 * (6000 - 9 * 128)) + 32 * (np.arange(36) + 0.5)) / 24000
    np.testing.assert_allclose(segment.f0, 100 + 1000 * times, atol=0.1)
    assert segment.voiced.all() and segments.segment(segments.known[0], 0.0, rng).voiced[:3].sum() == 0


def test_a_corpus_without_f0_is_refused_with_the_command_to_run(manifest: Path, tmp_path: Path) -> None:
    shutil.copy(manifest, tmp_path)
    with pytest.raises(DataError, match=r"f0.jsonl.*marstts prepare f0"):
        CodecTask(tiny(1), tmp_path / "utterances.jsonl")


def test_recordings_without_f0_are_left_out(manifest: Path, tmp_path: Path) -> None:
    shutil.copy(manifest, tmp_path)
    lines = (manifest.parent / "f0.jsonl").read_text().splitlines()
    (tmp_path / "f0.jsonl").write_text("\n".join(lines[2:]))
    known = CodecTask(tiny(1), tmp_path / "utterances.jsonl").segments.known
    assert {source.utterance.id for source in known} == {"2", "3"}
