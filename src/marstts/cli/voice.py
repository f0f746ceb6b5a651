"""`marstts voice`: create, mix, list, inspect, rename and delete voices.

Upstream: the shell.  Downstream: `synthesis.clone`, voice files; `synthesis.clone.voice_folder` has the user's own.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from marstts import audio
from marstts.cli.terminal import check_not_read, check_utf8, print_prefix, printed_warnings, say, say_json
from marstts.errors import VoiceError
from marstts.io.reading import printable_name, printable_text
from marstts.synthesis.clone.packaged import VOICE_SUFFIX, packaged_names, voice_table
from marstts.synthesis.clone.voice_folder import KeptVoice, own_voices
from marstts.synthesis.clone.voices import find_voice
from marstts.synthesis.loading import load
from marstts.voice import Voice, mix_voices

MAX_CONSENT = 60
"""Characters of a consent note in a list."""

app = typer.Typer(help="Create, mix, list, inspect, rename and delete voices.", no_args_is_help=True)


@app.command()
def create(
    references: Annotated[
        list[str],
        typer.Argument(
            metavar="REF.wav...", help="A recording of the voice, or several of them, which makes words clearer."
        ),
    ],
    name: Annotated[str, typer.Option(help="The voice's name.")],
    output: Annotated[
        str | None,
        typer.Option(
            metavar="NAME.voice", help="A file to write, instead of keeping the voice with your own under its name."
        ),
    ] = None,
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
    """Clone the voice of one or more recordings and keep it, so that --voice NAME speaks in it everywhere."""
    check_utf8(name=name, transcript=transcript, consent=consent)
    check_not_read([output], *references)
    check_new(name, output)
    with printed_warnings():
        synthesizer = load(model)
        voice = synthesizer.clone([*references], transcript, name=name, consent=consent, keep_reference=keep_reference)
    print_prefix(voice, synthesizer.session.codec.spec.patch_rate)
    keep(voice, output)


@app.command()
def mix(
    parts: Annotated[
        list[str],
        typer.Argument(metavar="VOICE:WEIGHT...", help="Voices by name or file, each with its share, such as ada:0.6."),
    ],
    name: Annotated[str, typer.Option(help="The new voice's name.")],
    output: Annotated[
        str | None,
        typer.Option(metavar="NAME.voice", help="A file to write, instead of keeping the voice with your own."),
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME_OR_FOLDER", help="The model the voices are for.")] = "mini",
) -> None:
    """Mix voices into a new one, which is between them."""
    check_utf8(name=name)
    shares = [read_share(part) for part in parts]
    check_not_read([output], *(voice for voice, _ in shares))
    check_new(name, output)
    with printed_warnings():
        synthesizer = load(model)
        voice = mix_voices([(synthesizer.open_voice(each), weight) for each, weight in shares], name)
    keep(voice, output)


def read_share(part: str) -> tuple[str, float]:
    """A voice and its share, of `VOICE:WEIGHT`; without a weight, 1."""
    voice, _, weight = part.rpartition(":")
    try:
        return voice, float(weight)
    except ValueError:
        return part, 1.0


def check_new(name: str, output: str | None) -> None:
    """Raise VoiceError where a voice cannot be kept under its name or written."""
    if output is None:
        own_voices().check_free(name)
    elif Path(output).suffix.lower() in audio.SUFFIXES:
        raise VoiceError(f"{printable_name(output)}: expected a name ending in {VOICE_SUFFIX}, not that of a recording")
    elif not Path(output).parent.is_dir():
        raise VoiceError(f"{printable_name(output)}: there is no folder {printable_name(Path(output).parent)}")


def keep(voice: Voice, output: str | None) -> None:
    """Keep a voice with the user's own, or write it, and say what it is."""
    if output is None:
        own_voices().add(voice)
    else:
        voice.save(Path(output))
    say(f"{printable_name(output or voice.name)}: {describe_depth(voice)}")


@app.command("list")
def list_voices(
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the voices in the package, and your own."""
    table, own = voice_table(), own_voices().entries()
    if json_output:
        rows = [*(entry.model_dump() for entry in table.voices), *map(own_row, own)]
        say_json(rows, indent=2)
        return
    for entry in table.voices:
        mark = " (default)" if entry.name == table.default else ""
        say(f"{entry.name + mark:20} {entry.description}; {entry.license}")
    for row in map(own_row, own):
        say(f"{printable_text(row['name']):20} {row['description']}")


@app.command()
def show(
    voice_name: Annotated[
        str, typer.Argument(metavar="NAME_OR_FILE", help="A voice of `marstts voice list`, or a voice file.")
    ],
) -> None:
    """Print the contents of a voice."""
    voice = Voice.load(find_voice(voice_name))
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
        say(f"{printable_text(label) + ':':15}{printable_text(value)}")


@app.command()
def rename(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of your own voices.")],
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="Its new name.")],
) -> None:
    """Rename one of your own voices."""
    check_utf8(name=name, new_name=new_name)
    check_own(name)
    renamed = own_voices().rename(name, new_name)
    say(f"{printable_text(name)} is now {printable_text(renamed.name)}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Your own voices to delete.")],
) -> None:
    """Delete one or more of your own voices, with the recordings that they keep."""
    check_utf8(**{f"name {number}": name for number, name in enumerate(names, 1)})
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        check_own(name)
    for name in chosen:
        say(f"deleted {printable_text(own_voices().delete(name).name)}")


def check_own(name: str) -> None:
    """Raise an error unless this is one of the user's own voices."""
    if name in packaged_names():
        raise VoiceError(f"{name}: a packaged voice can be neither renamed nor deleted; these are for your own voices")
    own_voices().require(name)


def own_row(voice: KeptVoice) -> dict[str, str]:
    """One of the user's own voices as it is listed."""
    made = date.fromtimestamp(voice.created_at).isoformat()
    consent = f"; consent: {printable_text(voice.consent, MAX_CONSENT)}" if voice.consent else ""
    return {
        "name": voice.name,
        "description": f"your own, {voice.kind}, of {made}{consent}",
        "license": "",
        "source": "a recording",
        "id": voice.id,
        "kind": voice.kind,
        "consent": voice.consent,
    }


def describe_depth(voice: Voice) -> str:
    """Describe a voice as shallow or deep."""
    if voice.prefix is None:
        return "shallow voice (embeddings only)"
    return f"deep voice (embeddings, and a prefix of {len(voice.prefix.codes[0])} patches)"
