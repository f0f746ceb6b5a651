"""Word times as files: JSON, subtitles (SubRip, WebVTT) and Praat's TextGrid.

Upstream: `word_times`.  Downstream: `Speech.save_words`, `marstts speak --words`.
Formats: SubRip as VLC and ffmpeg read it; WebVTT (W3C); TextGrid, "Praat: doing phonetics by computer", long format.
Subtitles show a few words at a time, and a line ends with a sentence; JSON and TextGrid hold every word.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from marstts.errors import ConfigError
from marstts.io.files import write_file
from marstts.io.reading import printable_name
from marstts.synthesis.words.word_times import Word

CAPTION_SUFFIXES = (".json", ".srt", ".vtt", ".TextGrid")

MAX_CUE_CHARACTERS = 42
"""A line of subtitles, as broadcasters recommend."""

MAX_CUE_SECONDS = 5.0

MIN_SENTENCE_GAP_SECONDS = 0.15
"""A stop without a pause after it is an abbreviation's."""

PARAGRAPH_GAP_SECONDS = 0.6
"""A pause after which a line ends whatever its last mark is: a heading has none."""


def check_captions(path: Path | str) -> None:
    """Raise ConfigError unless `path` names a format and lies in a folder that exists."""
    path = Path(path)
    if _suffix(path) is None:
        raise ConfigError(f"{printable_name(path)}: expected a name ending in {' or '.join(CAPTION_SUFFIXES)}")
    if not os.path.isdir(path.parent):
        raise ConfigError(f"{printable_name(path)}: there is no folder {printable_name(path.parent)} to write to")


def write_captions(words: Sequence[Word], path: Path | str, *, seconds: float) -> None:
    """Write the words of `seconds` of audio in the format of the file's suffix."""
    check_captions(path)
    suffix = _suffix(Path(path))
    if suffix == ".json":
        content = json.dumps([asdict(word) for word in words], ensure_ascii=False, indent=1) + "\n"
    elif suffix == ".srt":
        content = format_srt(words)
    elif suffix == ".vtt":
        content = format_vtt(words)
    else:
        content = format_textgrid(words, seconds)
    write_file(path, content, ConfigError)


def cues(words: Sequence[Word]) -> list[list[Word]]:
    """Words in groups that are shown together; a group ends with a sentence, or where a line is full."""
    groups: list[list[Word]] = []
    for word in words:
        line = " ".join(shown.written for shown in groups[-1]) if groups else ""
        is_full = len(line) + 1 + len(word.written) > MAX_CUE_CHARACTERS
        gap = word.start - groups[-1][-1].end if groups else 0.0
        is_new_sentence = gap >= (MIN_SENTENCE_GAP_SECONDS if _ends(line) else PARAGRAPH_GAP_SECONDS)
        if not groups or is_full or is_new_sentence or word.end - groups[-1][0].start > MAX_CUE_SECONDS:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def format_srt(words: Sequence[Word]) -> str:
    """SubRip: numbered cues."""
    return "\n".join(
        f"{number}\n{_clock(cue[0].start, ',')} --> {_clock(cue[-1].end, ',')}\n{_line(cue)}\n"
        for number, cue in enumerate(cues(words), 1)
    )


def format_vtt(words: Sequence[Word]) -> str:
    """WebVTT; the words within a cue carry time stamps, for karaoke."""
    parts = ["WEBVTT\n"]
    for cue in cues(words):
        first, *rest = cue
        text = _escaped(first.written) + "".join(f" <{_clock(word.start)}>{_escaped(word.written)}" for word in rest)
        parts.append(f"{_clock(first.start)} --> {_clock(cue[-1].end)}\n{text}\n")
    return "\n".join(parts)


def format_textgrid(words: Sequence[Word], seconds: float) -> str:
    """TextGrid with one tier of words; what lies between them is an empty interval."""
    intervals: list[tuple[float, float, str]] = []
    before = 0.0
    for word in words:
        start, end = max(before, word.start), min(word.end, seconds)
        if end <= start:
            continue
        if start > before:
            intervals.append((before, start, ""))
        intervals.append((start, end, word.written))
        before = end
    if before < seconds:
        intervals.append((before, seconds, ""))
    head = (
        'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
        f"xmin = 0\nxmax = {seconds:.6f}\ntiers? <exists>\nsize = 1\nitem []:\n    item [1]:\n"
        f'        class = "IntervalTier"\n        name = "words"\n        xmin = 0\n        xmax = {seconds:.6f}\n'
        f"        intervals: size = {len(intervals)}\n"
    )
    return head + "".join(
        f"        intervals [{number}]:\n            xmin = {start:.6f}\n            xmax = {end:.6f}\n"
        f"            text = {_quoted(text)}\n"
        for number, (start, end, text) in enumerate(intervals, 1)
    )


def _suffix(path: Path) -> str | None:
    """The known suffix of a path, whatever its capitals."""
    return next((suffix for suffix in CAPTION_SUFFIXES if suffix.lower() == path.suffix.lower()), None)


def _ends(line: str) -> bool:
    """Return True where a line may be the end of a sentence."""
    return line.rstrip("\"'\u201d\u2019)] ").endswith((".", "!", "?"))


def _line(cue: Sequence[Word]) -> str:
    return " ".join(word.written for word in cue)


def _clock(seconds: float, point: str = ".") -> str:
    """Hours, minutes, seconds and milliseconds: 00:01:02.345."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}{point}{rest % 1000:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
