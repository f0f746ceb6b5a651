"""`marstts speak`: a text and a recording (or a voice file) in, a sound file out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from marstts import audio
from marstts.cli.profile import Profile, check_profile, released_profile
from marstts.cli.terminal import messages, printed_warnings, warn
from marstts.errors import AudioError, ConfigError, TextError
from marstts.synthesis.loading import load
from marstts.synthesis.released import DeepClone, ReleasedProfile
from marstts.synthesis.speech import Speech, Take
from marstts.synthesis.synthesizer import OnTake, Synthesizer
from marstts.voice import Voice

STANDARD_OUTPUT = "-"


def speak(
    text: Annotated[str | None, typer.Argument(help="What to say; or use --file.", show_default=False)] = None,
    reference: Annotated[str | None, typer.Option(metavar="WAV", help="A recording of the voice to speak in.")] = None,
    transcript: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What is said in the recording: makes the clone deep.")
    ] = None,
    voice: Annotated[str | None, typer.Option(metavar="FILE", help="A file made by `marstts voice create`.")] = None,
    model: Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="The model that speaks.")] = "mini",
    file: Annotated[str | None, typer.Option(metavar="TXT", help="Read what to say from a UTF-8 text file.")] = None,
    output: Annotated[str, typer.Option(metavar="WAV", help="Where to write; - is standard output.")] = "speech.wav",
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives another reading.")] = 0,
    top_p: Annotated[
        float | None,
        typer.Option(help="Where backoff starts, 0 to 1; low is safe, high is lively (default: the model's own)."),
    ] = None,
    profile: Annotated[
        Profile, typer.Option(help="Whose rules: our own, or those of the authors' script, for comparisons.")
    ] = Profile.OWN,
    deep_clone: Annotated[
        DeepClone | None, typer.Option(help="What the script's chunks continue from (default: per-chunk).")
    ] = None,
    json_report: Annotated[
        bool, typer.Option("--json", help="Print what happened as one JSON object (with --output -: on stderr).")
    ] = False,
) -> None:
    """Speak a text in the voice of a recording."""
    words = choose_text(text, file)
    check_voice_options(reference, transcript, voice)
    check_output(output)
    check_profile(profile, deep_clone, top_p)
    synthesizer = load(model)
    rules = synthesizer if profile is Profile.OWN else released_profile(synthesizer, deep_clone)
    speaker = choose_voice(rules, reference, transcript, voice)
    with progress_of_sentences() as on_take:
        if isinstance(rules, ReleasedProfile):
            speech = rules.speak(words, speaker, seed=seed, on_take=on_take)
        else:
            speech = rules.speak(words, speaker, seed=seed, top_p=top_p, on_take=on_take)
    write(speech, output)
    report(speech, output, as_json=json_report)


def choose_text(text: str | None, file: str | None) -> str:
    """The words to speak, given one way."""
    if (text is None) == (file is None):
        raise ConfigError(f"give what to say either as TEXT or with --file, not {'both' if file else 'neither'}")
    return read_text(Path(file)) if file is not None else text or ""


def read_text(path: Path) -> str:
    """The whole of a UTF-8 text file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TextError(f"{path}: expected a UTF-8 text file, but byte {error.start} is none of it") from error
    except OSError as error:
        raise TextError(f"{path}: the text file cannot be read: {error.strerror}") from error


def check_voice_options(reference: str | None, transcript: str | None, voice: str | None) -> None:
    """Raise ConfigError unless the voice is given one way."""
    if (reference is None) == (voice is None):
        raise ConfigError(
            f"give the voice either with --reference or with --voice, not {'both' if voice else 'neither'}"
        )
    if voice is not None and transcript is not None:
        raise ConfigError("--transcript belongs to --reference; a voice file holds its own transcript")


def check_output(output: str) -> None:
    """Raise AudioError where `output` cannot be written, before any time is spent on speaking."""
    if output == STANDARD_OUTPUT:
        return
    path = Path(output)
    if path.suffix.lower() not in audio.SUFFIXES:
        raise AudioError(f"{output}: expected a name ending in {' or '.join(audio.SUFFIXES)} to write to")
    if not path.parent.is_dir():
        raise AudioError(f"{output}: there is no folder {path.parent} to write to")
    if path.is_dir():
        raise AudioError(f"{output}: expected a file to write to, but this is a folder")


def choose_voice(
    synthesizer: Synthesizer | ReleasedProfile, reference: str | None, transcript: str | None, voice: str | None
) -> Voice:
    """The voice of the recording, or the one in the file."""
    if voice is not None:
        return Voice.load(Path(voice))
    assert reference is not None
    with printed_warnings():
        return synthesizer.clone(reference, transcript)


@contextmanager
def progress_of_sentences() -> Iterator[OnTake]:
    """A bar on standard error that moves with every sentence; nothing where that is piped, or for one sentence."""
    console = messages()
    columns = (TextColumn("speaking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("speaking", visible=False)

        def on_take(take: Take, number: int, sentences: int) -> None:
            progress.update(bar, completed=number, total=sentences, visible=sentences > 1)

        yield on_take


def write(speech: Speech, output: str) -> None:
    """Write the speech to its file, or as WAV to standard output."""
    if output == STANDARD_OUTPUT:
        sys.stdout.buffer.write(speech.wav_bytes())
        sys.stdout.buffer.flush()
    else:
        speech.save(output)


def report(speech: Speech, output: str, *, as_json: bool) -> None:
    """Tell what happened: as JSON for programs, in sentences for people."""
    for warning in speech.warnings:
        warn(warning)
    piped = output == STANDARD_OUTPUT
    if as_json:
        typer.echo(json.dumps(speech.report(), ensure_ascii=False, indent=2), err=piped)
        return
    typer.echo(
        f"{'standard output' if piped else output}: {speech.seconds:.1f} s of audio in {speech.compute_seconds:.1f} s "
        f"of compute, the first after {speech.first_audio_seconds:.2f} s",
        err=piped,
    )
    for take in speech.takes:
        tries = "1 attempt" if take.attempts == 1 else f"{take.attempts} attempts"
        typer.echo(
            f"  {take.seconds:5.1f} s  stopped by {take.stop.value}, top-p {take.top_p:g}, {tries}: {take.text}",
            err=piped,
        )
