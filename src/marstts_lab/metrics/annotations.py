"""F0 contours of a corpus: `f0.jsonl`, a training target of the codec's decoder, computed once next to the manifest.

Upstream: a manifest.  Downstream: the trainer of the codec.
One JSON line per recording. F0 is WORLD's, by DIO and StoneMask. Recordings without any F0, such as whispers, have
zeros.
"""

from __future__ import annotations

import logging
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from marstts import audio
from marstts.errors import AudioError, DataError, require
from marstts.io.jsonl import Torn, open_appender, scan_rows
from marstts_lab.data.manifest import Utterance, read_manifest
from marstts_lab.data.workers import Processes, Progress, load_nothing, run_in_order

logger = logging.getLogger(__name__)

HOP_SECONDS = 0.01
F0_FLOOR, F0_CEILING = 55.0, 600.0
"""Search range in Hz."""


class AnnotatedId(BaseModel):
    """The part of an annotation that identifies its recording."""

    id: str


def extract_corpus_f0(manifest: Path, output: Path, *, hours: float = 0.0, workers: int = 1) -> None:
    """Append to `output` the missing contours of training and validation recordings.

    Lines are in manifest order. `hours` bounds how much audio the file covers, 0 = all of it. An interrupted call may
    be repeated. Raises DataError where `output` is malformed.
    """
    known = annotated_ids(output)
    chosen = first_hours(hours, [u for u in read_manifest(manifest) if u.split != "test"])
    missing = [utterance for utterance in chosen if utterance.id not in known]
    failed = 0
    with open_appender(output) as append:
        progress = Progress(logger, "recordings", len(missing))
        contours = run_in_order(Processes(workers), missing, load_nothing, partial(_extract, manifest.parent))
        for utterance, f0 in zip(missing, contours, strict=True):
            if f0 is None:
                failed += 1
            else:
                append({"id": utterance.id, "f0": f0})
            progress.advance()
    logger.info("%s: f0 of %d more recordings; %d could not be annotated", output, len(missing) - failed, failed)


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


def _extract(folder: Path, utterance: Utterance, loaded: None) -> list[float] | None:
    return extract_f0(folder, utterance)


def extract_f0(folder: Path, utterance: Utterance) -> list[float] | None:
    """F0 in Hz at 0, 10, 20, ... ms, 0 where unvoiced; None for a recording that cannot be read."""
    try:
        waveform = audio.read(folder / utterance.audio)
    except AudioError:
        return None
    f0 = track_f0(waveform.samples, waveform.sample_rate)
    return [round(hertz, 1) for hertz in np.asarray(f0).tolist()]


def track_f0(samples: NDArray[np.floating], sample_rate: int) -> NDArray[np.float64]:
    """F0 of samples (N,) in Hz every 10 ms, the first value at the first sample; 0 where unvoiced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports pkg_resources, which warns
        pyworld = require("pyworld", "eval")
    signal = np.ascontiguousarray(samples, dtype=np.float64)
    rough, times = pyworld.dio(
        signal, sample_rate, f0_floor=F0_FLOOR, f0_ceil=F0_CEILING, frame_period=1000 * HOP_SECONDS
    )
    return np.asarray(pyworld.stonemask(signal, rough, times, sample_rate))
