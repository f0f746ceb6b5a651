"""A folder of recordings of many speakers with one table: `utterances.tsv`.

Columns (any order, tab-separated, no quoting): path, corpus, speaker, seconds, sample_rate, license, transcript; others
are ignored. The license column may have the British spelling.

Upstream: such a folder.  Downstream: `build_manifest`.
Speakers are assigned to splits by a hash of their name, so every speaker is in exactly one split, the same one in every
run and for every subset of the corpora.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from marstts.errors import DataError
from marstts.io.hash_order import hash_number
from marstts.io.reading import read_text
from marstts_lab.data.corpora.build_manifest import RawUtterance, RejectedItem, RejectKind
from marstts_lab.data.held_out_people import split_for

TABLE = "utterances.tsv"
COLUMNS = ("path", "corpus", "speaker", "sample_rate", "license", "transcript")

EITHER_SPELLING = re.compile("licen[cs]e")

SHARED_NUMBERS = {"librispeech": "libri", "libritts": "libri"}
"""Corpora that share their speaker numbers: the same number is the same person."""

TEST_PERCENT, VALIDATION_PERCENT = 10, 4
"""Percentages of the speakers held out."""

MAX_TABLE_BYTES = 2**28

FIRST_PERSON = re.compile(r"\bi\b")


def people_table(root: Path, excluded: Collection[str] = ()) -> Iterator[RawUtterance | RejectedItem]:
    """Yield every row of `root/utterances.tsv` in file order, without those of the `excluded` corpora.

    DataError for a missing or malformed table, and for an excluded corpus that does not occur.
    """
    rows = read_table(root / TABLE)
    unknown = sorted(set(excluded) - {row["corpus"] for row in rows})
    if unknown:
        found = ", ".join(sorted({row["corpus"] for row in rows}))
        raise DataError(f"{root / TABLE}: no corpus {', '.join(unknown)} to leave out; it has {found}")
    for row in rows:
        if row["corpus"] not in excluded:
            yield recording(root, row)


def read_table(path: Path) -> list[dict[str, str]]:
    """Read the table's rows as dictionaries by column name; DataError names the line that does not fit."""
    header, *lines = read_text(path, MAX_TABLE_BYTES, DataError).splitlines() or [""]
    names = [EITHER_SPELLING.sub("license", name) for name in header.split("\t")]
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise DataError(f"{path}: expected the columns {', '.join(COLUMNS)}; missing: {', '.join(missing)}")
    rows = []
    for number, line in enumerate(lines, start=2):
        cells = line.split("\t")
        if len(cells) != len(names):
            raise DataError(f"{path}:{number}: expected {len(names)} fields separated by tabs, got {len(cells)}")
        rows.append(dict(zip(names, cells, strict=True)))
        if not rows[-1]["sample_rate"].isdigit():
            raise DataError(f"{path}:{number}: expected a sample rate in Hz, got {rows[-1]['sample_rate']!r}")
    return rows


def recording(root: Path, row: dict[str, str]) -> RawUtterance | RejectedItem:
    """Make an utterance of one row; one without a transcript is a filtered reject."""
    corpus, path = row["corpus"], Path(row["path"])
    id = f"{corpus}-{row['speaker']}-{path.stem}"
    if not row["transcript"].strip():
        return RejectedItem(id=id, reason="the table has no transcript of it", kind=RejectKind.FILTERED)
    speaker = f"{SHARED_NUMBERS.get(corpus, corpus)}-{row['speaker']}"
    return RawUtterance(
        id=id, audio=root / path, text=readable(row["transcript"]), speaker=speaker, split=split_of(speaker),
        license=row["license"], source_rate=int(row["sample_rate"]),
    )  # fmt: skip


def split_of(speaker: str) -> str:
    """Assign a speaker to train, validation or test by a hash of the name; test people are always for tests, and people
    who were trained on before never (`held_out_people`)."""
    number = hash_number(speaker) % 100
    if number < TEST_PERCENT:
        return split_for(speaker, "test")
    return split_for(speaker, "validation" if number < TEST_PERCENT + VALIDATION_PERCENT else "train")


def readable(transcript: str) -> str:
    """Turn a transcript in capitals into sentence case; others, and a single capital letter, stay as they are.

    No punctuation is invented: the recordings may begin and end within a sentence.
    """
    text = " ".join(transcript.split())
    if any(letter.islower() for letter in text) or sum(letter.isalpha() for letter in text) < 2:
        return text
    lowered = FIRST_PERSON.sub("I", text.lower())
    return lowered[:1].upper() + lowered[1:]
