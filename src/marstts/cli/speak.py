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

from marstts.cli import book, lines
from marstts.cli import speak_options as options
from marstts.cli.cast import NARRATOR, add_dialogue, add_own_voices, open_cast, read_pauses
from marstts.cli.kept_sentences import finish, forget, read_list, speak_kept, words_of
from marstts.cli.speak_input import check_voice, choose_book, choose_text, choose_voice
from marstts.cli.speak_output import check_book_output, check_output, progress_bar, report, report_lines
from marstts.cli.streaming import STANDARD_OUTPUT, StreamReport, is_pipe, open_sink, play_through
from marstts.cli.terminal import check_not_read, check_utf8
from marstts.generation.engine import EngineKind
from marstts.synthesis.loading import load
from marstts.synthesis.prepared_text import MAX_WHOLE_CHARACTERS
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.speech import Chunk, Continuation
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words import captions
from marstts.text.books.epub import Notes
from marstts.text.lexicon import read_lexicon


def speak(
    text: options.Text = None,
    reference: options.Reference = None,
    transcript: options.Transcript = None,
    voice: options.VoiceName = None,
    style_of: options.StyleOf = None,
    voices: options.Voices = None,
    cast: options.Cast = None,
    dialogue: options.Dialogue = None,
    model: options.Model = "mini",
    engine: options.Engine = EngineKind.AUTO,
    file: options.File = None,
    chapters: options.Chapters = None,
    notes: options.BookNotes = Notes.IN_PLACE,
    lexicon: options.LexiconFile = None,
    output: options.Output = None,
    words: options.Words = None,
    stream: options.Stream = False,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    speed: options.Speed = 1.0,
    seconds: options.Seconds = None,
    top_p: options.TopP = None,
    continuation: options.Continuation = Continuation.FIXED_REFERENCE,
    pauses: options.PauseSeconds = None,
    paper: options.Paper = False,
    verbose: options.Verbose = False,
    json_report: options.JsonReport = False,
) -> None:
    """Speak a text."""
    check_utf8(text=text, transcript=transcript)
    check_voice(reference, transcript, voice)
    if words is not None:
        captions.check_captions(words)
    how = Speaking(
        seed=seed, top_p=top_p, continuation=continuation, speed=speed, seconds=seconds, pauses=read_pauses(pauses),
        paper=paper,
    )  # fmt: skip
    how.check()
    check_not_read([output, words], reference, voice, style_of, file, lexicon, cast)
    read = None if stream or batch is not None else choose_book(text, file, output, notes)
    parts = [] if read is None else book.choose_chapters(read, chapters)
    spoken = choose_text(text, file, notes, chapters) if read is None else ""
    output = check_output(output, stream=stream, batch=batch) if read is None else check_book_output(str(output))
    how = replace(how, lexicon=None if lexicon is None else read_lexicon(lexicon))
    synthesizer = replace(load(model, engine), usual=how)
    named = open_cast(synthesizer, cast, voices)
    speaker = choose_voice(
        synthesizer, reference, transcript, named.get(NARRATOR) if voice is None else named.get(voice, voice)
    )
    add_own_voices(named, [spoken] if read is None else [part.spoken for part in parts])
    if words is not None:
        synthesizer.session.check_word_times(speaker)
    style = None if style_of is None else choose_voice(synthesizer, None, None, style_of)
    how = replace(
        how, voice=speaker, style_of=style, dialogue=add_dialogue(synthesizer, named, dialogue), voices=named
    ).opened(synthesizer.session)
    if read is not None:
        outcome = book.speak_book(synthesizer, read, parts, Path(output), how, words)
        report_lines(outcome, output, as_json=json_report, what="chapters")
    elif batch is not None:
        outcome = lines.speak_lines(synthesizer, spoken, how, Path(output), batch, words, at_once=stream)
        report_lines(outcome, output, as_json=json_report)
    elif stream:
        made = speak_at_once(synthesizer, spoken, how, output, words)
        report(made, output, as_json=json_report, verbose=verbose)
    else:
        made = speak_whole(synthesizer, spoken, how, output, words)
        report(made, output, as_json=json_report, verbose=verbose)


def speak_whole(synthesizer: Synthesizer, text: str, how: Speaking, output: str, words: str | None) -> StreamReport:
    """Speak the text, and write audio and word times.

    A file is written sentence by sentence, and a long text goes on after the sentences of an earlier run; standard
    output, devices and pipes get the whole at the end.
    """
    is_file = output != STANDARD_OUTPUT and not is_pipe(output)
    with progress_bar() as on_take:
        if is_file and len(text) > MAX_WHOLE_CHARACTERS:
            path = Path(output)
            made = speak_kept(synthesizer, text, how, path, on_take=on_take)
            finish(path)
            if words is not None:
                made = replace(made, words=words_of(read_list(path)))
            forget(path)
        else:
            started = time.perf_counter()
            chunks = synthesizer.stream(text, how, sentences=True, on_take=on_take)
            made = write_speech(synthesizer, chunks, output, how.seed, started, at_once=False)
    write_words(made, words)
    return made


def speak_at_once(synthesizer: Synthesizer, text: str, how: Speaking, output: str, words: str | None) -> StreamReport:
    """Speak the text; audio leaves while it is made."""
    started = time.perf_counter()
    chunks = synthesizer.stream(text, how)
    made = write_speech(synthesizer, chunks, output, how.seed, started, at_once=True)
    write_words(made, words)
    return made


def write_words(made: StreamReport, words: str | None) -> None:
    """Write the times of words, if a file is given for them."""
    if words is not None:
        captions.write_captions(made.words, words, seconds=made.seconds)


def write_speech(
    synthesizer: Synthesizer,
    chunks: Generator[Chunk, None, None],
    output: str,
    seed: int,
    started: float,
    *,
    at_once: bool,
) -> StreamReport:
    """Write chunks as they come."""
    with closing(chunks), open_sink(output, synthesizer.session.codec.spec.sample_rate, at_once=at_once) as sink:
        return play_through(chunks, sink, model=synthesizer.session.label, seed=seed, started=started)
