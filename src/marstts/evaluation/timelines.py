"""When each phone of a recording sounds, by forced alignment of its text: `phones.jsonl`, a teacher for the codec.

Upstream: a manifest and its recordings.  Downstream: `training.phonetics`, which reads the file.
About thirty times as fast as the audio on one core. What cannot be aligned (a word without known sounds, a text that
does not fit) is left out and counted; training then does without that recording.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.data.manifest import Utterance
from marstts.errors import AudioError
from marstts.evaluation.annotations import annotate
from marstts.evaluation.metrics import sphinx

FRAME_SECONDS = 0.01


def align_corpus(
    manifest: Path, output: Path, *, hours: float = 0.0, workers: int = 1, say: Callable[[str], None] = print
) -> None:
    """Append to `output` the phones that it lacks; `hours` and `workers` as for `annotate`."""
    annotate(manifest, output, "phones", align_utterance, hours=hours, workers=workers, say=say)


def align_utterance(folder: Path, utterance: Utterance) -> list[tuple[str, float, float]] | None:
    """Phones with start and length in seconds of one recording; None where text and recording do not meet."""
    try:
        pcm = sphinx.prepare(audio.read(folder / utterance.audio))
    except AudioError:
        return None
    decoder = worker_decoder()
    words = [word.strip("'") for word in re.findall(r"[a-z']+", utterance.text.lower())]
    words = [word for word in words if word]
    sphinx.teach(decoder, words)
    if not words or any(decoder.lookup_word(word) is None for word in words):
        return None
    try:
        decoder.set_align_text(" ".join(words))
        sphinx.decode(decoder, pcm)  # words first, then the phones within them
        decoder.set_alignment()
        sphinx.decode(decoder, pcm)
    except RuntimeError:  # pocketsphinx says so when no path through the text fits the audio
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
    """One decoder for each process, which takes a second to load."""
    return sphinx.new_decoder()
