"""The shipped identity encoder on real recordings, none of which it was trained on."""

from __future__ import annotations

import csv
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import read
from marstts.speaker.base import equal_error_rate, trials
from marstts.speaker.mini import MiniSpeakerEncoder

CLIPS = Path(__file__).parents[3] / "shared/speech/librispeech"
ENCODER = Path(str(resources.files("marstts"))) / "models_data/mini/identity"

pytestmark = [
    pytest.mark.skipif(not (CLIPS / "clips.tsv").is_file(), reason=f"the LibriSpeech clips are not in {CLIPS}"),
    pytest.mark.skipif(not ENCODER.is_dir(), reason="the mini model is not in the package"),
]


@pytest.mark.slow
def test_clips_of_one_person_are_more_similar_to_each_other_than_to_other_peoples() -> None:
    with (CLIPS / "clips.tsv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    encoder = MiniSpeakerEncoder(ENCODER)
    embeddings = np.stack([encoder.embed(read(CLIPS / row["file"])) for row in rows])
    assert equal_error_rate(*trials(embeddings, [row["speaker"] for row in rows])) < 0.06
