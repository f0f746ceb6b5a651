"""When each phone of a recording sounds, by forced alignment of its text: `phones.jsonl`, a teacher for the codec.

Upstream: a manifest and its recordings.  Downstream: `training.phonetics`, which reads the file.
About thirty times as fast as the audio on one core. What cannot be aligned (a word without known sounds, a text that
does not fit) is left out and counted; training then does without that recording.
"""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.data.manifest import Utterance, read_manifest
from marstts.errors import AudioError
from marstts.evaluation.metrics import sphinx

FRAME_SECONDS = 0.01


def align_corpus(
    manifest: Path, output: Path, *, hours: float = 0.0, workers: int = 1, say: Callable[[str], None] = print
) -> None:
    """Append to `output` the phones of the training and validation recordings, in the manifest's order, that it lacks.

    `hours` bounds how much audio the file covers, 0 = all of it. An interrupted call may be repeated.
    """
    known = {json.loads(line)["id"] for line in output.open(encoding="utf-8")} if output.exists() else set()
    wanted = within(hours, [u for u in read_manifest(manifest) if u.split != "test"])
    waiting = [utterance for utterance in wanted if utterance.id not in known]
    failed = 0
    align = partial(align_utterance, manifest.parent)
    with multiprocessing.get_context("spawn").Pool(workers) as pool, output.open("a", encoding="utf-8") as lines:
        timelines = map(align, waiting) if workers == 1 else pool.imap(align, waiting, chunksize=16)
        for utterance, phones in zip(waiting, timelines, strict=True):
            if phones is None:
                failed += 1
                continue
            lines.write(json.dumps({"id": utterance.id, "phones": phones}) + "\n")
    say(f"{output}: phones of {len(waiting) - failed} more recordings; {failed} could not be aligned")


def within(hours: float, utterances: list[Utterance]) -> list[Utterance]:
    """The first so many hours of them; all where `hours` is 0."""
    kept, seconds = [], 0.0
    for utterance in utterances:
        if hours and seconds >= hours * 3600:
            break
        kept.append(utterance)
        seconds += utterance.seconds
    return kept


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
