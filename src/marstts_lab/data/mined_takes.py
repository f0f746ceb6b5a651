"""Mined takes on disk: the output of a model on its way from a recording to a text and back, and everything it used.

A folder of shards, each two files: `takes-00000.safetensors` holds codes and embeddings, `takes-00000.jsonl` a line per
take; the lines are written last, so a shard with lines is complete. `plan.jsonl` lists the takes to be generated,
`provenance.json` the model and settings.

Upstream: `preference.mine`.  Downstream: `preference.scoring`, `preference.pairs`, `training.codec`.
Shapes: N takes of a shard · E length of an embedding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import save

from marstts.codec.base import Codes
from marstts.errors import DataError
from marstts.generation.request import StopReason
from marstts.io.config import Config
from marstts.io.files import write_file
from marstts.io.jsonl import read_rows, write_rows
from marstts_lab.data.sequences import (
    EMBEDDING,
    Tensors,
    load_tensors,
    pack,
    pack_embeddings,
    unpack,
    unpack_embeddings,
)

PLAN_FILE = "plan.jsonl"
TAKES_PATTERN = "takes-*.jsonl"
GROUND_TRUTH = "ground_truth"


class Half(str, Enum):
    """The two halves of a cycle."""

    FORWARD = "forward"
    """The text, in the voice of the recording."""

    CYCLE = "cycle"
    """The words of the recording, in the voice of the output of the first half."""


class PlannedTake(Config):
    """One cycle to be generated: a line of `plan.jsonl`. The result is a function of it and of the model."""

    id: str = Field(min_length=1, max_length=4096)
    reference: str
    """The recording's id in its manifest."""

    audio: Path
    """The file of the recording."""

    transcript: str
    """The words of the recording, normalized."""

    speaker: str
    style: str
    text: str
    """The text for its voice, normalized."""

    seed: int = Field(ge=0)


class MiningProvenance(Config):
    """`provenance.json` of mined takes; takes of another model, or of other texts, need another folder."""

    model: str
    """A packaged model's name, or a bundle's folder."""

    model_digest: str
    codec: str

    encoders: dict[str, str]
    """Names of the speaker encoders by role."""

    texts: str
    """Hash of the file of sentences."""

    config: dict[str, Any]


class HalfLine(Config):
    """One half of a cycle in `takes-00000.jsonl`."""

    patches: int = Field(ge=0)
    stop: StopReason


class TakeLine(Config):
    """A line of `takes-00000.jsonl`."""

    plan: PlannedTake
    top_p: float
    forward: HalfLine | None
    cycle: HalfLine | None
    """None where it could not be generated."""

    error: str | None
    """The reason; None where both halves were generated."""


@dataclass(frozen=True, eq=False)
class GeneratedHalf:
    """One half of a cycle: the voice that was the prompt, and the output."""

    embeddings: Mapping[str, NDArray[np.float32]]
    """Embeddings by role, (E,)."""

    prefix: Codes
    """Codes of the prefix: no patches in a shallow clone."""

    codes: Codes
    stop: StopReason


@dataclass(frozen=True, eq=False)
class MinedTake:
    """One cycle with its codes and embeddings."""

    plan: PlannedTake
    top_p: float

    ground_truth: Codes
    """The codes of the recording."""

    forward: GeneratedHalf | None
    cycle: GeneratedHalf | None
    error: str | None

    @property
    def id(self) -> str:
        return self.plan.id

    def half(self, half: Half) -> GeneratedHalf | None:
        """The given half, if it was generated."""
        return self.forward if half is Half.FORWARD else self.cycle


def text_of(take: MinedTake, half: Half) -> str:
    """The text that one half of a cycle was to speak."""
    return take.plan.text if half is Half.FORWARD else take.plan.transcript


def shard_path(folder: Path, index: int) -> Path:
    """Path of the lines of a shard; its tensors lie next to them."""
    return folder / f"takes-{index:05d}.jsonl"


def write_takes(takes: Sequence[MinedTake], path: Path, layout: Sequence[int], sizes: Mapping[str, int]) -> None:
    """Write both files of a shard, lines last; equal takes make equal files. `sizes`: E by role."""
    no_codes: Codes = tuple(np.zeros(0, np.int64) for _ in layout)
    no_embeddings = {role: np.zeros(size, np.float32) for role, size in sizes.items()}
    tensors: dict[str, NDArray[Any]] = pack(GROUND_TRUTH, [take.ground_truth for take in takes], layout)
    for half in Half:
        found = [take.half(half) for take in takes]
        tensors |= pack(f"{half.value}.codes", [no_codes if one is None else one.codes for one in found], layout)
        tensors |= pack(f"{half.value}.prefix", [no_codes if one is None else one.prefix for one in found], layout)
        embeddings = [no_embeddings if one is None else one.embeddings for one in found]
        tensors |= pack_embeddings(f"{half.value}.{EMBEDDING}", embeddings)
    write_file(path.with_suffix(".safetensors"), save(tensors), DataError)
    write_rows(path, [line_of(take, layout) for take in takes])


def line_of(take: MinedTake, layout: Sequence[int]) -> TakeLine:
    """The line of a take."""
    halves = {
        half.value: None if one is None else HalfLine(patches=len(one.codes[0]) // layout[0], stop=one.stop)
        for half in Half
        for one in [take.half(half)]
    }
    return TakeLine(plan=take.plan, top_p=take.top_p, error=take.error, **halves)


def read_takes(path: Path) -> list[MinedTake]:
    """The takes of a shard; DataError where it is corrupt."""
    lines, tensors = read_rows(TakeLine, path), load_tensors(path.with_suffix(".safetensors"))
    try:
        return [make_take(line, tensors, row) for row, line in enumerate(lines)]
    except (ValueError, KeyError, IndexError) as error:
        raise DataError(
            f"{path}: expected takes and their codes, written by `marstts preference mine`, but {error}; remove the "
            "shard's files to have it generated again"
        ) from error


def make_take(line: TakeLine, tensors: Tensors, row: int) -> MinedTake:
    """One take from its line and its row of tensors."""
    halves = {
        half.value: None
        if known is None
        else GeneratedHalf(
            embeddings=unpack_embeddings(f"{half.value}.{EMBEDDING}", tensors, row),
            prefix=unpack(f"{half.value}.prefix", tensors, row),
            codes=unpack(f"{half.value}.codes", tensors, row),
            stop=known.stop,
        )
        for half, known in ((Half.FORWARD, line.forward), (Half.CYCLE, line.cycle))
    }
    ground_truth = unpack(GROUND_TRUTH, tensors, row)
    return MinedTake(plan=line.plan, top_p=line.top_p, ground_truth=ground_truth, error=line.error, **halves)
