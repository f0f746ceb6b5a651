"""LibriHeavy: 50,000 hours of audiobooks with cased and punctuated text; parts of the long files of Libri-Light.

Upstream: `libriheavy_cuts_*.jsonl.gz` (lines in the format of lhotse's cuts) and Libri-Light's FLAC files, to which the
cuts refer as `download/librilight/…`.  Downstream: `gather`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marstts.data.corpora.gather import Found, Refused
from marstts.errors import DataError

PATTERN = "libriheavy_cuts_*.jsonl.gz"
AUDIO_FOLDER = "download/librilight/"
"""How every path in the cuts begins."""

SPLITS = {"small": "train", "medium": "train", "large": "train", "dev": "validation"}
LICENCE = "public domain (LibriVox recordings of Libri-Light; text of LibriHeavy)"


def libriheavy(root: Path) -> Iterator[Found | Refused]:
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
                for number, line in enumerate(lines, start=1):
                    yield read_cut(line, root, split, f"{path.name}:{number}")
        except (OSError, EOFError, UnicodeDecodeError) as error:
            yield Refused(id=path.name, reason=f"{path}: damaged or cut short: {error}")


def read_cut(line: str, root: Path, split: str, place: str) -> Found | Refused:
    """One line of a list."""
    try:
        cut = json.loads(line)
        (supervision,) = cut["supervisions"]
        (source,) = cut["recording"]["sources"]
        return Found(
            id=cut["id"], audio=find(root, source["source"]), text=text_of(supervision),
            speaker=f"librivox-{supervision['speaker']}", split=split, licence=LICENCE, start=float(cut["start"]),
            seconds=float(cut["duration"]), language=language_of(supervision),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        return Refused(id=place, reason=f"not a cut of LibriHeavy: {type(error).__name__}: {error}")


def text_of(supervision: dict[str, Any]) -> str:
    """The book's own words."""
    texts = (supervision.get("custom") or {}).get("texts")
    return texts[0] if texts else supervision["text"]


def language_of(supervision: dict[str, Any]) -> str:
    """Two letters for English, the only language there should be."""
    language = supervision.get("language") or "English"
    return "en" if language == "English" else language


def find(root: Path, source: str) -> Path:
    """The file of a path in the list, whichever way it was downloaded."""
    place = root / source
    return place if place.exists() else root / source.removeprefix(AUDIO_FOLDER)
