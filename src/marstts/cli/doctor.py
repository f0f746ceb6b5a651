"""`marstts doctor`: a model examined before it is used, or a machine before a recipe begins; each fault is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.bundle import PUBLISHED
from marstts.cli.terminal import say
from marstts.codec.registry import parse_codec
from marstts.doctor import EXTRAS, Examination, Needs, Parts, examine_machine, examine_model
from marstts.errors import CheckpointError, ConfigError, check_installed
from marstts.io.reading import printable_text
from marstts.speaker.registry import parse_encoder
from marstts.weights.examination import Kind


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(help=f"{' or '.join(PUBLISHED)}, or a bundle's name or folder; none: the machine alone."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            help="A file of the release that is there already. In order: of MARS6 checkpoint and tokenizer, of MARS5 "
            "AR and NAR (default: they are fetched).",
        ),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Store digests and likelihoods, with which later runs are compared.")
    ] = False,
    speech: Annotated[bool, typer.Option("--speech/--no-speech", help="Speak three sentences.")] = True,
    reference: Annotated[Path | None, typer.Option(help="Recording to clone (default: the default voice).")] = None,
    codec: Annotated[str | None, typer.Option(help="Codec (default: the model's); without MODEL, one to open.")] = None,
    identity: Annotated[str | None, typer.Option(help="Identity encoder, likewise.")] = None,
    style: Annotated[str | None, typer.Option(help="Style encoder, likewise.")] = None,
    extra: Annotated[
        list[str] | None, typer.Option(help=f"Check the packages of an extra: {', '.join(EXTRAS)}; may be repeated.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Check that PyTorch finds this device: cuda or cpu.")] = None,
    folder: Annotated[Path | None, typer.Option(help="A folder that will be written to.")] = None,
    free_gb: Annotated[float, typer.Option(min=0, help="GB that must be free on the disk of --folder.")] = 0.0,
    metrics: Annotated[str | None, typer.Option(help="Fetch the weights of metrics, as `evaluate` names them.")] = None,
) -> None:
    """Examine a model's files, tensors and likelihood before it is used, or a machine before a recipe begins."""
    encoders = {"identity": identity, "style": style}
    parts = Parts(
        None if codec is None else parse_codec(codec),
        {role: parse_encoder(name, role) for role, name in encoders.items() if name is not None},
    )
    if unknown := [name for name in extra or () if name not in EXTRAS]:
        raise ConfigError(f"--extra {unknown[0]}: expected some of {', '.join(EXTRAS)}")
    if free_gb and folder is None:
        raise ConfigError(f"--free-gb {free_gb:g} is of the disk of a --folder, but none is given")
    needs = Needs(Parts() if model else parts, extra or (), device, folder, free_gb, metrics)
    if model is None:
        if needs == Needs() or files or record or reference:
            raise ConfigError("there is nothing to examine: name a model, or give --codec, --extra, --device, --folder")
        show_machine(needs)
        return
    if files is not None and (len(files) != 2 or model not in PUBLISHED):
        raise ConfigError(f"--file is given twice for {' or '.join(PUBLISHED)}, not {len(files)} times for {model}")
    show_machine(needs)
    check_installed(("torch",), "torch")
    paths = None if files is None else (files[0], files[1])
    found = examine_model(
        model, paths, parts, record=record, reference=reference, speaks=speech,
        on_step=lambda step: say(step, err=True),
    )  # fmt: skip
    show(found)


def show_machine(needs: Needs) -> None:
    """Print what a machine lacks, and end there."""
    findings = examine_machine(needs)
    for finding in findings:
        say(str(finding))
    if findings:
        raise ConfigError(f"{len(findings)} of the things that are needed are missing, see above")


def show(found: Examination) -> None:
    """Print an examination, and raise where there is something with which the model is not used."""
    name = printable_text(found.model, 100)
    for kind in Kind:
        for finding in found.of(kind):
            say(f"{kind.value}: {finding}")
    for note in found.notes:
        say(printable_text(note, 600))
    bad = len(found.of(Kind.DEFECT)) + len(found.of(Kind.DIFFERENCE))
    if bad:
        raise CheckpointError(f"{name}: {bad} lines above name what is wrong")
    say(f"{name}: nothing is wrong{' but for what is doubtful above' if found.findings else ''}")
