"""The published measures of sound, and the published codec's arithmetic, from ours."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.snac import SnacCodec

Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def signals(golden: Path) -> Arrays:
    return load_file(golden / "audio.safetensors")


def test_loudness(record: dict[str, Any], signals: Arrays) -> None:
    samples = signals["loudness.in"].astype(np.float32) / 32768
    for case in record["audio"]["loudness"]:
        lufs = audio.loudness_lufs(Waveform(samples * np.float32(case["gain"]), 24_000))
        assert lufs == (-math.inf if case["lufs"] is None else pytest.approx(case["lufs"], abs=0.01))


def test_trimming(record: dict[str, Any], signals: Arrays) -> None:
    waveform = Waveform(signals["trim.in"].astype(np.float32) / 32768, 24_000)
    for case in record["audio"]["trim"]:
        trimmed = audio.trim_silence(waveform, below_peak_db=case["top_db"])
        np.testing.assert_array_equal(trimmed.samples, waveform.samples[case["start"] : case["end"]])


def test_codec(record: dict[str, Any], golden: Path, tmp_path: Path) -> None:
    recorded = load_file(golden / "snac.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(record["snac"]["config"]), encoding="utf-8")
    weights = {name.removeprefix("weights."): value for name, value in recorded.items() if name.startswith("weights.")}
    save_file(weights, tmp_path / "model.safetensors")
    codec = SnacCodec(tmp_path)
    assert codec.spec.patch_samples == record["snac"]["patch_samples"]
    codes = codec.encode(Waveform(recorded["wav"][0, 0], codec.spec.sample_rate))
    assert [len(level) for level in codes] == record["snac"]["code_lengths"]
    for level, ours in enumerate(codes):
        np.testing.assert_array_equal(ours, recorded[f"codes.{level}"][0])
    decoded = codec.decode(codes).samples
    assert len(decoded) == record["snac"]["decoded_samples"]
    np.testing.assert_allclose(decoded, recorded["decoded"][0, 0], atol=1e-5)
