"""What the codec is taught of pitch: read, bridged over gaps, and weighed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marstts.codec.mini import MIDDLE_PITCH
from marstts.errors import DataError
from marstts.training.melody import PitchConfig, pitch_at, pitch_loss, read_pitches, semitones_off


def test_gaps_are_bridged_by_straight_lines_in_octaves_and_ends_held() -> None:
    known = np.array([0, 100, 0, 400, 400, 0, 0], np.float32)
    pitch, voiced = pitch_at(known, 0.01 * np.arange(9.0))
    np.testing.assert_allclose(pitch, [100, 100, 200, 400, 400, 400, 400, 400, 400], rtol=1e-6)
    assert voiced.tolist() == [0, 1, 0, 1, 1, 0, 0, 0, 0]


def test_a_whisper_is_nowhere_voiced() -> None:
    pitch, voiced = pitch_at(np.array([0, 0, 90, 0], np.float32), np.array([0.0, 0.02]))
    assert pitch.tolist() == [MIDDLE_PITCH] * 2 and voiced.tolist() == [0, 0]


def test_unvoiced_frames_count_as_little_as_they_are_told_to() -> None:
    pitch = torch.full((1, 4), MIDDLE_PITCH)
    octaves, voiced = torch.tensor([[0.0, 0.0, 0.0, 1.0]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert float(pitch_loss(octaves, pitch, voiced, PitchConfig(unvoiced_weight=0.0))) == 0.0
    assert float(pitch_loss(octaves, pitch, torch.zeros(1, 4), PitchConfig(unvoiced_weight=0.0))) == 0.0
    little, more = (
        float(pitch_loss(octaves, pitch, voiced, PitchConfig(unvoiced_weight=weight))) for weight in (0.1, 0.2)
    )
    assert 0 < little < more


def test_distances_are_told_in_semitones_of_what_is_voiced() -> None:
    pitch, voiced = torch.tensor([[140.0, 280.0, 70.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    assert float(semitones_off(torch.tensor([[0.25, 1.25, 9.0]]), pitch, voiced)) == pytest.approx(3.0)
    assert float(semitones_off(torch.zeros(1, 3), pitch, torch.zeros(1, 3))) == 0.0


@pytest.mark.parametrize(
    "line", ["[]", '{"id": "1"}', '{"id": "1", "pitch": ["high"]}', '{"id": "1", "pitch": [Infinity]}', "{"]
)
def test_a_line_that_is_no_pitch_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "pitch.jsonl").write_text('{"id": "0", "pitch": [100.0]}\n' + line)
    with pytest.raises(DataError, match="line 2"):
        read_pitches(tmp_path / "pitch.jsonl")
