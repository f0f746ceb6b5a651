"""Weights of metrics (downloads: `tests/codec/test_snac.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from marstts.errors import CheckpointError
from marstts_lab.metrics.hub import fetch_model

FILES = (("model.safetensors", "model.bin"), ("config.json",))


def test_a_folder_is_used_as_it_is_and_refused_if_incomplete(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="incomplete"):
        fetch_model(str(tmp_path), FILES)
    (tmp_path / "model.bin").write_text("x")
    assert fetch_model(str(tmp_path), FILES) == tmp_path
