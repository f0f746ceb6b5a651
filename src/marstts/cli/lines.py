"""`marstts speak --file lines.txt --batch N`: one audio file per line of a text file, and a report.

Upstream: `cli.speak`, `Synthesizer.speak_many`.  Downstream: a folder of `0001.wav`, `0002.wav`, … (`spoken_folder`).
Files are named after their lines, blank ones included in the count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marstts.cli.spoken_folder import Line, Outcome, hash_of, speak_missing
from marstts.synthesis.speech import Continuation
from marstts.synthesis.synthesizer import Synthesizer
from marstts.voice import Voice


def speak_lines(
    synthesizer: Synthesizer,
    text: str,
    voice: Voice,
    folder: Path,
    *,
    seed: int,
    top_p: float | None,
    batch: int,
    continuation: Continuation = Continuation.FIXED_REFERENCE,
) -> Outcome:
    """Speak every line of `text` that is not blank into `folder`, at most `batch` sentences at a time.

    Raises the errors of `spoken_folder.speak_missing`.
    """

    def speak(lines: list[Line]) -> Iterator[dict[str, Any]]:
        texts = [line.text for line in lines]
        for result in synthesizer.speak_many(
            texts, voice, seeds=seed, top_p=top_p, continuation=continuation, batch=batch
        ):
            line = lines[result.index - 1]
            if result.speech is None:
                assert result.error is not None
                yield line.failed(result.error, folder, line.text)
            else:
                result.speech.save(folder / line.file)
                yield line.spoken(result.speech.report(), line.text)

    settings = f"{synthesizer.name} {seed} {top_p} {continuation.value}"
    return speak_missing(number_lines(text, voice, settings), folder, speak)


def number_lines(text: str, voice: Voice, settings: str) -> list[Line]:
    """The lines of a text that are not blank."""
    voice_digest = hashlib.sha256(voice.to_bytes()).hexdigest()
    lines = text.splitlines()
    digits = max(4, len(str(len(lines))))
    numbered = [(number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()]
    return [
        Line(number, words, f"{number:0{digits}d}.wav", hash_of(words, voice_digest, settings))
        for number, words in numbered
    ]
