"""A codec of eight levels at one rate over the packaged model's codec."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from marstts.audio import Waveform
from marstts.codec.base import TimbreConditioned, WindowDecoding
from marstts.codec.mini import MiniCodec
from marstts.codec.registry import open_codec
from marstts.codec.residual import PACKAGED_CODEC, TENSORS_FILE, FrameVectors, ResidualCodec
from marstts.errors import CheckpointError
from marstts.training.codec.residual import fit_codebooks, packaged_tables, write_residual_codec

LEVELS, SIZE = 3, 40


def speech(seconds: float) -> Waveform:
    """A buzz with changing loudness."""
    time = np.arange(int(seconds * 24_000)) / 24_000
    samples = 0.2 * np.sign(np.sin(2 * np.pi * 130 * time)) * (0.55 + 0.45 * np.sin(8 * np.pi * time))
    return Waveform(samples.astype(np.float32), 24_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A codec whose codebooks are fitted to the vectors of four seconds."""
    made, base = tmp_path_factory.mktemp("residual") / "codec", MiniCodec(PACKAGED_CODEC)
    tables = packaged_tables(PACKAGED_CODEC)
    vectors = FrameVectors(tables, base.spec.patch_layout, 2).vectors(base.encode(speech(4.0)))
    weights = np.ones(32, np.float32)
    codebooks = fit_codebooks(vectors, weights, LEVELS, SIZE, SIZE // 2, np.random.default_rng(0))
    write_residual_codec(made, tables, codebooks, weights, name="small", base=base.spec.name, frames_per_patch=2)
    return made


def test_codes_of_frames_come_back_from_their_vectors() -> None:
    tables, rng = packaged_tables(PACKAGED_CODEC), np.random.default_rng(1)
    frames = FrameVectors(tables, (1, 2, 4), 2)
    codes = tuple(rng.integers(0, 1024, 5 * count) for count in (1, 2, 4))
    vectors = frames.vectors(codes)
    assert vectors.shape == (10, 32) == (10, frames.width)
    assert all(np.array_equal(one, other) for one, other in zip(frames.codes(vectors), codes, strict=True))


def test_levels_have_one_rate_and_decode_to_speech_of_their_length(folder: Path) -> None:
    codec = open_codec(folder)
    assert isinstance(codec, ResidualCodec) and isinstance(codec, TimbreConditioned)
    assert codec.spec.patch_layout == (1,) * LEVELS and codec.spec.patch_samples == 1024
    codes = codec.encode(speech(1.0))
    assert [len(level) for level in codes] == [24] * LEVELS and codes[0].max() < SIZE // 2
    samples = codec.decode([level[:23] for level in codes]).samples
    assert len(samples) == 23 * 1024 and np.isfinite(samples).all() and np.abs(samples).max() > 0.01


def test_more_levels_come_nearer_to_the_base_codec(folder: Path) -> None:
    codec = open_codec(folder)
    assert isinstance(codec, ResidualCodec)
    expected = codec.base.encode(speech(2.0))
    codes = np.stack(codec.encode(speech(2.0)), axis=1)
    found = []
    for levels in (1, LEVELS):
        vectors = codec._codebooks[np.arange(levels), codes[:, :levels]].sum(axis=1)
        back = codec._vectors.codes(vectors)
        found.append(np.mean([np.mean(one == other) for one, other in zip(back, expected, strict=True)]))
    assert found[0] < found[1]


def test_windows_of_an_odd_number_of_frames_decode_to_their_lengths(folder: Path) -> None:
    codec = open_codec(folder)
    codes = codec.encode(speech(3.0))
    whole, decoding = codec.decode(codes).samples, WindowDecoding(codec)
    pieces = [decoding.decode_until(codes, stop) for stop in (5, 16, len(codes[0]))]
    assert [len(piece) for piece in pieces] == [5 * 1024, 11 * 1024, (len(codes[0]) - 16) * 1024]
    assert len(np.concatenate(pieces)) == len(whole)


def test_files_of_another_codec_and_malformed_ones_are_refused_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    for name in ("residual.json", TENSORS_FILE):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    description = (tmp_path / "residual.json").read_text()
    (tmp_path / "residual.json").write_text(description.replace("mini-codec-3", "mini-codec-2"))
    with pytest.raises(CheckpointError, match="made for the codec mini-codec-2"):
        open_codec(tmp_path)
    (tmp_path / "residual.json").write_text(description)
    tensors = load_file(tmp_path / TENSORS_FILE)
    save_file({**tensors, "codebooks": tensors["codebooks"][:2]}, tmp_path / TENSORS_FILE)
    with pytest.raises(CheckpointError, match="but it holds others"):
        open_codec(tmp_path)
    save_file({**tensors, "codebooks": tensors["codebooks"] * np.float32(np.nan)}, tmp_path / TENSORS_FILE)
    with pytest.raises(CheckpointError, match="NaN"):
        open_codec(tmp_path)
    codec = open_codec(folder)
    with pytest.raises(CheckpointError, match="decodes 3 levels"):
        codec.decode([np.zeros(4, np.int64)] * 2)
    with pytest.raises(CheckpointError, match="expected codes from 0 to 39"):
        codec.decode([np.full(4, 40)] * 3)
