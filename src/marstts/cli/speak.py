"""`marstts speak`: a text and a recording (or a voice file) in, a sound file out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from marstts import audio
from marstts.cli.lines import REPORT_FILE, Outcome, speak_lines
from marstts.cli.profile import Profile, check_profile, released_profile
from marstts.cli.streaming import LOUDSPEAKER, STANDARD_OUTPUT, open_sink, play_through
from marstts.cli.terminal import messages, printed_warnings, warn
from marstts.errors import AudioError, ConfigError, TextError
from marstts.synthesis.loading import Engine, load
from marstts.synthesis.released import DeepClone, ReleasedProfile
from marstts.synthesis.speech import Speech, Take
from marstts.synthesis.synthesizer import OnTake, Synthesizer, warn_of_unspeakable
from marstts.voice import Voice

Output = Annotated[
    str | None,
    typer.Option(
        metavar="WAV",
        help="Where to write; - is standard output (default: speech.wav; with --stream the loudspeaker; with --batch "
        "the folder speech).",
    ),
]
Stream = Annotated[
    bool, typer.Option("--stream", help="Let audio out as it is made; --output - is raw 16-bit PCM then.")
]
Batch = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Speak every line of --file into a file of its own, N at a time."),
]


def speak(
    text: Annotated[str | None, typer.Argument(help="What to say; or use --file.", show_default=False)] = None,
    reference: Annotated[str | None, typer.Option(metavar="WAV", help="A recording of the voice to speak in.")] = None,
    transcript: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What is said in the recording: makes the clone deep.")
    ] = None,
    voice: Annotated[str | None, typer.Option(metavar="FILE", help="A file made by `marstts voice create`.")] = None,
    model: Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="The model that speaks.")] = "mini",
    engine: Annotated[
        Engine, typer.Option(help="What runs the model; auto: the quickest that needs nothing more to be installed.")
    ] = Engine.AUTO,
    file: Annotated[str | None, typer.Option(metavar="TXT", help="Read what to say from a UTF-8 text file.")] = None,
    output: Output = None,
    stream: Stream = False,
    batch: Batch = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives another reading.")] = 0,
    top_p: Annotated[
        float | None,
        typer.Option(help="Where backoff starts, 0 to 1; low is safe, high is lively (default: the model's own)."),
    ] = None,
    guidance: Annotated[
        float | None,
        typer.Option(help="How strongly speech keeps to its words, 1 (not at all) or more (default: the model's own)."),
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
    check_ways(file, stream=stream, batch=batch, profile=profile)
    output = check_output(output, stream=stream, batch=batch)
    check_profile(profile, deep_clone, top_p)
    synthesizer = load(model, engine, guidance)
    if batch is not None:
        speaker = choose_voice(synthesizer, reference, transcript, voice)
        outcome = speak_lines(synthesizer, words, speaker, Path(output), seed=seed, top_p=top_p, batch=batch)
        report_lines(outcome, output, as_json=json_report)
        return
    if stream:
        speaker = choose_voice(synthesizer, reference, transcript, voice)
        report(send(synthesizer, words, speaker, output, seed=seed, top_p=top_p), output, as_json=json_report)
        return
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


def check_ways(file: str | None, *, stream: bool, batch: int | None, profile: Profile) -> None:
    """Raise ConfigError where two ways of speaking are asked for at once."""
    if stream and batch is not None:
        raise ConfigError("give either --stream, which lets out one text as it is made, or --batch, which makes many")
    if batch is not None and file is None:
        raise ConfigError("--batch speaks the lines of a text file: give it with --file")
    if profile is Profile.RELEASED and (stream or batch is not None):
        raise ConfigError("--stream and --batch belong to our own rules; the authors' script has neither")


def check_output(output: str | None, *, stream: bool, batch: int | None) -> str:
    """Where to write; raises AudioError where that cannot be, before any time is spent on speaking."""
    if batch is not None:
        return prepare_folder(output or "speech")
    if output is None:
        output = LOUDSPEAKER if stream else "speech.wav"
    if output not in (STANDARD_OUTPUT, LOUDSPEAKER):
        check_file(output)
    return output


def prepare_folder(output: str) -> str:
    """Make the folder of a batch, if it is not there."""
    try:
        Path(output).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AudioError(f"{output}: expected a folder for one sound file per line ({error.strerror})") from error
    return output


def check_file(output: str) -> None:
    """Raise AudioError where no sound file can be written."""
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


def send(synthesizer: Synthesizer, text: str, voice: Voice, output: str, *, seed: int, top_p: float | None) -> Speech:
    """Stream the text to `output`; what was sent."""
    chunks = synthesizer.stream(text, voice, seed=seed, top_p=top_p)
    with open_sink(output, synthesizer.codec.spec.sample_rate) as sink, closing(chunks):
        warning = warn_of_unspeakable(text)
        return play_through(chunks, sink, model=synthesizer.name, seed=seed, text_warning=warning)


def report_lines(outcome: Outcome, output: str, *, as_json: bool) -> None:
    """Tell what became of the lines; exit code 1 where some could not be spoken."""
    if as_json:
        typer.echo(json.dumps(asdict(outcome)))
    else:
        kept = f", {outcome.kept} kept from before" if outcome.kept else ""
        typer.echo(f"{output}: {outcome.spoken} lines spoken{kept}; see {Path(output) / REPORT_FILE}")
    if outcome.failed:
        numbers = ", ".join(map(str, outcome.failed))
        warn(f"{len(outcome.failed)} of the lines could not be spoken: {numbers}")
        raise typer.Exit(code=1)


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
