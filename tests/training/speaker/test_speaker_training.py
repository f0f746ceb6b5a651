"""Training of the mini speaker encoders: losses, resumption, and that both learn."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from test_speaker_augmentation import buzz
from typer.testing import CliRunner

from marstts.audio import write
from marstts.cli.main import app
from marstts.errors import CheckpointError, ConfigError, DataError
from marstts.io.part_provenance import read_part
from marstts.speaker.mini import MiniEncoderConfig
from marstts_lab.data.manifest import Utterance, read_manifest, write_manifest
from marstts_lab.training.loop import LoopConfig, run
from marstts_lab.training.loss import values
from marstts_lab.training.speaker.augmentation import AugmentationConfig
from marstts_lab.training.speaker.config import EncoderKind, SpeakerTrainingConfig
from marstts_lab.training.speaker.export import load_encoder
from marstts_lab.training.speaker.losses import TARGETS, ReverseGradient, angular_margin
from marstts_lab.training.speaker.task import build_task, open_task

pytestmark = pytest.mark.slow

RATE = 24_000
MODEL = MiniEncoderConfig(size=9, width=12, blocks=2, num_mels=20)
NO_AUGMENTATION = AugmentationConfig(
    eq_std_db=0.0, noise_probability=0.0, reverb_probability=0.0, band_limit_probability=0.0
)
EASY = {"loop": LoopConfig(steps=36), "vtlp_factors": (1.0,), "augmentation": NO_AUGMENTATION, "learning_rate": 1e-2}
PITCHES = {"anna": 230.0, "bert": 110.0, "carl": 150.0, "dora": 200.0, "emil": 125.0}
STYLES = {"regular": 1.0, "high": 1.5}


def config(kind: EncoderKind, **changes: object) -> SpeakerTrainingConfig:
    values: dict[str, object] = {
        "kind": kind, "model": MODEL, "loop": LoopConfig(steps=6, log_every=2, validate_every=6),
        "vtlp_factors": (1.0, 1.2),
        "batch_size": 8, "crop_seconds": (0.3, 0.6), "warmup_steps": 2, "precision": "fp32",
    }  # fmt: skip
    return SpeakerTrainingConfig.model_validate(values | changes)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five voices of different pitch, two of them held out; in two styles, three times each."""
    folder = tmp_path_factory.mktemp("voices")
    utterances = []
    for number, (name, hertz) in enumerate(PITCHES.items()):
        for style, factor in STYLES.items():
            for take in range(3):
                waveform = buzz(hertz * factor * (1 + 0.01 * take), seed=number * 10 + take, resonance=10 * hertz)
                write(waveform, folder / f"{name}-{style}-{take}.wav")
                utterances.append(
                    Utterance(
                        id=f"{name}-{style}-{take}", audio=f"{name}-{style}-{take}.wav", text="buzz", speaker=name,
                        style=style, seconds=waveform.seconds, source_rate=RATE,
                        split="test" if name in ("dora", "emil") else "train", license="CC0",
                    )
                )  # fmt: skip
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


@pytest.mark.parametrize("kind", list(EncoderKind))
def test_resumed_training_equals_uninterrupted_training(kind: EncoderKind, manifest: Path, tmp_path: Path) -> None:
    whole, first = build_task(config(kind), [manifest]), build_task(config(kind), [manifest])
    run(whole, config(kind).loop, tmp_path / "whole")
    run(first, LoopConfig(steps=3, log_every=2, validate_every=6), tmp_path / "parts")
    second = build_task(config(kind, loop=LoopConfig(steps=6, seed=0)), [manifest])
    run(second, config(kind).loop, tmp_path / "parts")
    for name, module in whole.modules.items():
        for (key, value), other in zip(
            module.state_dict().items(), second.modules[name].state_dict().values(), strict=True
        ):
            torch.testing.assert_close(other, value, rtol=0, atol=0, msg=key)


def test_identity_training_learns_the_speakers(manifest: Path) -> None:
    task = build_task(config(EncoderKind.IDENTITY, **EASY), [manifest])
    scores = [task.train_step(step) for step in range(36)]
    assert np.mean([float(score["accuracy"]) for score in scores[-10:]]) > 0.8
    validation = task.validate(36)
    assert 0.0 <= validation["equal_error_rate"] <= 1.0
    assert "equal_error_rate_neutral" in validation


def test_style_training_learns_the_styles(manifest: Path) -> None:
    task = build_task(config(EncoderKind.STYLE, **EASY), [manifest])
    scores = [task.train_step(step) for step in range(36)]
    assert np.mean([float(score["accuracy"]) for score in scores[-10:]]) > 0.8
    validation = task.validate(36)
    assert set(validation) == {"accuracy", "speaker_equal_error_rate"} | {f"correlation_{n}" for n in TARGETS}


def test_each_vtlp_factor_of_a_speaker_is_a_class(manifest: Path) -> None:
    task = build_task(config(EncoderKind.IDENTITY), [manifest])
    assert task.head(torch.zeros(4, MODEL.size)).shape == (4, 3 * 2)
    embeddings = torch.nn.functional.normalize(task.head.directions.detach()[[4]], dim=1)  # speaker 2 at warp 0
    chosen = np.array([np.flatnonzero(task.labels == 2)[0]])
    assert float(values(task.losses(embeddings, chosen, torch.tensor([0]), 0))["accuracy"]) == 1.0
    assert float(values(task.losses(embeddings, chosen, torch.tensor([1]), 0))["accuracy"]) == 0.0


def test_several_corpora_are_trained_on_together_and_validated_apart(manifest: Path, tmp_path: Path) -> None:
    others = [
        dataclasses.replace(u, audio=str(manifest.parent / u.audio), speaker=f"other-{u.speaker}")
        for u in read_manifest(manifest)
    ]
    write_manifest(others, tmp_path / "utterances.jsonl")
    task = build_task(config(EncoderKind.IDENTITY), [manifest, tmp_path / "utterances.jsonl"])
    assert {clip.utterance.speaker for clip in task.known} == {
        f"{corpus}{name}" for corpus in ("", "other-") for name in ("anna", "bert", "carl")
    }
    scores = task.validate(0)
    assert scores["equal_error_rate_corpus1"] == scores["equal_error_rate"]  # the same recordings


def test_an_encoder_starts_from_the_weights_of_another(manifest: Path, tmp_path: Path) -> None:
    calibrated = MODEL.model_copy(update={"one_speaker_similarity": 0.48})  # as in the packaged encoder; no size
    settings = config(EncoderKind.IDENTITY, model=calibrated)
    first = open_task(settings, [manifest], tmp_path / "first")
    run(first, settings.loop, tmp_path / "first")
    renamed = config(EncoderKind.IDENTITY, model=MODEL.model_copy(update={"name": "renamed"}))
    second = open_task(renamed, [manifest], tmp_path / "second", tmp_path / "first")
    for key, value in first.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[key], value, rtol=0, atol=0, msg=key)
    wider = config(EncoderKind.IDENTITY, model=MODEL.model_copy(update={"width": 13}))
    with pytest.raises(ConfigError, match="other sizes"):
        open_task(wider, [manifest], tmp_path / "third", tmp_path / "first")


def test_corpora_without_held_out_speakers_are_refused(manifest: Path) -> None:
    lines = [line for line in manifest.read_text().splitlines() if "emil" not in line]
    lonely = manifest.with_name("lonely.jsonl")
    lonely.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="two others"):
        build_task(config(EncoderKind.IDENTITY), [lonely])


def test_at_most_max_hours_are_read(manifest: Path) -> None:
    some = build_task(config(EncoderKind.IDENTITY, max_hours=7 / 3600), [manifest])
    assert 0.0 < sum(clip.utterance.seconds for clip in some.known) <= 7.0


def test_corrupt_recordings_are_skipped_and_listed_up_to_a_ratio(manifest: Path, tmp_path: Path) -> None:
    for path in manifest.parent.glob("*.wav"):
        shutil.copy(path, tmp_path)
    shutil.copy(manifest, tmp_path)
    (tmp_path / "anna-regular-1.wav").unlink()
    (tmp_path / "dora-high-0.wav").write_text("no audio")
    found = open_task(
        config(EncoderKind.STYLE, max_corrupt_ratio=0.1), [tmp_path / "utterances.jsonl"], tmp_path / "run"
    )
    assert len(found.known) == 17 and sum(map(len, found.held_out)) == 11
    rows = [json.loads(line) for line in (tmp_path / "run" / "corrupt.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows if row["reason"]] == ["anna-regular-1", "dora-high-0"]
    with pytest.raises(DataError, match=r"1 of 30 recordings cannot be used, more than the ratio 0\.01"):
        build_task(config(EncoderKind.STYLE), [tmp_path / "utterances.jsonl"])


def test_the_angular_margin_is_added_to_the_true_class() -> None:
    angles = torch.tensor([[0.3, 1.1, 2.0], [0.9, 3.1, 0.4]])
    moved = angular_margin(torch.cos(angles), torch.tensor([0, 1]), 0.2)
    expected = torch.cos(torch.tensor([[0.5, 1.1, 2.0], [0.9, math.pi, 0.4]]))
    torch.testing.assert_close(moved, expected, atol=1e-4, rtol=1e-4)


def test_reversed_gradient_flows_back_negated() -> None:
    values = torch.tensor([1.0, -2.0], requires_grad=True)
    (ReverseGradient.apply(values, 0.3) * torch.tensor([5.0, 7.0])).sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad, torch.tensor([-1.5, -2.1]))


def test_attributes_are_relative_to_the_speakers_neutral_style(manifest: Path) -> None:
    task = build_task(config(EncoderKind.STYLE), [manifest])
    pitch = {name: [] for name in ("anna", "bert", "carl")}
    for clip, row in zip(task.known, task.attributes, strict=True):
        if clip.utterance.style == "high":
            pitch[clip.utterance.speaker].append(float(row[0]))
    means = [np.mean(values) for values in pitch.values()]
    np.testing.assert_allclose(means, means[0], rtol=0.05)  # all half as high again, from wherever they started
    assert means[0] > 1.0


def test_a_run_is_loaded_by_its_configuration(manifest: Path, tmp_path: Path) -> None:
    settings = config(EncoderKind.STYLE, loop=LoopConfig(steps=2))
    task = open_task(settings, [manifest], tmp_path / "run")
    run(task, settings.loop, tmp_path / "run")
    loaded = load_encoder(tmp_path / "run")
    for name, value in task.model.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=0, atol=0, msg=name)


def test_a_run_with_checkpoints_keeps_the_configuration_of_its_model(manifest: Path, tmp_path: Path) -> None:
    settings = config(EncoderKind.IDENTITY, loop=LoopConfig(steps=1))
    run(open_task(settings, [manifest], tmp_path), settings.loop, tmp_path)
    wider = config(EncoderKind.IDENTITY, model=MODEL.model_copy(update={"width": 13}))
    with pytest.raises(CheckpointError, match="width is 13 instead of 12"):
        open_task(wider, [manifest], tmp_path)
    load_encoder(tmp_path)
    open_task(config(EncoderKind.IDENTITY, model=MODEL.model_copy(update={"name": "renamed"})), [manifest], tmp_path)


def test_the_command_trains_an_encoder(manifest: Path, tmp_path: Path) -> None:
    toml = 'kind = "style"\nbatch_size = 8\ncrop_seconds = [0.3, 0.6]\nprecision = "fp32"\n'
    (tmp_path / "style.toml").write_text(
        f"{toml}[model]\nsize = 9\nwidth = 12\nblocks = 2\nnum_mels = 20\n[loop]\nsteps = 1\n"
    )
    where = ["--config", str(tmp_path / "style.toml"), "--data", str(manifest), "--output", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["train", "speaker", *where, "--threads", "1"])
    assert result.exit_code == 0, result.output
    assert "18 utterances to train on, 12 of held-out speakers" in result.stdout
    assert (tmp_path / "run" / "step-00000001" / "encoder.safetensors").exists()
    assert len(read_part(tmp_path / "run").data) == 1
