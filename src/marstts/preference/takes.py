"""Mined takes on disk: what a model said on its way from a recording to a text and back, with all that led to it.

A folder of shards, each two files: `takes-00000.safetensors` holds the numbers, `takes-00000.jsonl` a line per take;
the lines are written last, so a shard whose lines are there is complete. `plan.jsonl` says what is to be spoken,
`mine.json` by what.

Upstream: `mine`.  Downstream: `rank`.
Shapes: N takes of a shard · E1, E2 lengths of the embeddings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from marstts.codec.base import Codes
from marstts.config import Config, parse_config
from marstts.data.pairs import pack, unpack, write_atomically
from marstts.errors import DataError
from marstts.mars6.generate import StopReason

PLAN_FILE, CLAIM_FILE = "plan.jsonl", "mine.json"
TAKES_PATTERN = "takes-*.jsonl"
TRUTH = "truth"


class Leg(str, Enum):
    """The two halves of a cycle."""

    FORWARD = "forward"
    """The text, in the voice of the recording."""

    CYCLE = "cycle"
    """The words of the recording, in the voice of what came out of the first half."""


class PlannedTake(Config):
    """One cycle to be spoken: a line of `plan.jsonl`. What comes out is a function of it and of the model."""

    id: str
    reference: str
    """The recording's id in its manifest."""

    audio: Path
    """Where the recording lies."""

    transcript: str
    """What is said in it, as the model reads it."""

    speaker: str
    style: str
    text: str
    """What is to be said in its voice, as the model reads it."""

    seed: int


class Claim(Config):
    """`mine.json`: what a folder of takes is made by; another model, or other texts, go to another folder."""

    model: str
    """A packaged model's name, or a bundle's folder."""

    model_digest: str
    codec: str
    identity_encoder: str
    style_encoder: str
    texts: str
    """Hash of the file of sentences."""

    config: dict[str, Any]


class LegLine(Config):
    """What is told of one half of a cycle."""

    patches: int
    stop: StopReason


class TakeLine(Config):
    """A line of `takes-00000.jsonl`."""

    plan: PlannedTake
    top_p: float
    forward: LegLine | None
    cycle: LegLine | None
    """None where it could not be spoken."""

    problem: str | None
    """Why not; else null."""


@dataclass(frozen=True, eq=False)
class Spoken:
    """One half of a cycle with its numbers: the voice it was prompted with, and what came out."""

    identity: NDArray[np.float32]
    """(E1,)."""

    style: NDArray[np.float32]
    """(E2,)."""

    prefix: Codes
    """No patches where the clone is shallow."""

    codes: Codes
    stop: StopReason


@dataclass(frozen=True, eq=False)
class Take:
    """One cycle with its numbers."""

    plan: PlannedTake
    top_p: float

    truth: Codes
    """The codes of the recording."""

    forward: Spoken | None
    cycle: Spoken | None
    problem: str | None

    @property
    def id(self) -> str:
        return self.plan.id

    def leg(self, leg: Leg) -> Spoken | None:
        """That half, if it was spoken."""
        return self.forward if leg is Leg.FORWARD else self.cycle


def shard_path(folder: Path, index: int) -> Path:
    """The lines of a shard; its numbers lie beside them."""
    return folder / f"takes-{index:05d}.jsonl"


def write_takes(takes: Sequence[Take], path: Path, layout: Sequence[int], sizes: tuple[int, int]) -> None:
    """Both files of a shard, lines last; equal takes make equal files. `sizes` are E1 and E2."""
    nothing: Codes = tuple(np.zeros(0, np.int64) for _ in layout)
    tensors: dict[str, NDArray[Any]] = pack(TRUTH, [take.truth for take in takes], layout)
    for leg in Leg:
        legs = [take.leg(leg) for take in takes]
        tensors |= pack(f"{leg.value}.codes", [nothing if one is None else one.codes for one in legs], layout)
        tensors |= pack(f"{leg.value}.prefix", [nothing if one is None else one.prefix for one in legs], layout)
        for name, size in zip(("identity", "style"), sizes, strict=True):
            rows = [np.zeros(size, np.float32) if one is None else getattr(one, name) for one in legs]
            tensors[f"{leg.value}.{name}"] = np.stack(rows)
    write_atomically(path.with_suffix(".safetensors"), save(tensors))
    lines = [line_of(take, layout).model_dump_json() for take in takes]
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def line_of(take: Take, layout: Sequence[int]) -> TakeLine:
    """What is written of a take in words."""
    told = {
        leg.value: None if one is None else LegLine(patches=len(one.codes[0]) // layout[0], stop=one.stop)
        for leg in Leg
        for one in [take.leg(leg)]
    }
    return TakeLine(plan=take.plan, top_p=take.top_p, problem=take.problem, **told)


def read_takes(path: Path) -> list[Take]:
    """The takes of a shard; DataError where it is damaged."""
    try:
        lines = [parse_config(TakeLine, json.loads(line), str(path)) for line in path.read_text("utf-8").splitlines()]
        tensors = load_file(path.with_suffix(".safetensors"))
        return [read_take(line, tensors, row) for row, line in enumerate(lines)]
    except (OSError, ValueError, KeyError, IndexError, SafetensorError) as error:
        raise DataError(f"{path}: expected takes and their codes, written by `marstts mine`, but {error}") from error


def read_take(line: TakeLine, tensors: dict[str, NDArray[Any]], row: int) -> Take:
    """One take from its line and its row of numbers."""
    legs = {
        leg.value: None
        if told is None
        else Spoken(
            identity=tensors[f"{leg.value}.identity"][row],
            style=tensors[f"{leg.value}.style"][row],
            prefix=unpack(f"{leg.value}.prefix", tensors, row),
            codes=unpack(f"{leg.value}.codes", tensors, row),
            stop=told.stop,
        )
        for leg, told in ((Leg.FORWARD, line.forward), (Leg.CYCLE, line.cycle))
    }
    return Take(plan=line.plan, top_p=line.top_p, truth=unpack(TRUTH, tensors, row), problem=line.problem, **legs)


def read_lines(kind: type[Config], path: Path) -> list[Any]:
    """Every line of a JSONL file as a `kind`; DataError where one is something else."""
    try:
        return [
            parse_config(kind, json.loads(line), f"{path}:{number}")
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        ]
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected one JSON object per line, but {error}") from error


def read_claim(folder: Path) -> Claim:
    """What a folder of takes was made by; DataError if it is no such folder."""
    try:
        return parse_config(Claim, json.loads((folder / CLAIM_FILE).read_text("utf-8")), str(folder / CLAIM_FILE))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: expected a folder that `marstts mine` wrote, but {error}") from error


def write_lines(lines: Sequence[Config], path: Path) -> None:
    """One line each, under a temporary name until complete."""
    write_atomically(path, "".join(f"{line.model_dump_json()}\n" for line in lines).encode())
