"""`marstts doctor`: published weights in, one page that says what they are and where they differ."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from marstts import models
from marstts.bundle import PUBLISHED
from marstts.cli.terminal import warn
from marstts.codec.registry import parse_codec
from marstts.errors import CheckpointError, ConfigError, MissingExtraError, check_installed
from marstts.evaluation.published_weights import Release, examine, page
from marstts.io.files import write_file
from marstts.io.reading import printable_name
from marstts.metrics.recognition import FasterWhisperRecognizer, Recognizer
from marstts.speaker.registry import parse_encoder


def doctor(
    model: Annotated[str, typer.Argument(help=f"A published model: {' or '.join(PUBLISHED)}.")],
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("doctor.md"),
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            help="A file of the release that is there already. In order: of MARS6 checkpoint and tokenizer, of MARS5 "
            "AR and NAR (default: they are fetched).",
        ),
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Recording to clone (default: the default voice).")] = None,
    codec: Annotated[str | None, typer.Option(help="Codec (default: the published one).")] = None,
    identity: Annotated[str | None, typer.Option(help="Identity encoder of a MARS6 (default: `wavlm`).")] = None,
    style: Annotated[str | None, typer.Option(help="Style encoder of a MARS6 (default: `clap`).")] = None,
) -> None:
    """Compare published weights with what is recorded of them, let them speak, and write a page to send back."""
    if model not in PUBLISHED:
        raise ConfigError(f"{model!r} is no published model; expected {' or '.join(PUBLISHED)}")
    check_installed(("torch",), "released")
    paths = tuple(files) if files else models.fetch_published(model)
    if len(paths) != 2:
        raise ConfigError(f"a release has two files, not {len(paths)}; give --file twice, or not at all")
    roles = ("checkpoint", "tokenizer") if model == PUBLISHED[0] else ("ar", "nar")
    encoders = {"identity": identity, "style": style}
    release = Release(
        model,
        dict(zip(roles, paths, strict=True)),
        None if codec is None else parse_codec(codec),
        {role: parse_encoder(name, role) for role, name in encoders.items() if name is not None},
    )
    recognizer, note = open_whisper()
    with tempfile.TemporaryDirectory() as work:
        found = examine(
            release, Path(work), reference=reference, recognizer=recognizer,
            on_step=lambda step: typer.echo(step, err=True),
        )  # fmt: skip
    found = replace(found, notes=(*found.notes, *([note] if note else [])))
    write_file(output, page(found))
    if note:
        warn(note)
    total, differing = len(found.checks), len(found.differences)
    typer.echo(f"{printable_name(output)}: {differing} of {total} checks differ from what is recorded")


def open_whisper() -> tuple[Recognizer | None, str | None]:
    """Whisper, or one sentence that says why there is none."""
    try:
        return FasterWhisperRecognizer(), None
    except (MissingExtraError, CheckpointError) as error:
        return None, f"the speech was not transcribed, because there is no Whisper: {error}"
