"""`marstts voice`: create, list and inspect voices.

Upstream: the shell.  Downstream: `synthesis.clone`, `synthesis.clone.voices`, voice files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import check_not_read, check_utf8, print_prefix, printed_warnings
from marstts.errors import VoiceError
from marstts.io.reading import printable_name, printable_text
from marstts.synthesis.clone.voices import voice_table
from marstts.synthesis.loading import load
from marstts.voice import Voice

app = typer.Typer(help="Create, list and inspect voices.", no_args_is_help=True)


@app.command()
def create(
    references: Annotated[
        list[str],
        typer.Argument(
            metavar="REF.wav...", help="A recording of the voice, or several of them, which makes words clearer."
        ),
    ],
    name: Annotated[str, typer.Option(help="The voice's name.")],
    output: Annotated[str, typer.Option(metavar="NAME.voice", help="The file to write.")],
    transcript: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The words of the first recording: makes the clone deep.")
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="The model the voice is for.")] = "mini",
    consent: Annotated[
        str, typer.Option(metavar="TEXT", help="Who agreed to the cloning, and how; kept in the file.")
    ] = "",
    keep_reference: Annotated[
        bool,
        typer.Option(help="Keep the first recording in the file, so that other models can clone it again."),
    ] = True,
) -> None:
    """Clone the voice of one or more recordings and write it to a file."""
    check_utf8(name=name, transcript=transcript, consent=consent)
    if not Path(output).parent.is_dir():
        raise VoiceError(f"{printable_name(output)}: there is no folder {printable_name(Path(output).parent)}")
    check_not_read([output], *references)
    with printed_warnings():
        synthesizer = load(model)
        voice = synthesizer.clone([*references], transcript, name=name, consent=consent, keep_reference=keep_reference)
    print_prefix(voice, synthesizer.codec.spec.patch_rate)
    voice.save(Path(output))
    typer.echo(f"{printable_name(output)}: {describe_depth(voice)}")


@app.command("list")
def list_voices(
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the voices in the package."""
    table = voice_table()
    if json_output:
        typer.echo(json.dumps([entry.model_dump() for entry in table.voices], ensure_ascii=False, indent=2))
        return
    for entry in table.voices:
        mark = " (default)" if entry.name == table.default else ""
        typer.echo(f"{entry.name + mark:20} {entry.description}; {entry.license}")


@app.command()
def show(file: Annotated[str, typer.Argument(metavar="FILE", help="A voice file.")]) -> None:
    """Print the contents of a voice file."""
    voice = Voice.load(Path(file))
    rows = {
        "name": voice.name,
        "kind": describe_depth(voice),
        "transcript": voice.prefix.transcript if voice.prefix else "none",
        **({"words kept": voice.reference_transcript} if voice.reference_transcript else {}),
        "codec": voice.codec,
        **{role: f"{voice.encoders[role]} ({len(values)} numbers)" for role, values in voice.embeddings.items()},
        "made by": voice.model or "not recorded",
        "source sha256": voice.source_sha256,
        "consent": voice.consent or "not recorded",
        "reference": f"kept, {len(voice.reference) / 1000:.0f} kB" if voice.reference else "not kept",
    }
    for label, value in rows.items():
        typer.echo(f"{printable_text(label) + ':':15}{printable_text(value)}")


def describe_depth(voice: Voice) -> str:
    """Describe a voice as shallow or deep."""
    if voice.prefix is None:
        return "shallow voice (embeddings only)"
    return f"deep voice (embeddings, and a prefix of {len(voice.prefix.codes[0])} patches)"
