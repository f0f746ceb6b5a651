"""`marstts speak --file lines.txt --batch N`: one audio file per line of a text file, and a report.

Upstream: `cli.speak`, `Synthesizer.speak_many`.  Downstream: a folder of `0001.wav`, `0002.wav`, … (`spoken_folder`).
Files are named after their lines, blank ones included in the count.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marstts.cli.spoken_folder import Line, Outcome, speak_missing
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.synthesizer import Synthesizer


def speak_lines(synthesizer: Synthesizer, text: str, how: Speaking, folder: Path, batch: int) -> Outcome:
    """Speak every line of `text` that is not blank into `folder`, at most `batch` sentences at a time.

    Raises the errors of `spoken_folder.speak_missing`.
    """

    def speak(lines: list[Line]) -> Iterator[dict[str, Any]]:
        for result in synthesizer.speak_many([line.text for line in lines], how, batch=batch):
            line = lines[result.index - 1]
            if result.speech is None:
                assert result.error is not None
                yield line.failed(result.error, folder, line.text)
            else:
                result.speech.save(folder / line.file)
                yield line.spoken(result.speech.report(), line.text)

    lines = text.splitlines()
    digits = max(4, len(str(len(lines))))
    numbered = [
        Line(number, words, f"{number:0{digits}d}.wav", how.fingerprint(synthesizer.session, words))
        for number, line in enumerate(lines, start=1)
        if (words := line.strip())
    ]
    return speak_missing(numbered, folder, speak)
