"""Preference pairs of recordings and of their copies whose pitch rises at the end (`raised_ends.py`): marks decide.

Usage: python recipes/mini/raised_pairs.py MODEL OUTPUT --raised SHARDS [SHARDS ...] --recordings SHARDS [SHARDS ...]

MODEL: the bundle whose codec and encoders made the shards.  OUTPUT: a file of pairs for `questions.py`.
Of a copy, four pairs: with a mark of a rise and a question mark the copy is chosen, which counts twice; with a mark of
a fall and a question mark, and with a full stop, the recording is. The sides are the last 0.8 s; what comes before is
their prefix.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from marstts.bundle import load_bundle
from marstts.codec.base import Codes
from marstts.mars6.config import IDENTITY, STYLE
from marstts.text.phones import FALLING, RISING
from marstts_lab.data.manifest import Utterance
from marstts_lab.data.pairs import Pair, PairLine, SideLine, write_pairs
from marstts_lab.data.shards import read_shard

END_SECONDS = 0.8
MOST_DIFFERENT = 1
"""Patches by which a copy and its recording may differ in length."""


def read_codes(folders: Sequence[Path], layout: Sequence[int]) -> Iterator[tuple[Utterance, Codes, dict]]:
    """Utterances of shards with codes and embeddings."""
    for path in sorted(path for folder in folders for path in folder.glob("shard-*.safetensors")):
        shard = read_shard(path)
        for row, utterance in enumerate(shard.info.utterances):
            start, end = int(shard.offsets[row]), int(shard.offsets[row + 1])
            codes = tuple(
                level[start * n : end * n].astype(np.int64) for level, n in zip(shard.codes, layout, strict=True)
            )
            embeddings = shard.embeddings_of([row])
            yield utterance, codes, {role: embeddings[role][0] for role in (IDENTITY, STYLE)}


def pairs_of(
    copy: Utterance,
    raised: Codes,
    recording: Codes,
    embeddings: dict,
    codec: str,
    encoders: dict,
    layout: Sequence[int],
    end_patches: int,
) -> Iterator[Pair]:
    """The four pairs of a copy; none of a text of one word."""
    words = copy.text.replace(RISING, "").rstrip("?")
    begun, _, last = words.rpartition(" ")
    cut = max(min(len(raised[0]), len(recording[0])) - end_patches, 1)

    def part(codes: Codes, start: int, end: int | None) -> Codes:
        return tuple(
            level[start * n : None if end is None else end * n] for level, n in zip(codes, layout, strict=True)
        )

    up, down = part(raised, cut, None), part(recording, cut, None)
    for name, ending, chosen, rejected in (
        ("rise", f"{RISING}?", up, down), ("rise again", f"{RISING}?", up, down),
        ("fall", f"{FALLING}?", down, up), ("stop", ".", down, up),
    ):  # fmt: skip
        if begun:
            sides = [SideLine(source="recording", patches=len(one[0]), has_eos=True) for one in (chosen, rejected)]
            line = PairLine(
                id=f"{name} {copy.id}", scheme="raised", text=last + ending, transcript=begun, speaker=copy.speaker,
                codec=codec, encoders=encoders, row=0, chosen=sides[0], rejected=sides[1],
            )  # fmt: skip
            yield Pair(line, embeddings, part(recording, 0, cut), chosen, rejected)


def main() -> None:
    """Read the command line and write the pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("output", type=Path)
    parser.add_argument("--raised", type=Path, nargs="+", required=True)
    parser.add_argument("--recordings", type=Path, nargs="+", required=True)
    found = parser.parse_args()
    bundle = load_bundle(found.model)
    spec, layout = bundle.codec.spec, bundle.codec.spec.patch_layout
    encoders = {role: bundle.encoders[role].name for role in (IDENTITY, STYLE)}
    recordings = {one.id: codes for one, codes, _ in read_codes(found.recordings, layout) if one.split == "train"}
    pairs: list[Pair] = []
    for copy, codes, embeddings in read_codes(found.raised, layout):
        recording = recordings.get(copy.id.removeprefix("up-").removesuffix("~u").removesuffix("-up"))
        if RISING in copy.text and recording is not None and abs(len(codes[0]) - len(recording[0])) <= MOST_DIFFERENT:
            end_patches = round(END_SECONDS * spec.patch_rate)
            pairs += pairs_of(copy, codes, recording, embeddings, spec.name, encoders, layout, end_patches)
    write_pairs(pairs, found.output, layout)
    print(f"{found.output}: {len(pairs)} pairs")


if __name__ == "__main__":
    main()
