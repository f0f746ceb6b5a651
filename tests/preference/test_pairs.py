"""Pairs on disk: kept whole, open to a person's knife, and refused by name where something is wrong with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marstts.codec.base import CodecSpec
from marstts.data.pairs import Pair, PairLine, SideLine, check_pairs, numbers_path, read_pairs, write_pairs
from marstts.errors import DataError

SPEC = CodecSpec(name="toy", sample_rate=8000, codebook_size=9, hop_lengths=(400, 200, 100))


def codes(seed: int, patches: int):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, 9, patches * count) for count in SPEC.patch_layout)


def pair(number: int, recording: Path | None, chosen: int = 3, rejected: int = 4, prefix: int = 0) -> Pair:
    line = PairLine(
        id=f"p{number}", scheme="truth_vs_worst", text="the cat", transcript="the mat" if prefix else None,
        speaker="anna", codec="toy", identity_encoder="ears", style_encoder="eyes", row=0,
        chosen=SideLine(source="recording", audio=recording, patches=chosen, ended=True),
        rejected=SideLine(source="cycle x", patches=rejected, ended=False, seed=5, cer=1.5, mos=2.25),
    )  # fmt: skip
    voice = np.full(5, number, np.float32), np.full(4, -number, np.float32)
    return Pair(line, *voice, codes(number, prefix), codes(number + 10, chosen), codes(number + 20, rejected))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "audio" / "one.wav"
    path.parent.mkdir()
    path.write_bytes(b"sound")
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
    check_pairs(found, SPEC, "ears", "eyes")


def same(one: Pair, other: Pair) -> bool:
    sides = ("identity", "style"), ("prefix", "chosen", "rejected")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in sides[0]) and all(
        np.array_equal(first, second)
        for name in sides[1]
        for first, second in zip(getattr(one, name), getattr(other, name), strict=True)
    )


def test_pairs_come_back_as_they_were_written(file: Path, pairs: list[Pair], recording: Path):
    found = read_pairs(file)
    check(found)
    assert all(same(one, other) for one, other in zip(found, pairs, strict=True))
    assert [one.line.row for one in found] == [0, 1, 2]
    assert found[0].line.chosen.audio.samefile(recording)
    assert json.loads(file.read_text().splitlines()[0])["chosen"]["audio"] == "../audio/one.wav"


def test_lines_may_be_taken_away_and_moved_around(file: Path, pairs: list[Pair]):
    lines = file.read_text().splitlines()
    file.write_text(f"{lines[2]}\n\n{lines[1]}\n")
    third, second = read_pairs(file)
    assert same(third, pairs[2]) and same(second, pairs[1])


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
        ({"codec": "other"}, "pair 'p1': was made with the codec 'other', but the model needs 'toy'; mine again"),
        ({"identity_encoder": "nose"}, "pair 'p1': was made with the identity encoder 'nose'"),
        ({"style_encoder": "nose"}, "pair 'p1': was made with the style encoder 'nose'"),
        ({"rejected__cer": float("nan")}, "pair 'p1': the cer of its rejected side is nan, which is no number"),
        ({"chosen__mos": float("inf")}, "pair 'p1': the mos of its chosen side is inf"),
        ({"rejected__patches": 7}, "pair 'p1': its rejected side should have 7 patches, but has codes"),
        ({"transcript": "words"}, "pair 'p1': a deep clone has both a transcript and prefix codes"),
    ],
)
def test_bad_pairs_are_refused_by_name(file: Path, changes: dict, complaint: str):
    with pytest.raises(DataError, match=complaint):
        check(read_pairs(edited(file, 0, **changes)))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"row": 8}, r"pairs\.jsonl:1: pair 'p1' has no codes in row 8 of its file"),
        ({"text": ""}, "text"),
        ({"mood": "gay"}, "mood: Extra"),
        ({"id": "p3"}, "the id 'p3' occurs more than once"),
    ],
)
def test_lines_that_cannot_be_read_are_refused(file: Path, changes: dict, complaint: str):
    with pytest.raises(DataError, match=complaint):
        read_pairs(edited(file, 0, **changes))


def test_identical_sides_are_refused(pairs: list[Pair]):
    first = pairs[0]
    twin = replace(first, rejected=first.chosen)
    line = first.line.model_copy(update={"rejected": SideLine(source="x", patches=3, ended=True)})
    with pytest.raises(DataError, match="pair 'p1': its two sides are identical, so there is nothing to prefer"):
        check([replace(twin, line=line)])
    cut_off = line.model_copy(update={"rejected": SideLine(source="x", patches=3, ended=False)})
    check([replace(twin, line=cut_off)])  # one of them ends there, and the other does not


def test_foreign_codes_and_voices_are_refused(pairs: list[Pair]):
    first = pairs[0]
    large = (first.chosen[0] + 9, *first.chosen[1:])
    with pytest.raises(DataError, match=r"pair 'p1': its chosen side has code \d+; the codebook holds 0 to 8"):
        check([replace(first, chosen=large)])
    with pytest.raises(DataError, match="pair 'p1': its chosen side has codes on 2 levels; the codec has 3"):
        check([replace(first, chosen=first.chosen[:2])])
    with pytest.raises(DataError, match="pair 'p1': its rejected side has no codes"):
        check([replace(first, rejected=codes(0, 0))])
    with pytest.raises(DataError, match="pair 'p1': its voice has values that are not numbers"):
        check([replace(first, identity=first.identity * np.nan)])


def test_every_bad_pair_is_named_up_to_ten(pairs: list[Pair]):
    empty = [replace(pair(number, None), rejected=codes(0, 0)) for number in range(14)]
    with pytest.raises(DataError, match=r"(?s)'p0'.*'p9'.*; and 4 more") as caught:
        check(empty)
    assert "'p10'" not in str(caught.value)


def test_missing_and_damaged_files_are_named(file: Path, tmp_path: Path):
    with pytest.raises(DataError, match="written by `marstts rank`"):
        read_pairs(tmp_path / "none.jsonl")
    numbers_path(file).write_bytes(b"no tensors")
    with pytest.raises(DataError, match="keep both files together"):
        read_pairs(file)
    numbers_path(file).unlink()
    with pytest.raises(DataError, match="expected the codes of the pairs beside their lines"):
        read_pairs(file)
