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
from typing import TYPE_CHECKING, Any

from marstts import audio
from marstts.cli import speak_options as options
from marstts.cli.speak_input import check_options, choose_book, choose_text, choose_voice
from marstts.cli.speak_output import check_book_output, check_output, progress_bar, report, report_lines
from marstts.cli.streaming import StreamReport, is_pipe, open_held, open_sink, play_through, write_sentences
from marstts.cli.terminal import check_not_read, check_utf8
from marstts.errors import ConfigError
from marstts.generation.engine import EngineKind
from marstts.lazy import lazy_module
from marstts.synthesis.continuation import Continuation
from marstts.synthesis.loading import load
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.synthesizer import Synthesizer
from marstts.text.lexicon import read_lexicon
from marstts.voice import Voice

if TYPE_CHECKING:
    from marstts.cli import book, lines
    from marstts.synthesis import captions
    from marstts.synthesis.in_order import SpokenSentence
else:
    book, lines = lazy_module("marstts.cli.book"), lazy_module("marstts.cli.lines")
    captions = lazy_module("marstts.synthesis.captions")

MAX_WHOLE_CHARACTERS = 20_000
"""Longer texts are streamed to their file, without a batch, unless a speed is asked for. A pipe gets a whole
file, whatever the length of the text."""


def speak(
    text: options.Text = None,
    reference: options.Reference = None,
    transcript: options.Transcript = None,
    voice: options.VoiceName = None,
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
    if words is not None:
        synthesizer.check_word_times(speaker)
    if chapters is not None:
        read = book.speak_book(
            synthesizer, chapters, Path(output), book.BookSettings(speaker, seed, top_p, continuation)
        )
        report_lines(read, output, as_json=json_report, what="chapters")
    elif batch is not None:
        outcome = lines.speak_lines(
            synthesizer, spoken, speaker, Path(output), seed=seed, top_p=top_p, continuation=continuation, batch=batch
        )
        report_lines(outcome, output, as_json=json_report)
    elif stream or (len(spoken) > MAX_WHOLE_CHARACTERS and speed == 1.0 and not is_pipe(output)):
        sent = send(synthesizer, spoken, speaker, output, words, seed=seed, top_p=top_p, continuation=continuation)
        report(sent, output, as_json=json_report)
    else:
        choices = {"seed": seed, "top_p": top_p, "continuation": continuation, "speed": speed}
        report(speak_whole(synthesizer, spoken, speaker, output, words, **choices), output, as_json=json_report)


def speak_whole(
    synthesizer: Synthesizer, text: str, voice: Voice, output: str, words: str | None, **choices: Any
) -> StreamReport:
    """Speak the text with these options of `Synthesizer.speak`, and write audio and word times.

    A file is written sentence by sentence; standard output, devices and pipes get the whole at the end.
    """
    with progress_bar() as on_take:
        started = time.perf_counter()
        sentences = synthesizer.speak_in_order(text, voice, on_take=on_take, **choices)
        speech = save(synthesizer, sentences, output, audio.PeakLimit(), seed=choices["seed"], started=started)
    if words is not None:
        captions.write_captions(speech.words, words, seconds=speech.seconds)
    return speech


def save(
    session: ModelSession,
    sentences: Generator[SpokenSentence, None, None],
    output: str,
    ending: audio.Ending,
    *,
    seed: int,
    started: float,
) -> StreamReport:
    """Write the sentences as they come."""
    rate = session.codec.spec.sample_rate
    with closing(sentences):
        opened = open_held(output, rate, ending)
        return write_sentences(sentences, opened, rate, started=started, model=session.name, seed=seed)


def send(
    synthesizer: Synthesizer,
    text: str,
    voice: Voice,
    output: str,
    words: str | None,
    *,
    seed: int,
    top_p: float | None,
    continuation: Continuation,
) -> StreamReport:
    """Stream the text to `output`; the times of its words to the file `words`."""
    chunks = synthesizer.stream(text, voice, seed=seed, top_p=top_p, continuation=continuation)
    with open_sink(output, synthesizer.codec.spec.sample_rate) as sink, closing(chunks):
        sent = play_through(chunks, sink, model=synthesizer.name, seed=seed)
    if words is not None:
        captions.write_captions(sent.words, words, seconds=sent.seconds)
    return sent
