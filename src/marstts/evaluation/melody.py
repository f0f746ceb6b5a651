"""How high a recording is spoken, every ten milliseconds: `pitch.jsonl`, a teacher for the codec.

Upstream: a manifest and its recordings.  Downstream: `training.melody`, which reads the file.
WORLD's DIO and StoneMask, as `metrics.prosody` uses them. Recordings without any pitch, such as whispers, have zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.data.manifest import Utterance
from marstts.errors import AudioError
from marstts.evaluation.annotations import annotate
from marstts.evaluation.metrics.prosody import track_pitch


def follow_corpus(
    manifest: Path, output: Path, *, hours: float = 0.0, workers: int = 1, say: Callable[[str], None] = print
) -> None:
    """Append to `output` the pitches that it lacks; `hours` and `workers` as for `annotate`."""
    annotate(manifest, output, "pitch", follow_utterance, hours=hours, workers=workers, say=say)


def follow_utterance(folder: Path, utterance: Utterance) -> list[float] | None:
    """Hertz at 0, 10, 20, ... ms, 0 where unvoiced; None for a recording that cannot be read."""
    try:
        waveform = audio.read(folder / utterance.audio)
    except AudioError:
        return None
    pitch = track_pitch(waveform.samples, waveform.sample_rate)
    return [round(hertz, 1) for hertz in np.asarray(pitch).tolist()]
