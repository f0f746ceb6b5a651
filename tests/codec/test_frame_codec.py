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
from marstts.training.codec.frame_codec import frame_codebooks, packaged_tables, similar_order, write_frame_codec
from marstts.training.codec.frame_content import fit_content, phones_of_frames

SIZE = 20


def speech(seconds: float) -> Waveform:
    """A buzz with changing loudness."""
    time = np.arange(int(seconds * 24_000)) / 24_000
    samples = 0.2 * np.sign(np.sin(2 * np.pi * 130 * time)) * (0.55 + 0.45 * np.sin(8 * np.pi * time))
    return Waveform(samples.astype(np.float32), 24_000)


@pytest.fixture(scope="module")
def codebooks() -> FrameCodebooks:
    """Content of four seconds, whose phones are random."""
    tables = packaged_tables(PACKAGED_CODEC)
    vectors = frame_vectors(codes_by_frame(MiniCodec(PACKAGED_CODEC).encode(speech(4.0))), tables)
    phones = np.random.default_rng(0).integers(0, 40, (len(vectors), 2))
    return frame_codebooks(tables, fit_content([(vectors, phones)], SIZE, hidden=16, seed=0, steps=20))


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


def test_content_is_the_nearest_distribution_of_the_phones_of_a_frame_and_its_neighbors(
    codebooks: FrameCodebooks,
) -> None:
    frames, content = np.random.default_rng(2).integers(0, 1024, (9, 4)), codebooks.content
    silence = np.zeros(32, np.float32)
    vectors = [silence] * 3 + list(frame_vectors(frames, codebooks.tables)) + [silence] * 3
    for place, code in enumerate(codebooks.split(frames)[:, 0]):
        first, second, last = zip(content.weights, content.biases, strict=True)
        hidden = np.concatenate(vectors[place : place + 7])
        hidden = np.maximum(first[0] @ hidden + first[1], 0)
        hidden = np.maximum(second[0] @ hidden + second[1], 0)
        moments = np.exp((last[0] @ hidden + last[1]).reshape(2, 40))
        roots = np.sqrt(moments / moments.sum(axis=1, keepdims=True)).reshape(-1)
        assert code == int(np.argmin([float(np.square(roots - center).sum()) for center in content.centers]))


def test_content_learns_to_tell_phones_of_clean_vectors() -> None:
    """Vectors hold the phone and the speaker; the codes are those of the phones."""
    rng = np.random.default_rng(3)
    phones = np.repeat(rng.integers(0, 2, 100), 8)[:, None].repeat(2, axis=1)
    speaker = np.repeat(rng.normal(size=100), 8)
    vectors = np.zeros((800, 32), np.float32)
    vectors[:, 0], vectors[:, 1] = 2 * phones[:, 0] - 1, speaker
    content = fit_content([(vectors, phones)], 2, hidden=16, seed=0, steps=200)
    agreement = (content.codes(vectors) == phones[:, 0]).mean()
    assert max(agreement, 1 - agreement) > 0.9


def test_phones_are_told_at_a_quarter_and_three_quarters_of_a_frame() -> None:
    alignment = (np.array([0.0, 0.05, 0.1]), np.array([5, 6, 7]))
    assert phones_of_frames(alignment, 2, 0.08).tolist() == [[5, 6], [7, 7]]


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
        ({"content.centers": tensors["content.centers"][:2]}, "but it holds others"),
        ({"content.0.weight": tensors["content.0.weight"] * np.float32(np.nan)}, "NaN"),
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
