"""LibriHeavy: 50,000 hours of audiobooks with cased and punctuated text; segments of the long files of Libri-Light.

Upstream: `libriheavy_cuts_*.jsonl.gz` (lines in the format of lhotse's cuts) and Libri-Light's FLAC files, to which the
cuts refer as `download/librilight/…`.  Downstream: `build_manifest`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from marstts.errors import DataError
from marstts.io.reading import parse_object
from marstts_lab.data.corpora.build_manifest import RawUtterance, RejectedItem, is_file
from marstts_lab.data.held_out_people import split_for

PATTERN = "libriheavy_cuts_*.jsonl.gz"
AUDIO_FOLDER = "download/librilight/"
"""Beginning of every path in the cuts."""

MAX_LINE_CHARACTERS = 2**22
"""Longest line of a list; the rest of a longer one is read as other lines, which are rejected."""

SPLITS = {"small": "train", "medium": "train", "large": "train", "dev": "validation"}
LICENSE = "public domain (LibriVox recordings of Libri-Light; text of LibriHeavy)"


def libriheavy(root: Path) -> Iterator[RawUtterance | RejectedItem]:
    """Every cut of every list in `root`; the audio lies there as `download/librilight/…`, or as `small/`, `medium/`, ….

    The lists may be the full ones (the book's text is the first of `texts`) or those extracted for recognition
    (`text`).
    """
    lists = sorted(root.glob(PATTERN))
    if not lists:
        raise DataError(
            f"{root}: expected LibriHeavy's lists, libriheavy_cuts_small.jsonl.gz and so on, in this folder"
        )
    for path in lists:
        subset = path.name.removeprefix("libriheavy_cuts_").removesuffix(".jsonl.gz")
        split = SPLITS.get(subset, "test")
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for number, line in enumerate(iter(partial(lines.readline, MAX_LINE_CHARACTERS), ""), start=1):
                    yield read_cut(line, root, split, f"{path.name}:{number}")
        except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
            yield RejectedItem(id=path.name, reason=f"{path}: corrupt or truncated: {error}")


def read_cut(line: str, root: Path, split: str, place: str) -> RawUtterance | RejectedItem:
    """One line of a list."""
    try:
        cut = parse_object(line, "the line", DataError)
        (supervision,) = cut["supervisions"]
        (source,) = cut["recording"]["sources"]
        speaker = f"librivox-{supervision['speaker']}"
        return RawUtterance(
            id=str(cut["id"]), audio=find(root, source["source"]), text=text_of(supervision),
            speaker=speaker, split=split_for(speaker, split), license=LICENSE, start=float(cut["start"]),
            seconds=float(cut["duration"]), language=language_of(supervision),
        )  # fmt: skip
    except (DataError, ValueError, KeyError, TypeError, OverflowError) as error:
        return RejectedItem(id=place, reason=f"not a cut of LibriHeavy: {type(error).__name__}: {error}")


def text_of(supervision: dict[str, Any]) -> str:
    """The text of the book."""
    texts = (supervision.get("custom") or {}).get("texts")
    return str(texts[0] if texts else supervision["text"])


def language_of(supervision: dict[str, Any]) -> str:
    """The two-letter code of English, the only language there should be, or the label."""
    language = supervision.get("language") or "English"
    return "en" if language == "English" else language


def find(root: Path, source: str) -> Path:
    """The audio file of a path in the list, in either layout of the download."""
    path = root / source
    return path if is_file(path) else root / source.removeprefix(AUDIO_FOLDER)
