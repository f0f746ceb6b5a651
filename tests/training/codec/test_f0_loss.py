"""The F0 loss of the codec: reading, interpolation over gaps, weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marstts.codec.mini import MIDDLE_PITCH
from marstts.errors import DataError
from marstts_lab.training.codec.losses import F0Config, f0_at, f0_error_semitones, f0_loss, read_f0


def test_gaps_are_interpolated_in_octaves_and_ends_are_held() -> None:
    known = np.array([0, 100, 0, 400, 400, 0, 0], np.float32)
    pitch, voiced = f0_at(known, 0.01 * np.arange(9.0))
    np.testing.assert_allclose(pitch, [100, 100, 200, 400, 400, 400, 400, 400, 400], rtol=1e-6)
    assert voiced.tolist() == [0, 1, 0, 1, 1, 0, 0, 0, 0]


def test_a_whisper_is_nowhere_voiced() -> None:
    pitch, voiced = f0_at(np.array([0, 0, 90, 0], np.float32), np.array([0.0, 0.02]))
    assert pitch.tolist() == [MIDDLE_PITCH] * 2 and voiced.tolist() == [0, 0]


def test_unvoiced_frames_have_the_configured_weight() -> None:
    pitch = torch.full((1, 4), MIDDLE_PITCH)
    octaves, voiced = torch.tensor([[0.0, 0.0, 0.0, 1.0]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert float(f0_loss(octaves, pitch, voiced, F0Config(unvoiced_weight=0.0))) == 0.0
    assert float(f0_loss(octaves, pitch, torch.zeros(1, 4), F0Config(unvoiced_weight=0.0))) == 0.0
    little, more = (float(f0_loss(octaves, pitch, voiced, F0Config(unvoiced_weight=weight))) for weight in (0.1, 0.2))
    assert 0 < little < more


def test_the_f0_error_is_in_semitones_over_voiced_frames() -> None:
    pitch, voiced = torch.tensor([[140.0, 280.0, 70.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    assert float(f0_error_semitones(torch.tensor([[0.25, 1.25, 9.0]]), pitch, voiced)) == pytest.approx(3.0)
    assert float(f0_error_semitones(torch.zeros(1, 3), pitch, torch.zeros(1, 3))) == 0.0


@pytest.mark.parametrize(
    "line", ["[]", '{"id": "1"}', '{"id": "1", "f0": ["high"]}', '{"id": "1", "f0": [Infinity]}', "{"]
)
def test_a_malformed_line_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "f0.jsonl").write_text('{"id": "0", "f0": [100.0]}\n' + line)
    with pytest.raises(DataError, match=r"f0\.jsonl:2:"):
        read_f0(tmp_path / "f0.jsonl")
