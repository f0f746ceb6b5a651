"""Preference pairs on disk: lines can be edited by hand, and invalid pairs are refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marstts.codec.base import CodecSpec
from marstts.errors import DataError
from marstts_lab.data.pairs import Pair, PairLine, SideLine, check_pairs, read_pairs, tensors_path, write_pairs

SPEC = CodecSpec(name="toy", sample_rate=8000, codebook_size=9, hop_lengths=(400, 200, 100))
ENCODERS = {"identity": "who", "style": "how"}


def codes(seed: int, patches: int):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, 9, patches * count) for count in SPEC.patch_layout)


def pair(number: int, recording: Path | None, chosen: int = 3, rejected: int = 4, prefix: int = 0) -> Pair:
    line = PairLine(
        id=f"p{number}", scheme="ground_truth_vs_worst", text="the cat", transcript="the mat" if prefix else None,
        speaker="anna", codec="toy", encoders=ENCODERS, row=0,
        chosen=SideLine(source="recording", audio=recording, patches=chosen, has_eos=True),
        rejected=SideLine(source="cycle x", patches=rejected, has_eos=False, seed=5, cer=1.5, mos=2.25),
    )  # fmt: skip
    voice = {"identity": np.full(5, number, np.float32), "style": np.full(4, -number, np.float32)}
    return Pair(line, voice, codes(number, prefix), codes(number + 10, chosen), codes(number + 20, rejected))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "audio" / "one.wav"
    path.parent.mkdir()
    path.write_bytes(b"audio")
    return path


@pytest.fixture
def pairs(recording: Path) -> list[Pair]:
    return [pair(1, recording), pair(2, None, rejected=1, prefix=2), pair(3, recording, chosen=6)]


@pytest.fixture
def file(pairs: list[Pair], tmp_path: Path) -> Path:
    path = tmp_path / "out" / "pairs.jsonl"
    write_pairs(pairs, path, SPEC.patch_layout)
    return path


def check(found: list[Pair]) -> None:
    check_pairs(found, SPEC, ENCODERS)


def same(one: Pair, other: Pair) -> bool:
    return all(np.array_equal(one.embeddings[role], other.embeddings[role]) for role in ENCODERS) and all(
        np.array_equal(first, second)
        for name in ("prefix", "chosen", "rejected")
        for first, second in zip(getattr(one, name), getattr(other, name), strict=True)
    )


def test_pairs_are_read_as_they_were_written(file: Path, pairs: list[Pair], recording: Path):
    found = read_pairs(file)
    check(found)
    assert all(same(one, other) for one, other in zip(found, pairs, strict=True))
    assert [one.line.row for one in found] == [0, 1, 2]
    assert found[0].line.chosen.audio.samefile(recording)
    assert json.loads(file.read_text().splitlines()[0])["chosen"]["audio"] == "../audio/one.wav"


def edited(file: Path, number: int, **changes) -> Path:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for key, value in changes.items():
        *path, last = key.split("__")
        values = lines[number]
        for part in path:
            values = values[part]
        values[last] = value
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"chosen__audio": "gone.wav"}, r"pair 'p1': the recording of its chosen side, .*gone\.wav, does not exist"),
        ({"encoders__style": "other"}, "pair 'p1': was made with the style encoder 'other'"),
        ({"rejected__cer": float("nan")}, r"pairs.jsonl:1: .*expected JSON"),
        ({"transcript": "words"}, "pair 'p1': a deep clone has both a transcript and prefix codes"),
    ],
)
def test_invalid_pairs_are_refused_by_name(file: Path, changes: dict, complaint: str):
    with pytest.raises(DataError, match=complaint):
        check(read_pairs(edited(file, 0, **changes)))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"row": 8}, r"pairs\.jsonl: pair 'p1' has no codes in row 8 of its file"),
        ({"text": ""}, "text"),
        ({"mood": "good"}, "mood: extra"),
        ({"id": "p3"}, "id 'p3' was used before on line 1"),
    ],
)
def test_lines_that_cannot_be_read_are_refused(file: Path, changes: dict, complaint: str):
    with pytest.raises(DataError, match=complaint):
        read_pairs(edited(file, 0, **changes))


def test_identical_sides_are_refused(pairs: list[Pair]):
    first = pairs[0]
    twin = replace(first, rejected=first.chosen)
    line = first.line.model_copy(update={"rejected": SideLine(source="x", patches=3, has_eos=True)})
    with pytest.raises(DataError, match="pair 'p1': its two sides are identical, so there is nothing to prefer"):
        check([replace(twin, line=line)])
    without_eos = line.model_copy(update={"rejected": SideLine(source="x", patches=3, has_eos=False)})
    check([replace(twin, line=without_eos)])  # only one of them ends with an end of speech


def test_codes_and_embeddings_of_another_kind_are_refused(pairs: list[Pair]):
    first = pairs[0]
    large = (first.chosen[0] + 9, *first.chosen[1:])
    with pytest.raises(DataError, match=r"pair 'p1': its chosen side has code \d+; the codebook holds 0 to 8"):
        check([replace(first, chosen=large)])
    with pytest.raises(DataError, match="pair 'p1': its chosen side has codes on 2 levels; the codec has 3"):
        check([replace(first, chosen=first.chosen[:2])])
    with pytest.raises(DataError, match="pair 'p1': its rejected side has no codes"):
        check([replace(first, rejected=codes(0, 0))])
    with pytest.raises(DataError, match="pair 'p1': its embeddings have values that are not finite"):
        check([replace(first, embeddings={role: values * np.nan for role, values in first.embeddings.items()})])


def test_missing_and_corrupt_files_are_named(file: Path, tmp_path: Path):
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        read_pairs(tmp_path / "none.jsonl")
    tensors_path(file).write_bytes(b"no tensors")
    with pytest.raises(DataError, match="expected a safetensors file of codes and embeddings"):
        read_pairs(file)
    tensors_path(file).unlink()
    with pytest.raises(DataError, match=r"no such file.*keep both files together"):
        read_pairs(file)
