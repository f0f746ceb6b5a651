"""What training wants to know of every recording of a corpus, found out once: a JSON line each, beside the manifest.

Upstream: a manifest, and a function that listens to one recording.  Downstream: `timelines` (phones) and `melody`
(pitch), whose files the trainer of the codec reads.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from marstts.data.manifest import Utterance, read_manifest

Find = Callable[[Path, Utterance], Any]
"""Listens to an utterance of the corpus in a folder; None where there is nothing to be found."""


def annotate(
    manifest: Path,
    output: Path,
    name: str,
    find: Find,
    *,
    hours: float = 0.0,
    workers: int = 1,
    say: Callable[[str], None] = print,
) -> None:
    """Append to `output`, under `name`, what it lacks of the training and validation recordings, in manifest order.

    `hours` bounds how much audio the file covers, 0 = all of it; `find` must be importable by other processes. An
    interrupted call may be repeated.
    """
    known = {json.loads(line)["id"] for line in output.open(encoding="utf-8")} if output.exists() else set()
    wanted = within(hours, [u for u in read_manifest(manifest) if u.split != "test"])
    waiting = [utterance for utterance in wanted if utterance.id not in known]
    failed = 0
    find_one = partial(find, manifest.parent)
    with multiprocessing.get_context("spawn").Pool(workers) as pool, output.open("a", encoding="utf-8") as lines:
        findings = map(find_one, waiting) if workers == 1 else pool.imap(find_one, waiting, chunksize=16)
        for utterance, found in zip(waiting, findings, strict=True):
            if found is None:
                failed += 1
                continue
            lines.write(json.dumps({"id": utterance.id, name: found}) + "\n")
    say(f"{output}: {name} of {len(waiting) - failed} more recordings; in {failed} none could be found")


def within(hours: float, utterances: list[Utterance]) -> list[Utterance]:
    """The first so many hours of them; all where `hours` is 0."""
    kept, seconds = [], 0.0
    for utterance in utterances:
        if hours and seconds >= hours * 3600:
            break
        kept.append(utterance)
        seconds += utterance.seconds
    return kept
