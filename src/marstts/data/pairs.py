"""Preference pairs on disk: for one prompt, what a model should say (chosen) and what it should not (rejected).

`pairs.jsonl` has one pair per line, in words and scores, so that a person can read it, listen, and take lines away; the
numbers lie in the `.safetensors` file of the same name, where a line finds them by its `row`. All sequences of one kind
lie end to end (`pack`, `unpack`), as in the shards.

Upstream: `preference.rank`, or anyone.  Downstream: `training.orpo`.
Shapes: N rows of a file · T patches · E1, E2 lengths of the embeddings.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from marstts.codec.base import CodecSpec, Codes
from marstts.config import Config, parse_config
from marstts.errors import DataError, MarsError

MAX_COMPLAINTS = 10
"""A person mends the first few; the rest is counted."""

CHOSEN, REJECTED, PREFIX = "chosen", "rejected", "prefix"
"""Names of the sequences in the file of numbers."""

Tensors = Mapping[str, NDArray[Any]]


class SideLine(Config):
    """What `pairs.jsonl` says of one side of a pair."""

    source: str
    """`recording`, or the take: `cycle` or `forward`, and its id."""

    audio: Path | None = None
    """Of a recording, where it lies, relative to the file of pairs; takes are in the codes."""

    patches: int = Field(ge=0)

    ended: bool
    """Whether speech ended by itself; if it was cut off, nobody says that it should have ended there."""

    seed: int | None = None
    """Of a take."""

    cer: float | None = None
    """Character error rate, of a take that was judged by a recogniser."""

    wrong_words: float | None = None
    """Share of words that the word test takes for others."""

    misfit: float | None = None
    """How ill the sounds of the words fit, by forced alignment."""

    mos: float | None = None
    """Opinion score that a predictor gives it."""


class PairLine(Config):
    """One line of `pairs.jsonl`."""

    id: str = Field(min_length=1)
    scheme: str
    """How the pair was chosen, see `preference.rank.Scheme`."""

    text: str = Field(min_length=1)
    """What both sides were to say, as the model reads it."""

    transcript: str | None
    """The words of the prefix that both go on from; null in a shallow clone."""

    speaker: str
    codec: str
    identity_encoder: str
    style_encoder: str
    """Names of what made the numbers; another model refuses the pair."""

    row: int = Field(ge=0)
    """Place in the file of numbers."""

    chosen: SideLine
    rejected: SideLine


@dataclass(frozen=True, eq=False)
class Pair:
    """One pair with its numbers."""

    line: PairLine

    identity: NDArray[np.float32]
    """(E1,) of the voice that both sides were prompted with."""

    style: NDArray[np.float32]
    """(E2,)."""

    prefix: Codes
    """What both go on from; no patches in a shallow clone."""

    chosen: Codes
    rejected: Codes

    @property
    def id(self) -> str:
        return self.line.id


def pack(name: str, sequences: Sequence[Codes], layout: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Sequences of codes, end to end: `name.0`, `name.1`, … uint16 per level, `name.offsets` (N + 1,) in patches."""
    counts = [len(codes[0]) // layout[0] for codes in sequences]
    tensors: dict[str, NDArray[Any]] = {
        f"{name}.{level}": np.concatenate([np.zeros(0, np.uint16), *(c[level].astype(np.uint16) for c in sequences)])
        for level in range(len(layout))
    }
    return {**tensors, f"{name}.offsets": np.cumsum([0, *counts]).astype(np.int64)}


def unpack(name: str, tensors: Tensors, row: int) -> Codes:
    """The codes of one row, the inverse of `pack`; KeyError, IndexError or ValueError where they are not there."""
    offsets = tensors[f"{name}.offsets"]
    if not 0 <= row < len(offsets) - 1:
        raise IndexError(f"row {row} of {len(offsets) - 1}")
    levels = [tensors[f"{name}.{level}"] for level in range(sum(key.startswith(f"{name}.") for key in tensors) - 1)]
    layout = [len(level) // max(1, int(offsets[-1])) for level in levels]
    start, stop = int(offsets[row]), int(offsets[row + 1])
    return tuple(level[start * n : stop * n].astype(np.int64) for level, n in zip(levels, layout, strict=True))


def numbers_path(path: Path) -> Path:
    """Where the numbers of a file of pairs lie."""
    return path.with_suffix(".safetensors")


def write_atomically(path: Path, content: bytes) -> None:
    """Under a temporary name until complete."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_pairs(pairs: Sequence[Pair], path: Path, layout: Sequence[int]) -> None:
    """Both files, the words last; rows are numbered anew, and paths of recordings made relative."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {
        **pack(CHOSEN, [pair.chosen for pair in pairs], layout),
        **pack(REJECTED, [pair.rejected for pair in pairs], layout),
        **pack(PREFIX, [pair.prefix for pair in pairs], layout),
        "identity": np.stack([pair.identity for pair in pairs]).astype(np.float32),
        "style": np.stack([pair.style for pair in pairs]).astype(np.float32),
    }
    write_atomically(numbers_path(path), save(tensors))
    lines = [line_of(pair, row, path.parent) for row, pair in enumerate(pairs)]
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def line_of(pair: Pair, row: int, folder: Path) -> str:
    """The line of a pair, as JSON."""
    values = pair.line.model_copy(update={"row": row}).model_dump(mode="json")
    for side in (CHOSEN, REJECTED):
        if values[side]["audio"] is not None:
            values[side]["audio"] = Path(os.path.relpath(values[side]["audio"], folder)).as_posix()
    return json.dumps(values, ensure_ascii=False)


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a file; DataError naming every line that cannot be used (the first ten of them)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected a file of pairs, written by `marstts rank`, but {error}") from error
    try:
        tensors = load_file(numbers_path(path))
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{numbers_path(path)}: expected the codes of the pairs beside their lines, but {error}; "
            "keep both files together"
        ) from error
    pairs, complaints = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            pairs.append(parse_pair(line, path.parent, tensors, f"{path}:{number}"))
        except MarsError as error:
            complaints.append(str(error))
    refuse(complaints)
    if not pairs:
        raise DataError(f"{path}: there are no pairs in it")
    repeated = sorted({pair.id for pair in pairs if sum(other.id == pair.id for other in pairs) > 1})
    refuse([f"{path}: the id {name!r} occurs more than once" for name in repeated])
    return pairs


def parse_pair(line: str, folder: Path, tensors: Tensors, place: str) -> Pair:
    """One line and its numbers."""
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: expected one JSON object per line, but {error}") from error
    found = parse_config(PairLine, values, place)
    sides = {side: getattr(found, side) for side in (CHOSEN, REJECTED)}
    resolved = {
        side: known if known.audio is None else known.model_copy(update={"audio": folder / known.audio})
        for side, known in sides.items()
    }
    try:
        return Pair(
            line=found.model_copy(update=resolved),
            identity=tensors["identity"][found.row],
            style=tensors["style"][found.row],
            prefix=unpack(PREFIX, tensors, found.row),
            chosen=unpack(CHOSEN, tensors, found.row),
            rejected=unpack(REJECTED, tensors, found.row),
        )
    except (KeyError, IndexError, ValueError) as error:
        raise DataError(f"{place}: pair {found.id!r} has no codes in row {found.row} of its file: {error}") from error


def check_pairs(pairs: Sequence[Pair], codec: CodecSpec, identity_encoder: str, style_encoder: str) -> None:
    """DataError naming every pair (the first ten) that a model on this codec and these encoders cannot learn from."""
    makers = {"codec": codec.name, "identity_encoder": identity_encoder, "style_encoder": style_encoder}
    refuse([f"pair {pair.id!r}: {problem}" for pair in pairs for problem in problems_of(pair, codec, makers)])


def problems_of(pair: Pair, codec: CodecSpec, makers: Mapping[str, str]) -> list[str]:
    """What keeps a pair from being learnt from."""
    problems = [
        f"was made with the {name.replace('_', ' ')} {getattr(pair.line, name)!r}, but the model needs {needed!r}; "
        "mine again with this model"
        for name, needed in makers.items()
        if getattr(pair.line, name) != needed
    ]
    for name, side, codes in ((CHOSEN, pair.line.chosen, pair.chosen), (REJECTED, pair.line.rejected, pair.rejected)):
        if side.audio is not None and not side.audio.is_file():
            problems.append(f"the recording of its {name} side, {side.audio}, does not exist")
        bad = [label for label in ("cer", "wrong_words", "misfit", "mos") if not is_score(getattr(side, label))]
        problems += [f"the {label} of its {name} side is {getattr(side, label)}, which is no number" for label in bad]
        problems += problems_of_codes(name, codes, side.patches, codec)
    problems += problems_of_codes(PREFIX, pair.prefix, len(pair.prefix[0]) // codec.patch_layout[0], codec, least=0)
    if not (np.isfinite(pair.identity).all() and np.isfinite(pair.style).all()):
        problems.append("its voice has values that are not numbers")
    if (len(pair.prefix[0]) > 0) != (pair.line.transcript is not None):
        problems.append("a deep clone has both a transcript and prefix codes, but here is only one of them")
    same = pair.line.chosen.ended == pair.line.rejected.ended and len(pair.chosen) == len(pair.rejected)
    if same and all(np.array_equal(one, two) for one, two in zip(pair.chosen, pair.rejected, strict=True)):
        problems.append("its two sides are identical, so there is nothing to prefer")
    return problems


def problems_of_codes(name: str, codes: Codes, patches: int, codec: CodecSpec, least: int = 1) -> list[str]:
    """What is wrong with the codes of one side."""
    layout = codec.patch_layout
    if len(codes) != len(layout):
        return [f"its {name} side has codes on {len(codes)} levels; the codec has {len(layout)}"]
    if len(codes[0]) < least:
        return [f"its {name} side has no codes"]
    if any(len(level) != patches * count for level, count in zip(codes, layout, strict=True)):
        return [f"its {name} side should have {patches} patches, but has codes {[len(level) for level in codes]}"]
    largest = max((int(level.max()) for level in codes if len(level)), default=0)
    if largest >= codec.codebook_size:
        return [f"its {name} side has code {largest}; the codebook holds 0 to {codec.codebook_size - 1}"]
    return []


def is_score(value: float | None) -> bool:
    """Whether a score is a number, or not given."""
    return value is None or math.isfinite(value)


def refuse(complaints: Sequence[str]) -> None:
    """DataError with the first complaints, if there are any."""
    if complaints:
        more = len(complaints) - MAX_COMPLAINTS
        rest = f"; and {more} more" if more > 0 else ""
        raise DataError("; ".join(complaints[:MAX_COMPLAINTS]) + rest)
