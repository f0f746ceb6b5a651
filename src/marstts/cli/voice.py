"""`marstts voice`: recordings into voice files, and what a voice file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import printed_warnings
from marstts.errors import VoiceError
from marstts.synthesis.loading import load
from marstts.voice import Voice

app = typer.Typer(help="Make voice files from recordings, and look into them.", no_args_is_help=True)


@app.command()
def create(
    reference: Annotated[str, typer.Argument(metavar="REF.wav", help="A recording of the voice.")],
    name: Annotated[str, typer.Option(help="What to call the voice.")],
    output: Annotated[str, typer.Option(metavar="NAME.voice", help="The file to write.")],
    transcript: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What is said in the recording: makes the clone deep.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="The model the voice is for.")] = "mini",
    consent: Annotated[
        str, typer.Option(metavar="TEXT", help="By whose permission the voice is cloned; kept in the file.")
    ] = "",
) -> None:
    """Keep the voice of a recording in a file."""
    if not Path(output).parent.is_dir():
        raise VoiceError(f"{output}: there is no folder {Path(output).parent} to write to")
    with printed_warnings():
        voice = load(model).clone(reference, transcript, name=name, consent=consent)
    voice.save(Path(output))
    typer.echo(f"{output}: {describe_depth(voice)}")


@app.command()
def show(file: Annotated[str, typer.Argument(metavar="FILE", help="A voice file.")]) -> None:
    """Print what a voice file holds."""
    voice = Voice.load(Path(file))
    rows = {
        "name": voice.name,
        "kind": describe_depth(voice),
        "transcript": voice.prefix.transcript if voice.prefix else "none",
        "codec": voice.codec,
        "identity": f"{voice.identity_encoder} ({len(voice.identity)} numbers)",
        "style": f"{voice.style_encoder} ({len(voice.style)} numbers)",
        "source sha256": voice.source_sha256,
        "consent": voice.consent or "not recorded",
    }
    for label, value in rows.items():
        typer.echo(f"{label + ':':15}{value}")


def describe_depth(voice: Voice) -> str:
    """Shallow or deep, and how deep."""
    if voice.prefix is None:
        return "shallow voice (embeddings only)"
    return f"deep voice (embeddings, and a prefix of {len(voice.prefix.codes[0])} patches)"
