"""Preference pairs on disk: for one prompt, an output to prefer (chosen) and one to avoid (rejected).

`pairs.jsonl` has one pair per line, with texts and scores, so that a person can read it and delete lines. Codes and
embeddings lie in the `.safetensors` file of the same name, where a line finds them by its `row`.

Upstream: `preference.pairs`, or any other source.  Downstream: `training.mars6.orpo`.
Shapes: N rows of a file · T patches · E length of an embedding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from safetensors.numpy import save

from marstts.codec.base import CodecSpec, Codes
from marstts.errors import DataError
from marstts.io.config import Config
from marstts.io.files import write_file
from marstts.io.jsonl import dump_row, read_rows
from marstts.voice import Prefix, Voice
from marstts_lab.data.corpus import raise_all
from marstts_lab.data.sequences import (
    EMBEDDING,
    Tensors,
    load_tensors,
    pack,
    pack_embeddings,
    unpack,
    unpack_embeddings,
)

CHOSEN, REJECTED, PREFIX = "chosen", "rejected", "prefix"
"""Names of the sequences in the file of tensors."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


class SideLine(Config):
    """One side of a pair in `pairs.jsonl`."""

    model_config = ConfigDict(extra="ignore")  # pairs of earlier versions have scores that are gone

    source: str
    """`recording`, or the take: `cycle` or `forward`, and its id."""

    audio: Path | None = None
    """The file of a recording, relative to the file of pairs; null for a take, which exists as codes."""

    patches: int = Field(ge=0)

    has_eos: bool
    """True where speech ended by an end-of-speech token; a truncated take does not train the model to end there."""

    seed: int | None = None
    """Seed of a take."""

    cer: Finite | None = None
    """Character error rate of a take; null where it was not measured."""

    mos: Finite | None = None
    """Predicted mean opinion score."""

    similarity: Finite | None = None
    """Cosine of the identity embeddings of a take and of its prompt."""


class PairLine(Config):
    """One line of `pairs.jsonl`."""

    id: str = Field(min_length=1, max_length=4096)
    scheme: str
    """Scheme of the pair, see `preference.ranking.Scheme`."""

    text: str = Field(min_length=1, max_length=100_000)
    """The text of both sides, normalized."""

    transcript: str | None
    """The words of the prefix that both sides continue; null in a shallow clone."""

    speaker: str

    codec: str
    """Name of the codec of the codes; a model with another codec refuses the pair."""

    encoders: dict[str, str]
    """Names of the speaker encoders by role; a model with other encoders refuses the pair."""

    row: int = Field(ge=0)
    """Row in the file of tensors."""

    chosen: SideLine
    rejected: SideLine


@dataclass(frozen=True, eq=False)
class Pair:
    """One pair with its codes and embeddings."""

    line: PairLine

    embeddings: Mapping[str, NDArray[np.float32]]
    """The voice that both sides were prompted with: by role, (E,)."""

    prefix: Codes
    """The prefix that both sides continue; no patches in a shallow clone."""

    chosen: Codes
    rejected: Codes

    @property
    def id(self) -> str:
        return self.line.id

    @property
    def voice(self) -> Voice:
        """The voice that both sides were prompted with."""
        line = self.line
        prefix = None if line.transcript is None else Prefix(line.transcript, self.prefix)
        return Voice(line.speaker, self.embeddings, prefix, line.codec, line.encoders, source_sha256="", consent="")


def tensors_path(path: Path) -> Path:
    """Path of the tensors that belong to a file of pairs."""
    return path.with_suffix(".safetensors")


def write_pairs(pairs: Sequence[Pair], path: Path, layout: Sequence[int]) -> None:
    """Write both files, the lines last; rows are renumbered, and paths of recordings made relative."""
    tensors = {
        **pack(CHOSEN, [pair.chosen for pair in pairs], layout),
        **pack(REJECTED, [pair.rejected for pair in pairs], layout),
        **pack(PREFIX, [pair.prefix for pair in pairs], layout),
        **pack_embeddings(EMBEDDING, [pair.embeddings for pair in pairs]),
    }
    write_file(tensors_path(path), save(tensors), DataError)
    write_file(path, b"".join(line_of(pair, row, path.parent) for row, pair in enumerate(pairs)), DataError)


def line_of(pair: Pair, row: int, folder: Path) -> bytes:
    """The line of a pair, as JSON."""
    values = pair.line.model_copy(update={"row": row}).model_dump(mode="json")
    for side in (CHOSEN, REJECTED):
        if values[side]["audio"] is not None:
            values[side]["audio"] = Path(os.path.relpath(values[side]["audio"], folder)).as_posix()
    return dump_row(values)


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a file; DataError naming all lines that cannot be used (the first ten of them)."""
    lines = read_rows(PairLine, path, unique=("id",))
    if not lines:
        raise DataError(f"{path}: there are no pairs in it")
    tensors_file = tensors_path(path)
    if not tensors_file.exists():
        raise DataError(f"{tensors_file}: no such file; it holds the codes of {path.name}, keep both files together")
    tensors = load_tensors(tensors_file)
    pairs, complaints = [], []
    for line in lines:
        try:
            pairs.append(make_pair(line, path.parent, tensors))
        except (KeyError, IndexError, ValueError) as error:
            complaints.append(f"{path}: pair {line.id!r} has no codes in row {line.row} of its file: {error}")
    raise_all(complaints)
    return pairs


def make_pair(line: PairLine, folder: Path, tensors: Tensors) -> Pair:
    """One line with its tensors; KeyError, IndexError or ValueError where they are not there."""
    sides = {side: getattr(line, side) for side in (CHOSEN, REJECTED)}
    resolved = {
        side: known if known.audio is None else known.model_copy(update={"audio": folder / known.audio})
        for side, known in sides.items()
    }
    return Pair(
        line=line.model_copy(update=resolved),
        embeddings=unpack_embeddings(EMBEDDING, tensors, line.row),
        prefix=unpack(PREFIX, tensors, line.row),
        chosen=unpack(CHOSEN, tensors, line.row),
        rejected=unpack(REJECTED, tensors, line.row),
    )


def check_pairs(pairs: Sequence[Pair], codec: CodecSpec, encoders: Mapping[str, str]) -> None:
    """DataError naming all pairs (the first ten) that a model with this codec and these encoders cannot be trained on.

    `encoders`: names by role.
    """
    raise_all([f"pair {pair.id!r}: {problem}" for pair in pairs for problem in problems_of(pair, codec, encoders)])


def problems_of(pair: Pair, codec: CodecSpec, encoders: Mapping[str, str]) -> list[str]:
    """The reasons why a model cannot be trained on a pair; empty if it can."""
    problems = problems_of_source(pair.line, codec.name, encoders)
    for name, side, codes in ((CHOSEN, pair.line.chosen, pair.chosen), (REJECTED, pair.line.rejected, pair.rejected)):
        if side.audio is not None and not side.audio.is_file():
            problems.append(f"the recording of its {name} side, {side.audio}, does not exist")
        problems += problems_of_codes(name, codes, side.patches, codec)
    prefix_patches = len(pair.prefix[0]) // codec.patch_layout[0] if pair.prefix else 0
    problems += problems_of_codes(PREFIX, pair.prefix, prefix_patches, codec, least=0)
    if pair.embeddings.keys() != pair.line.encoders.keys():
        problems.append(f"it has embeddings of {sorted(pair.embeddings)} but encoders of {sorted(pair.line.encoders)}")
    if not all(np.isfinite(values).all() for values in pair.embeddings.values()):
        problems.append("its embeddings have values that are not finite")
    if bool(prefix_patches) != (pair.line.transcript is not None):
        problems.append("a deep clone has both a transcript and prefix codes, but this pair has only one of them")
    same = pair.line.chosen.has_eos == pair.line.rejected.has_eos and len(pair.chosen) == len(pair.rejected)
    if same and all(np.array_equal(one, two) for one, two in zip(pair.chosen, pair.rejected, strict=True)):
        problems.append("its two sides are identical, so there is nothing to prefer")
    return problems


def problems_of_source(line: PairLine, codec: str, encoders: Mapping[str, str]) -> list[str]:
    """The reasons why a pair was made for another model."""
    needed = {"codec": codec, **{f"{role} encoder": name for role, name in encoders.items()}}
    found = {"codec": line.codec, **{f"{role} encoder": name for role, name in line.encoders.items()}}
    return [
        f"was made with the {part} {found.get(part)!r}, but the model needs {name!r}; mine again with this model"
        for part, name in needed.items()
        if found.get(part) != name
    ]


def problems_of_codes(name: str, codes: Codes, patches: int, codec: CodecSpec, least: int = 1) -> list[str]:
    """The problems with the codes of one side."""
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
