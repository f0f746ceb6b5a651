"""Options of `marstts speak`.

Upstream: the shell.  Downstream: `speak`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.generation.engine import EngineKind
from marstts.synthesis.speech import Continuation as Mode
from marstts.text.books.epub import Notes

Text = Annotated[
    str | None,
    typer.Argument(help="Text to speak; without one, or with -, standard input. Or use --file.", show_default=False),
]
Reference = Annotated[str | None, typer.Option(metavar="FILE", help="A recording of the voice to clone.")]
Transcript = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="The words of the recording of --reference or --voice: makes the clone deep."),
]
VoiceName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME_OR_FILE",
        help="A voice of `marstts voice list` or --voices, a voice file, or a recording.",
    ),
]
StyleOf = Annotated[
    str | None,
    typer.Option(metavar="NAME_OR_FILE", help="Speak in the style of this recording or voice, as the same speaker."),
]
Voices = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Voice files that the text may name, besides those of `marstts voice list`."),
]
Cast = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Voices by name, `NAME = voice` in each line; narrator and dialogue are names too."
    ),
]
Dialogue = Annotated[
    str | None,
    typer.Option(
        metavar="NAME_OR_FILE", help="The voice of what is said in quotation marks: a name in --cast, a voice."
    ),
]
PauseSeconds = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=SECONDS,...",
        help="Silence after a sentence (0.3), heading (0.8), paragraph (0.7), scene (1.9) and the end (0).",
    ),
]
BookNotes = Annotated[Notes, typer.Option(help="Where the notes of an EPUB are read.", case_sensitive=False)]
Chapters = Annotated[
    str | None, typer.Option(metavar="RANGES", help="Chapters of the book, such as 3 or 2-5 or 1,4- (default: all).")
]
Model = Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="The model.")]
Engine = Annotated[
    EngineKind,
    typer.Option(help="Runtime of the model; auto: the fastest one that is installed.", case_sensitive=False),
]
File = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="Read the text from a text file or an EPUB.")
]
LexiconFile = Annotated[
    str | None, typer.Option(metavar="TSV", help="Pronunciations: word, tab, respelling, ARPAbet or /IPA/.")
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Output file: .wav, .flac, .ogg, .opus or .mp3; - is standard output (default: speech.wav; with --stream "
        "the loudspeaker; with --batch the folder speech). A folder or .m4b: the chapters of --file.",
    ),
]
Words = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write when each word is said: .json, .srt, .vtt or .TextGrid; with --batch, beside each file.",
    ),
]
Stream = Annotated[
    bool, typer.Option("--stream", help="Send audio while it is generated; --output - is raw 16-bit PCM then.")
]
Batch = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Speak every line of the text into a separate file, N at a time."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed; another one gives another reading.")]
Speed = Annotated[
    float,
    typer.Option(help="Tempo, 0.25 to 4 times the usual, at the same pitch (extra `formats`)."),
]
Seconds = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Fit the speech to this length, by the model's pace and the tempo."),
]
TopP = Annotated[float | None, typer.Option(help="Nucleus of the first attempt, 0 to 1 (default: the model's).")]
Continuation = Annotated[
    Mode,
    typer.Option(help="Prefix of each sentence: none, the reference, or the sentence before.", case_sensitive=False),
]
Paper = Annotated[
    bool,
    typer.Option("--paper", help="Speak as the paper says, without what marstts adds at synthesis (docs/paper.md)."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print the time that speaking took, and how each sentence was made.")
]
JsonReport = Annotated[
    bool, typer.Option("--json", help="Print the report as JSON (with --output -: on standard error).")
]
