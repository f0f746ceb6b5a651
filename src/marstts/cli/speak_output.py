"""Outputs of `marstts speak`: where audio is written, progress and reports.

Upstream: `speak`.  Downstream: `audio.writer`, the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from marstts import audio
from marstts.cli.book_output import M4B_SUFFIX, REPORT_FILE, report_folder
from marstts.cli.streaming import LOUDSPEAKER, STANDARD_OUTPUT, StreamReport
from marstts.cli.terminal import progress_of, say, say_json, warn
from marstts.errors import AudioError, require
from marstts.io.reading import printable_name, printable_text
from marstts.synthesis.model_session import OnTake
from marstts.synthesis.speech import Take

if TYPE_CHECKING:
    from marstts.cli.spoken_folder import Outcome


def check_output(output: str | None, *, stream: bool, batch: int | None) -> str:
    """The output, checked before any time is spent on speaking; AudioError where it cannot be written."""
    if batch is not None:
        return prepare_folder(output or "speech")
    if output is None:
        output = LOUDSPEAKER if stream else "speech.wav"
    if output not in (STANDARD_OUTPUT, LOUDSPEAKER):
        check_file(output)
    return output


def check_book_output(output: str) -> str:
    """The folder or m4b of a book, checked before any time is spent on speaking."""
    path, name = Path(output), printable_name(output)
    if path.suffix.lower() != M4B_SUFFIX:
        return prepare_folder(output)
    require("av", "formats")
    if not os.path.isdir(path.parent):
        raise AudioError(f"{name}: there is no folder {printable_name(path.parent)} to write to")
    return output


def prepare_folder(output: str) -> str:
    """Make the folder of a batch, if it does not exist."""
    try:
        Path(output).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AudioError(
            f"{printable_name(output)}: expected a folder for one audio file per line ({error.strerror})"
        ) from error
    return output


def check_file(output: str) -> None:
    """Raise AudioError where no audio file can be written."""
    path, name = Path(output), printable_name(output)
    if path.suffix.lower() not in audio.SUFFIXES:
        raise AudioError(f"{name}: expected a name ending in {' or '.join(audio.SUFFIXES)} to write to")
    if not os.path.isdir(path.parent):
        raise AudioError(f"{name}: there is no folder {printable_name(path.parent)} to write to")
    if os.path.isdir(path):
        raise AudioError(f"{name}: expected a file to write to, but this is a folder")


@contextmanager
def progress_bar() -> Iterator[OnTake]:
    """Progress on standard error that advances with every sentence; none for one sentence."""
    with progress_of("speaking", "sentences") as progress:
        bar = progress.add_task("speaking", visible=False)

        def on_take(take: Take, number: int, sentences: int) -> None:
            progress.update(bar, completed=number, total=sentences, visible=sentences > 1)

        yield on_take


def report(speech: StreamReport, output: str, *, as_json: bool, verbose: bool = False) -> None:
    """Print what was written: as JSON, or in a sentence and with `verbose` a line for each sentence of the text."""
    for warning in speech.warnings:
        warn(warning)
    piped = output == STANDARD_OUTPUT
    if as_json:
        say_json(speech.report(), indent=2, err=piped)
        return
    if output == LOUDSPEAKER:
        say(f"Played {speech.seconds:.1f} s")
    else:
        name = "standard output" if piped else printable_name(output)
        say(f"Wrote {name} ({speech.seconds:.1f} s)", err=piped)
    if not verbose:
        return
    say(
        f"  {speech.compute_seconds:.1f} s of compute, the first audio after {speech.first_audio_seconds:.2f} s",
        err=piped,
    )
    for take in speech.takes:
        attempts = "1 attempt" if take["attempts"] == 1 else f"{take['attempts']} attempts"
        say(
            f"  {take['seconds']:5.1f} s  stopped by {take['stop']}, top-p {take['top_p']:g}, {attempts}: "
            f"{printable_text(take['text'])}",
            err=piped,
        )


def report_lines(outcome: Outcome, output: str, *, as_json: bool, what: str = "lines") -> None:
    """Print how many lines or chapters were spoken; exit code 1 where some could not be."""
    if as_json:
        say_json(asdict(outcome))
    else:
        kept = f", {outcome.kept} kept from before" if outcome.kept else ""
        say(
            f"Wrote {printable_name(output)} ({outcome.spoken} {what[:-1] if outcome.spoken == 1 else what} spoken"
            f"{kept}); details are in {printable_name(report_folder(Path(output)) / REPORT_FILE)}"
        )
    if outcome.failed:
        numbers = ", ".join(map(str, outcome.failed))
        warn(f"{len(outcome.failed)} of the {what} could not be spoken: {numbers}")
        raise typer.Exit(code=1)
