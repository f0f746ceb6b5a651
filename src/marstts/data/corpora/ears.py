"""EARS: 107 people in an anechoic room, reading in seven styles and with twenty-two emotions.

Upstream: the release's folders `p001` … `p107` and `transcripts.json`.  Downstream: `build_manifest`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from marstts.data.corpora.build_manifest import RawUtterance, RejectedItem, RejectKind
from marstts.errors import DataError
from marstts.io.reading import parse_object, read_text

PERSON = re.compile(r"p(\d{3})")
STYLES = {"highpitch": "high", "lowpitch": "low"}
"""The manifest's labels of styles that EARS labels otherwise."""

LAST_TRAINING_SPEAKER, LAST_VALIDATION_SPEAKER = 99, 101
"""The splits of the EARS speech-enhancement benchmark; the other speakers are for tests."""

LICENSE = "CC BY-NC 4.0 (EARS)"

MAX_TABLE_BYTES = 2**28


def ears(root: Path) -> Iterator[RawUtterance | RejectedItem]:
    """Every `p001/rainbow_01_regular.wav`, with its transcript under `rainbow_01_regular` in transcripts.json.

    Recordings without a transcript (free speech, interjections, sounds) are left out.
    """
    table = root / "transcripts.json"
    if not table.is_file():
        raise DataError(f"{table}: no such file; it belongs to EARS, in the folder of the speakers' folders")
    transcripts = parse_object(read_text(table, MAX_TABLE_BYTES, DataError), str(table), DataError)
    people = sorted(path for path in root.iterdir() if PERSON.fullmatch(path.name))
    if not people:
        raise DataError(f"{root}: expected EARS's folders p001 to p107 in this folder")
    for person in people:
        for path in sorted(person.glob("*.wav")):
            name = f"ears-{person.name}-{path.stem}"
            if not isinstance(transcripts.get(path.stem), str):
                yield RejectedItem(id=name, reason="EARS has no transcript of it", kind=RejectKind.FILTERED)
                continue
            yield RawUtterance(
                id=name, audio=path, text=transcripts[path.stem], speaker=f"ears-{person.name}",
                split=split_of(person.name), license=LICENSE, style=style_of(path.stem),
            )  # fmt: skip


def split_of(person: str) -> str:
    """The split of a speaker, by its number."""
    number = int(person[1:])
    if number > LAST_VALIDATION_SPEAKER:
        return "test"
    return "validation" if number > LAST_TRAINING_SPEAKER else "train"


def style_of(name: str) -> str:
    """The style of a recording: `rainbow_01_highpitch` is high, `emo_anger_sentences` is anger."""
    words = name.split("_")
    if words[0] == "emo":
        return words[1]
    return STYLES.get(words[-1], words[-1])
