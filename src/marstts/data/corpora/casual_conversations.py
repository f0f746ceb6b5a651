"""Casual Conversations v2: people on video in seven countries, reading and speaking freely.

Upstream: the audio of the videos, extracted with ffmpeg, and your transcripts, since the corpus has none.
Downstream: `build_manifest`.
Deviations: the paper does not state how it transcribed this corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from marstts.data.corpora.build_manifest import RawUtterance, RejectedItem, RejectKind, held_out
from marstts.errors import DataError
from marstts.io.reading import parse_object, read_text

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus")
TRANSCRIPTS = "transcripts.jsonl"

NAME = re.compile(r"(?P<subject>\d+)_(?P<language>[a-z]+)_(?P<manner>scripted|nonscripted)_+(?P<number>\d+)")
"""5230_english_nonscripted_3.mp4: a person, a language, a manner, a number."""

STYLES = {"scripted": "regular", "nonscripted": "spontaneous"}
LICENSE = "Casual Conversations v2 license agreement (Meta)"

MAX_TABLE_BYTES = 2**30


def casual_conversations(root: Path) -> Iterator[RawUtterance | RejectedItem]:
    """Every line of `transcripts.jsonl` in `root`; audio files named like the videos lie anywhere below it.

    A line of that file is one utterance: `file` (the video's name without suffix), `start` and `seconds` in it, `text`.
    """
    table = root / TRANSCRIPTS
    if not table.is_file():
        raise DataError(
            f"{table}: no such file. Casual Conversations has no transcripts: transcribe the speech, and write a line "
            'per utterance: {"file": "5230_english_nonscripted_3", "start": 0.0, "seconds": 6.2, "text": "…"}'
        )
    files = {path.stem: path for path in sorted(root.rglob("*")) if path.suffix.lower() in SUFFIXES}
    used = set()
    for number, line in enumerate(read_text(table, MAX_TABLE_BYTES, DataError).splitlines(), start=1):
        if not line.strip():
            continue
        found = read_line(line, number, files)
        used.add(found.audio.stem if isinstance(found, RawUtterance) and isinstance(found.audio, Path) else "")
        yield found
    for name in files.keys() - used:
        yield RejectedItem(id=name, reason=f"{TRANSCRIPTS} has no transcript of it", kind=RejectKind.FILTERED)


def read_line(line: str, number: int, files: dict[str, Path]) -> RawUtterance | RejectedItem:
    """One utterance."""
    try:
        row = parse_object(line, "the line", DataError)
        name, start, seconds, text = str(row["file"]), float(row["start"]), float(row["seconds"]), str(row["text"])
    except (DataError, ValueError, KeyError, TypeError, OverflowError) as error:
        return RejectedItem(id=f"{TRANSCRIPTS}:{number}", reason=f"not an utterance: {type(error).__name__}: {error}")
    found = NAME.fullmatch(name)
    if not found:
        return RejectedItem(id=name, text=text, reason="not named like a video of Casual Conversations v2")
    if name not in files:
        return RejectedItem(id=f"{name}-{start:09.3f}", text=text, reason=f"{name}: no such audio file")
    language = found["language"]
    return RawUtterance(
        id=f"ccv2-{name}-{start:09.3f}", audio=files[name], text=text, speaker=f"ccv2-{found['subject']}",
        split=held_out(text), license=LICENSE, style=STYLES[found["manner"]], start=start, seconds=seconds,
        language="en" if language == "english" else language,
    )  # fmt: skip
