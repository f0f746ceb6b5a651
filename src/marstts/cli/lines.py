"""`marstts speak --file lines.txt --batch N`: one audio file per line of a text, and a report.

Upstream: `cli.speak`, `Synthesizer.speak_many`.  Downstream: a folder of `0001.wav`, `0002.wav`, … (`spoken_folder`).
Files are named after their lines, blank ones included in the count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from marstts.cli.spoken_folder import Line, Outcome, speak_missing
from marstts.cli.streaming import StreamReport, open_sink, play_through
from marstts.errors import AudioError, MarsError
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words import captions
from marstts.synthesis.words.word_times import Word


def speak_lines(
    synthesizer: Synthesizer,
    text: str,
    how: Speaking,
    folder: Path,
    batch: int,
    words: str | None = None,
    *,
    at_once: bool = False,
) -> Outcome:
    """Speak every line of `text` that is not blank into `folder`, at most `batch` sentences at a time.

    words: a file whose suffix is that of the times of words, which are written beside the audio of each line.
    at_once: each file grows while its line is spoken, one line after the other.

    Raises the errors of `spoken_folder.speak_missing`.
    """
    captions_suffix = None if words is None else Path(words).suffix

    def write_words(line: Line, found: Sequence[Word], seconds: float) -> None:
        if captions_suffix is not None:
            captions.write_captions(found, (folder / line.file).with_suffix(captions_suffix), seconds=seconds)

    def stream(lines: list[Line]) -> Iterator[dict[str, Any]]:
        for line in lines:
            try:
                made = stream_into(synthesizer, line.text, how, folder / line.file)
            except AudioError:
                raise
            except MarsError as error:
                yield line.failed(error, folder, line.text)
            else:
                write_words(line, made.words, made.seconds)
                yield line.spoken(made.report(), line.text)

    def speak(lines: list[Line]) -> Iterator[dict[str, Any]]:
        for result in synthesizer.speak_many([line.text for line in lines], how, batch=batch):
            line = lines[result.index - 1]
            if result.speech is None:
                assert result.error is not None
                yield line.failed(result.error, folder, line.text)
            else:
                result.speech.save(folder / line.file)
                write_words(line, result.speech.words if words else (), result.speech.seconds)
                yield line.spoken(result.speech.report(), line.text)

    lines = text.splitlines()
    manner = [*(["streamed"] if at_once else []), *([captions_suffix] if captions_suffix else [])]
    digits = max(4, len(str(len(lines))))
    numbered = [
        Line(number, said, f"{number:0{digits}d}.wav", how.fingerprint(synthesizer.session, said, *manner))
        for number, line in enumerate(lines, start=1)
        if (said := line.strip())
    ]
    return speak_missing(numbered, folder, stream if at_once else speak)


def stream_into(synthesizer: Synthesizer, text: str, how: Speaking, path: Path) -> StreamReport:
    """Speak a text into a file that grows while it is spoken."""
    started, rate = time.perf_counter(), synthesizer.session.codec.spec.sample_rate
    with closing(synthesizer.stream(text, how)) as chunks, open_sink(str(path), rate, at_once=True) as sink:
        return play_through(chunks, sink, model=synthesizer.session.label, seed=how.seed, started=started)
