"""The people whom models are judged on: no training of any part may use them.

Upstream: `test_people.tsv`, in this folder.  Downstream: the readers of corpora, which give them the split `test`, and
everything that reads recordings, shards, takes or pairs to train on, which refuses them in any other split.

A person has one name in all corpora: readers of LibriVox have the same number in LibriSpeech, LibriTTS and LibriHeavy.
Persons are found by the speaker of an utterance, and by names of recordings as these corpora have them, so that a
folder of copied files is found, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from pathlib import Path, PurePath

from marstts.errors import DataError
from marstts.io.reading import printable_name, read_text

TABLE = Path(str(files("marstts_lab"))) / "data" / "test_people.tsv"
"""Columns: person, corpus, status (`test`, or `heard` for those who were trained on and judge nothing), note."""

TABLE_VARIABLE = "MARSTTS_TEST_PEOPLE"
"""Environment variable: a table of your own test people, instead of this one."""

COLUMNS = ("person", "corpus", "status", "note")
TEST, HEARD = "test", "heard"

SPEAKERS = (
    (re.compile(r"(?:libri|librispeech|libritts|libriheavy|librilight|librivox)[-_](\d+)", re.IGNORECASE), "libri-{}"),
    (re.compile(r"vctk[-_](p\d+)", re.IGNORECASE), "vctk-{}"),
    (re.compile(r"ljspeech(?:[-_]lj)?()", re.IGNORECASE), "ljspeech{}"),
)
"""Labels of speakers as the readers of corpora write them, and the person's name."""

RECORDINGS = (
    (re.compile(r"(\d{1,5})-\d{3,6}-\d{4}"), "libri-{}"),  # LibriSpeech: reader, chapter, utterance
    (re.compile(r"(\d{1,5})_\d{3,6}_\d{6}_\d{6}"), "libri-{}"),  # LibriTTS
    (re.compile(r"(p\d{3})_\d{3}(?:_mic\d)?"), "vctk-{}"),
    (re.compile(r"LJ\d{3}-\d{4}(?:_24k)?()"), "ljspeech{}"),
    (re.compile(r"sense-\d{4}()"), "librivox-sense{}"),
)
"""Names of recordings, and the person's name."""

MAX_TABLE_BYTES = 2**24
MAX_NAMES = 6
"""People whom a message names; the others are counted."""


def judged_people() -> frozenset[str]:
    """Names of the people who are judged on; DataError for a table that is none."""
    return frozenset(person for person, status in people_of(table_path()).items() if status == TEST)


def table_path() -> Path:
    """The table of this package, or the user's."""
    return Path(os.environ.get(TABLE_VARIABLE) or TABLE)


@lru_cache(maxsize=4)
def people_of(path: Path) -> dict[str, str]:
    """The status of each person in a table."""
    header, *lines = read_text(path, MAX_TABLE_BYTES, DataError).splitlines() or [""]
    rows = [line.split("\t") for line in lines]
    if tuple(header.split("\t")) != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
        raise DataError(f"{printable_name(path)}: expected the columns {', '.join(COLUMNS)}, separated by tabs")
    if wrong := next((row for row in rows if row[2] not in (TEST, HEARD)), None):
        raise DataError(f"{printable_name(path)}: {printable_name(wrong[0])}: expected the status {TEST} or {HEARD}")
    return {row[0]: row[2] for row in rows}


def persons_of(speaker: str, *recordings: str) -> set[str]:
    """The names that a speaker, or a recording (id or path), is known by; empty for people of no such corpus."""
    found = {person.format(match[1].lower()) for label, person in SPEAKERS if (match := label.fullmatch(speaker))}
    for recording in recordings:
        stem = PurePath(recording).stem
        found |= {person.format(match[1].lower()) for name, person in RECORDINGS if (match := name.fullmatch(stem))}
    return found | {speaker}


def split_for(speaker: str, split: str) -> str:
    """The split of a speaker in a corpus: `test` for test people; for those who were heard before, never `test`."""
    status = {people_of(table_path()).get(person) for person in persons_of(speaker)}
    if TEST in status:
        return "test"
    return "train" if HEARD in status and split == "test" else split


def refuse_test_people(used: Iterable[tuple[str, tuple[str, ...]]], source: str) -> None:
    """DataError, with their names, where test people are among what a training uses.

    `used` has the speaker of everything that is used, and its id, path or other names.
    """
    kept = judged_people()
    found: dict[str, int] = {}
    for speaker, recordings in used:
        for person in persons_of(speaker, *recordings) & kept:
            found[person] = found.get(person, 0) + 1
    if found:
        names = ", ".join([*sorted(found)[:MAX_NAMES], *(["…"] if len(found) > MAX_NAMES else [])])
        raise DataError(
            f"{source}: {sum(found.values())} utterances are of people whom models are judged on ({names}), so no "
            "training may use them; leave them out, or give them the split `test`"
        )
