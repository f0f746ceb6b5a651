"""Phone alignments of a corpus by forced alignment of its texts: `phones.jsonl`, a training target of the codec.

Upstream: a manifest and its recordings.  Downstream: `training.codec`, which reads the file.
About thirty times real time on one core. Recordings that cannot be aligned (a word without known pronunciation, a text
that does not fit) are left out and counted; training uses the others.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.data.manifest import Utterance
from marstts.errors import AudioError
from marstts.metrics import sphinx
from marstts.metrics.annotations import annotate_corpus

FRAME_SECONDS = 0.01


def align_corpus(manifest: Path, output: Path, *, hours: float = 0.0, workers: int = 1) -> None:
    """Append the missing alignments to `output`; `hours` and `workers` as for `annotate_corpus`."""
    annotate_corpus(manifest, output, "phones", align_utterance, hours=hours, workers=workers)


def align_utterance(folder: Path, utterance: Utterance) -> list[tuple[str, float, float]] | None:
    """Phones of one recording with start and length in seconds; None where text and recording cannot be aligned."""
    try:
        pcm = sphinx.prepare(audio.read(folder / utterance.audio))
    except AudioError:
        return None
    decoder = worker_decoder()
    words = [word.strip("'") for word in re.findall(r"[a-z']+", utterance.text.lower())]
    words = [word for word in words if word]
    sphinx.add_pronunciations(decoder, words)
    if not words or any(decoder.lookup_word(word) is None for word in words):
        return None
    try:
        decoder.set_align_text(" ".join(words))
        sphinx.decode(decoder, pcm)  # words first, then the phones within them
        decoder.set_alignment()
        sphinx.decode(decoder, pcm)
    except RuntimeError:  # pocketsphinx's error where no path through the text fits the audio
        return None
    return [
        (
            phone.name,
            round(phone.start * FRAME_SECONDS - sphinx.EDGE_SECONDS, 3),
            round(phone.duration * FRAME_SECONDS, 3),
        )
        for word in decoder.get_alignment()
        for phone in word
    ]


@lru_cache(maxsize=1)
def worker_decoder() -> Any:
    """One decoder per process, which takes a second to load."""
    return sphinx.new_decoder()
