"""The recognizer loss: zero for equal sounds, a gradient towards them otherwise, and clear refusals of other files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marstts.errors import CheckpointError
from marstts_lab.training.codec.recognizer_loss import RecognizerConfig, RecognizerLoss, open_recognizer, read_encoder
from small_whisper import LAYERS, WIDTH, as_file, small_whisper


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.bin").write_bytes(as_file(small_whisper()))
    return tmp_path


def test_the_loss_is_zero_for_equal_sounds_and_leads_other_sounds_to_the_target(folder: Path) -> None:
    torch.manual_seed(0)
    loss = RecognizerLoss(RecognizerConfig(folder=str(folder), row_ratio=1.0), sample_rate=24000)
    target = 0.1 * torch.randn(2, 9600)
    assert float(loss(target, target)) == pytest.approx(0.0, abs=1e-6)
    output = (0.1 * torch.randn(2, 9600)).requires_grad_()
    optimizer = torch.optim.Adam([output], 3e-3)
    values = []
    for _ in range(15):
        value = loss(output, target)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    assert values[-1] < 0.9 * values[0]


def test_a_part_of_the_rows_is_compared(folder: Path) -> None:
    loss = RecognizerLoss(RecognizerConfig(folder=str(folder), row_ratio=0.5), sample_rate=24000)
    output = (0.1 * torch.randn(4, 9600)).requires_grad_()
    loss(output, 0.1 * torch.randn(4, 9600)).backward()
    assert [bool(row.any()) for row in output.grad] == [True, True, False, False]


def test_the_encoder_returns_every_layer_at_fifty_positions_a_second(folder: Path) -> None:
    encoder = open_recognizer(folder, 16000)
    outputs = encoder(torch.randn(1, 16000))
    assert [tuple(output.shape) for output in outputs] == [(1, 50, WIDTH)] * (LAYERS + 1)


@pytest.mark.parametrize(
    "data",
    [b"", as_file(small_whisper())[:5000], b"PK\x03\x04" + bytes(100), as_file({"conv1/bias": np.ones(4, np.int8)}, 1)],
)
def test_other_files_are_refused_in_one_sentence(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(CheckpointError, match="expected"):
        read_encoder(tmp_path / "model.bin")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.bin"):
        read_encoder(tmp_path / "model.bin")
