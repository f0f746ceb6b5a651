"""F0 contours of a corpus: `f0.jsonl`, a training target of the codec's decoder.

Upstream: a manifest and its recordings.  Downstream: `training.codec`, which reads the file.
WORLD's DIO and StoneMask, as in `metrics.prosody`. Recordings without any F0, such as whispers, have zeros.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from marstts import audio
from marstts.data.manifest import Utterance
from marstts.errors import AudioError
from marstts.metrics.annotations import annotate_corpus
from marstts.metrics.prosody import track_f0


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
