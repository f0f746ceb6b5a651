"""`marstts speak`: a text and a voice in, speech out: a file, a stream, a file for each line, or a book's chapters.

Upstream: the shell.  Downstream: `Synthesizer`; the work is in `speak_input`, `speak_output`, `streaming`,
`lines` and `book`.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from marstts.cli import book, lines
from marstts.cli import speak_options as options
from marstts.cli.speak_input import check_options, choose_book, choose_text, choose_voice
from marstts.cli.speak_output import check_book_output, check_output, progress_bar, report, report_lines
from marstts.cli.streaming import StreamReport, open_sink, play_through
from marstts.cli.terminal import check_not_read, check_utf8
from marstts.errors import ConfigError
from marstts.generation.engine import EngineKind
from marstts.synthesis.clone.voices import voices_in
from marstts.synthesis.continuation import Continuation
from marstts.synthesis.loading import load
from marstts.synthesis.speech import Chunk
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words import captions
from marstts.text.lexicon import read_lexicon
from marstts.voice import Voice


def speak(
    text: options.Text = None,
    reference: options.Reference = None,
    transcript: options.Transcript = None,
    voice: options.VoiceName = None,
    voices: options.Voices = None,
    model: options.Model = "mini",
    engine: options.Engine = EngineKind.AUTO,
    file: options.File = None,
    lexicon: options.LexiconFile = None,
    output: options.Output = None,
    words: options.Words = None,
    stream: options.Stream = False,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    speed: options.Speed = 1.0,
    top_p: options.TopP = None,
    guidance: options.Guidance = None,
    continuation: options.Continuation = Continuation.FIXED_REFERENCE,
    json_report: options.JsonReport = False,
) -> None:
    """Speak a text."""
    check_utf8(text=text, transcript=transcript)
    check_options(
        reference=reference, transcript=transcript, voice=voice, file=file, stream=stream, batch=batch, words=words,
        speed=speed,
    )  # fmt: skip
    check_not_read([output, words], reference, voice, file, lexicon)
    chapters = None if stream or batch is not None else choose_book(text, file, output)
    if chapters is not None and (words is not None or speed != 1.0):
        raise ConfigError("--words and --speed go with one text; they do not go with a book")
    spoken = choose_text(text, file) if chapters is None else ""
    output = check_output(output, stream=stream, batch=batch) if chapters is None else check_book_output(str(output))
    pronunciations = None if lexicon is None else read_lexicon(lexicon)
    synthesizer = replace(load(model, engine, guidance), lexicon=pronunciations)
    speaker = choose_voice(synthesizer, reference, transcript, voice)
    named = {} if voices is None else voices_in(voices)
    if words is not None:
        synthesizer.check_word_times(speaker)
    if chapters is not None:
        read = book.speak_book(
            synthesizer, chapters, Path(output), book.BookSettings(speaker, seed, top_p, continuation, named)
        )
        report_lines(read, output, as_json=json_report, what="chapters")
    elif batch is not None:
        outcome = lines.speak_lines(
            synthesizer, spoken, speaker, Path(output), seed=seed, top_p=top_p, continuation=continuation, batch=batch
        )
        report_lines(outcome, output, as_json=json_report)
    else:
        choices = {"seed": seed, "top_p": top_p, "continuation": continuation, "voices": named}
        if stream:
            spoken_text = speak_at_once(synthesizer, spoken, speaker, output, words, **choices)
        else:
            spoken_text = speak_whole(synthesizer, spoken, speaker, output, words, speed=speed, **choices)
        report(spoken_text, output, as_json=json_report)


def speak_whole(
    synthesizer: Synthesizer, text: str, voice: Voice, output: str, words: str | None, **choices: Any
) -> StreamReport:
    """Speak the text with these options of `Synthesizer.speak`, and write audio and word times.

    A file is written sentence by sentence; standard output, devices and pipes get the whole at the end.
    """
    with progress_bar() as on_take:
        started = time.perf_counter()
        chunks = synthesizer.speak_in_order(text, voice, on_take=on_take, **choices)
        return write_speech(synthesizer, chunks, output, words, choices["seed"], started, at_once=False)


def speak_at_once(
    synthesizer: Synthesizer, text: str, voice: Voice, output: str, words: str | None, **choices: Any
) -> StreamReport:
    """Speak the text with these options of `Synthesizer.stream`: audio leaves while it is made."""
    started = time.perf_counter()
    chunks = synthesizer.stream(text, voice, **choices)
    return write_speech(synthesizer, chunks, output, words, choices["seed"], started, at_once=True)


def write_speech(
    synthesizer: Synthesizer,
    chunks: Generator[Chunk, None, None],
    output: str,
    words: str | None,
    seed: int,
    started: float,
    *,
    at_once: bool,
) -> StreamReport:
    """Write chunks as they come, and at the end the times of words."""
    with closing(chunks), open_sink(output, synthesizer.codec.spec.sample_rate, at_once=at_once) as sink:
        sent = play_through(chunks, sink, model=synthesizer.name, seed=seed, started=started)
    if words is not None:
        captions.write_captions(sent.words, words, seconds=sent.seconds)
    return sent
