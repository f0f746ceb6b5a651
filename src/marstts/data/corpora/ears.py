"""EARS: 107 people in an anechoic room, reading in seven styles and with twenty-two emotions.

Upstream: the release's folders `p001` … `p107` with `transcripts.json` beside them.  Downstream: `gather`.
lhotse's recipe is not used: it looks transcripts up by the first word of a file's name and finds none, and it wants all
107 speakers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from marstts.data.corpora.gather import Found, Kind, Refused
from marstts.errors import DataError

PERSON = re.compile(r"p(\d{3})")
STYLES = {"highpitch": "high", "lowpitch": "low"}
"""Where the manifest's word for a style is another one."""

LAST_TRAINING_SPEAKER, LAST_VALIDATION_SPEAKER = 99, 101
"""As in the speech-enhancement benchmark of its makers; the rest are for tests."""

LICENCE = "CC BY-NC 4.0 (EARS)"


def ears(root: Path) -> Iterator[Found | Refused]:
    """`p001/rainbow_01_regular.wav`, with the words under `rainbow_01_regular` in transcripts.json.

    Recordings without words there (free speech, interjections, sounds) are left out.
    """
    table = root / "transcripts.json"
    if not table.is_file():
        raise DataError(f"{table}: no such file; it belongs to EARS, beside the speakers' folders")
    try:
        transcripts = json.loads(table.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{table}: expected a JSON object of transcripts, but {error}") from error
    people = sorted(path for path in root.iterdir() if PERSON.fullmatch(path.name))
    if not people:
        raise DataError(f"{root}: expected EARS's folders p001 to p107 in this folder")
    for person in people:
        for path in sorted(person.glob("*.wav")):
            name = f"ears-{person.name}-{path.stem}"
            if path.stem not in transcripts:
                yield Refused(id=name, reason="EARS has no transcript of it", kind=Kind.CHOICE)
                continue
            yield Found(
                id=name, audio=path, text=transcripts[path.stem], speaker=f"ears-{person.name}",
                split=split_of(person.name), licence=LICENCE, style=style_of(path.stem),
            )  # fmt: skip


def split_of(person: str) -> str:
    """By the speaker's number."""
    number = int(person[1:])
    if number > LAST_VALIDATION_SPEAKER:
        return "test"
    return "validation" if number > LAST_TRAINING_SPEAKER else "train"


def style_of(name: str) -> str:
    """`rainbow_01_highpitch` is high, `emo_anger_sentences` is anger."""
    words = name.split("_")
    if words[0] == "emo":
        return words[1]
    return STYLES.get(words[-1], words[-1])
