"""Casual Conversations v2: people before their cameras in seven countries, reading and speaking freely.

Upstream: the videos' sound, taken out with ffmpeg, and transcripts of one's own, for the corpus has none.
Downstream: `gather`.
Deviations: how MARS6's authors came by their transcripts is not stated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from marstts.data.corpora.gather import Found, Kind, Refused, held_out
from marstts.errors import DataError

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus")
TRANSCRIPTS = "transcripts.jsonl"

NAME = re.compile(r"(?P<subject>\d+)_(?P<language>[a-z]+)_(?P<manner>scripted|nonscripted)_+(?P<number>\d+)")
"""5230_english_nonscripted_3.mp4: a person, a language, a manner, a number."""

STYLES = {"scripted": "regular", "nonscripted": "spontaneous"}
LICENCE = "Casual Conversations v2 licence agreement (Meta)"


def casual_conversations(root: Path) -> Iterator[Found | Refused]:
    """Sound files named like the videos, anywhere below `root`, and `transcripts.jsonl` in it.

    A line of that file is one utterance: `file` (the video's name without suffix), `start` and `seconds` in it, `text`.
    """
    table = root / TRANSCRIPTS
    if not table.is_file():
        raise DataError(
            f"{table}: no such file. Casual Conversations has no transcripts: recognise the speech, and write one line "
            'per utterance: {"file": "5230_english_nonscripted_3", "start": 0.0, "seconds": 6.2, "text": "…"}'
        )
    files = {path.stem: path for path in sorted(root.rglob("*")) if path.suffix.lower() in SUFFIXES}
    used = set()
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        found = read_line(line, number, files)
        used.add(found.audio.stem if isinstance(found, Found) and isinstance(found.audio, Path) else "")
        yield found
    for name in files.keys() - used:
        yield Refused(id=name, reason=f"{TRANSCRIPTS} has no words for it", kind=Kind.CHOICE)


def read_line(line: str, number: int, files: dict[str, Path]) -> Found | Refused:
    """One utterance."""
    try:
        row = json.loads(line)
        name, start, seconds, text = row["file"], float(row["start"]), float(row["seconds"]), str(row["text"])
    except (ValueError, KeyError, TypeError) as error:
        return Refused(id=f"{TRANSCRIPTS}:{number}", reason=f"not an utterance: {type(error).__name__}: {error}")
    found = NAME.fullmatch(name)
    if not found:
        return Refused(id=name, text=text, reason="not named like a video of Casual Conversations v2")
    if name not in files:
        return Refused(id=f"{name}-{start:09.3f}", text=text, reason=f"{name}: no such audio file")
    language = found["language"]
    return Found(
        id=f"ccv2-{name}-{start:09.3f}", audio=files[name], text=text, speaker=f"ccv2-{found['subject']}",
        split=held_out(text), licence=LICENCE, style=STYLES[found["manner"]], start=start, seconds=seconds,
        language="en" if language == "english" else language,
    )  # fmt: skip
