"""A codec of eight levels at one rate over the packaged model's codec."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from marstts.audio import Waveform
from marstts.codec.base import TimbreConditioned, WindowDecoding
from marstts.codec.frame_codec import (
    PACKAGED_CODEC,
    TENSORS_FILE,
    FrameCodebooks,
    FrameCodec,
    codes_by_frame,
    codes_by_level,
    frame_vectors,
)
from marstts.codec.mini import MiniCodec
from marstts.codec.registry import open_codec
from marstts.errors import CheckpointError
from marstts.training.codec.frame_codec import fit_frame_codebooks, packaged_tables, similar_order, write_frame_codec

SIZE = 20


def speech(seconds: float) -> Waveform:
    """A buzz with changing loudness."""
    time = np.arange(int(seconds * 24_000)) / 24_000
    samples = 0.2 * np.sign(np.sin(2 * np.pi * 130 * time)) * (0.55 + 0.45 * np.sin(8 * np.pi * time))
    return Waveform(samples.astype(np.float32), 24_000)


@pytest.fixture(scope="module")
def codebooks() -> FrameCodebooks:
    """Content of four seconds."""
    frames, weights = codes_by_frame(MiniCodec(PACKAGED_CODEC).encode(speech(4.0))), np.ones(32, np.float32)
    return fit_frame_codebooks(frames, packaged_tables(PACKAGED_CODEC), weights, SIZE, np.random.default_rng(0))


@pytest.fixture(scope="module")
def folder(codebooks: FrameCodebooks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("frames") / "codec"
    write_frame_codec(made, codebooks, name="small", base=MiniCodec(PACKAGED_CODEC).spec.name)
    return made


def test_every_code_of_the_base_comes_back(codebooks: FrameCodebooks) -> None:
    rng = np.random.default_rng(1)
    codes = tuple(rng.integers(0, 1024, 50 * count) for count in (1, 2, 4))
    frames = codes_by_frame(codes)
    assert frames[:2].tolist() == [
        [codes[0][0], codes[1][0], codes[2][0], codes[2][1]], [codes[0][0], codes[1][1], codes[2][2], codes[2][3]]
    ]  # fmt: skip
    split = codebooks.split(frames)
    assert (split >= 0).all() and (split.max(axis=0) < [SIZE, 256, 256, 256, 256, 4, 4, 16]).all()
    assert np.array_equal(codebooks.join(split), frames)
    back = codes_by_level(codebooks.join(split))
    assert all(np.array_equal(one, other) for one, other in zip(back, codes, strict=True))


def test_codes_of_a_group_are_more_alike_than_codes_of_different_ones() -> None:
    table = packaged_tables(PACKAGED_CODEC)[0]
    places = similar_order(table)
    assert sorted(places.tolist()) == list(range(1024))
    ordered = table[np.argsort(places)].reshape(256, 4, 8)
    inside = np.linalg.norm(ordered[:, :2] - ordered[:, 2:], axis=2).mean()
    across = np.linalg.norm(ordered[:-100] - ordered[100:], axis=2).mean()
    assert inside < 0.7 * across


def test_content_is_the_nearest_center_of_the_weighted_embeddings(codebooks: FrameCodebooks) -> None:
    frames = np.random.default_rng(2).integers(0, 1024, (6, 4))
    vectors = frame_vectors(frames, codebooks.tables)
    for vector, code in zip(vectors, codebooks.split(frames)[:, 0], strict=True):
        distances = [
            float((codebooks.content_weights**2 * (vector - center) ** 2).sum()) for center in codebooks.content
        ]
        assert code == int(np.argmin(distances))


def test_members_out_of_range_are_those_of_their_remainder(codebooks: FrameCodebooks) -> None:
    codes = np.array([[0, 7, 8, 9, 10, 3, 2, 4 * 1 + 2]])
    wild = codes + np.array([0, 0, 0, 0, 0, 4 * 60, 4, 4 * 4 * 3])
    assert np.array_equal(codebooks.join(wild), codebooks.join(codes))


def test_levels_have_one_rate_and_decode_to_speech_of_their_length(folder: Path) -> None:
    codec = open_codec(folder)
    assert isinstance(codec, FrameCodec) and isinstance(codec, TimbreConditioned)
    assert codec.spec.patch_layout == (1,) * 8 and codec.spec.patch_samples == 1024
    codes = codec.encode(speech(1.0))
    assert [len(level) for level in codes] == [24] * 8 and codes[0].max() < SIZE
    base = codec.base.decode(codec.base.encode(speech(1.0))).samples
    assert np.array_equal(codec.decode(codes).samples, base)
    assert len(codec.decode([level[:23] for level in codes]).samples) == 23 * 1024


def test_windows_of_an_odd_number_of_frames_decode_to_their_lengths(folder: Path) -> None:
    codec = open_codec(folder)
    codes = codec.encode(speech(3.0))
    whole, decoding = codec.decode(codes).samples, WindowDecoding(codec)
    pieces = [decoding.decode_until(codes, stop) for stop in (5, 16, len(codes[0]))]
    assert [len(piece) for piece in pieces] == [5 * 1024, 11 * 1024, (len(codes[0]) - 16) * 1024]
    assert len(np.concatenate(pieces)) == len(whole)


@pytest.mark.slow
def test_files_of_another_codec_and_malformed_ones_are_refused_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    for name in ("frames.json", TENSORS_FILE):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    description = (tmp_path / "frames.json").read_text()
    (tmp_path / "frames.json").write_text(description.replace("mini-codec-3", "mini-codec-2"))
    with pytest.raises(CheckpointError, match="made for the codec mini-codec-2"):
        open_codec(tmp_path)
    (tmp_path / "frames.json").write_text(description)
    tensors = load_file(tmp_path / TENSORS_FILE)
    for changed, message in (
        ({"content": tensors["content"][:2]}, "but it holds others"),
        ({"content": tensors["content"] * np.float32(np.nan)}, "NaN"),
        ({"places": tensors["places"] * 0}, "every place from 0 to 1023 once"),
    ):
        save_file({**tensors, **changed}, tmp_path / TENSORS_FILE)
        with pytest.raises(CheckpointError, match=message):
            open_codec(tmp_path)
    codec = open_codec(folder)
    with pytest.raises(CheckpointError, match="decodes 8 levels"):
        codec.decode([np.zeros(4, np.int64)] * 2)
    with pytest.raises(CheckpointError, match="expected codes from 0 to 255"):
        codec.decode([np.full(4, 256)] * 8)
