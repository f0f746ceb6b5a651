"""Annotations of a corpus: one JSON line per recording, computed once and written next to the manifest.

Upstream: a manifest, and a function that annotates one recording.  Downstream: the trainer of the
codec, which reads `f0.jsonl`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from marstts import audio
from marstts.data.manifest import Utterance, read_manifest
from marstts.data.workers import Processes, Progress, run_in_order
from marstts.errors import AudioError, DataError
from marstts.io.jsonl import Torn, open_appender, scan_rows
from marstts.metrics.prosody import track_f0

logger = logging.getLogger(__name__)

Annotate = Callable[[Path, Utterance], Any]
"""Annotates an utterance of the corpus in a folder; None where that is impossible."""


class AnnotatedId(BaseModel):
    """The part of an annotation that identifies its recording."""

    id: str


def annotate_corpus(
    manifest: Path, output: Path, name: str, annotate: Annotate, *, hours: float = 0.0, workers: int = 1
) -> None:
    """Append to `output`, under the key `name`, the missing annotations of training and validation recordings.

    Lines are in manifest order. `hours` bounds how much audio the file covers, 0 = all of it; `annotate` must be
    importable by other processes. An interrupted call may be repeated. Raises DataError where `output` is malformed.
    """
    known = annotated_ids(output)
    chosen = first_hours(hours, [u for u in read_manifest(manifest) if u.split != "test"])
    missing = [utterance for utterance in chosen if utterance.id not in known]
    failed = 0
    annotate_one = partial(_annotate_one, annotate, manifest.parent)
    with open_appender(output) as append:
        progress = Progress(logger, "recordings", len(missing))
        annotations = run_in_order(Processes(workers), missing, _load_nothing, annotate_one)
        for utterance, annotation in zip(missing, annotations, strict=True):
            if annotation is None:
                failed += 1
            else:
                append({"id": utterance.id, name: annotation})
            progress.advance()
    logger.info("%s: %s of %d more recordings; %d could not be annotated", output, name, len(missing) - failed, failed)


def annotated_ids(path: Path) -> set[str]:
    """Ids of the recordings in a file of annotations; DataError where a line is malformed."""
    if not path.exists():
        return set()
    found = set()
    for line in scan_rows(AnnotatedId, path, torn=Torn.DROP):
        if line.row is None:
            raise DataError(f"{path}:{line.number}: {line.problem}; remove the line, or the file")
        found.add(line.row.id)
    return found


def first_hours(hours: float, utterances: list[Utterance]) -> list[Utterance]:
    """The first `hours` of the utterances; all where `hours` is 0."""
    kept, seconds = [], 0.0
    for utterance in utterances:
        if hours and seconds >= hours * 3600:
            break
        kept.append(utterance)
        seconds += utterance.seconds
    return kept


def _annotate_one(annotate: Annotate, folder: Path, utterance: Utterance, loaded: None) -> Any:
    return annotate(folder, utterance)


def _load_nothing() -> None:
    return None


# F0 contours of a corpus: `f0.jsonl`, a training target of the codec's decoder.
# WORLD's DIO and StoneMask, as in `metrics.prosody`. Recordings without any F0, such as whispers, have zeros.


def extract_corpus_f0(manifest: Path, output: Path, *, hours: float = 0.0, workers: int = 1) -> None:
    """Append the missing contours to `output`; `hours` and `workers` as for `annotate_corpus`."""
    annotate_corpus(manifest, output, "f0", extract_f0, hours=hours, workers=workers)


def extract_f0(folder: Path, utterance: Utterance) -> list[float] | None:
    """F0 in Hz at 0, 10, 20, ... ms, 0 where unvoiced; None for a recording that cannot be read."""
    try:
        waveform = audio.read(folder / utterance.audio)
    except AudioError:
        return None
    f0 = track_f0(waveform.samples, waveform.sample_rate)
    return [round(hertz, 1) for hertz in np.asarray(f0).tolist()]
