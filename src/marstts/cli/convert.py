"""`marstts convert`: a published MARS6 or MARS5 in, a bundle out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts import models
from marstts.bundle import PUBLISHED
from marstts.cli.part_options import given, refuse_with_nar
from marstts.cli.terminal import check_utf8, say
from marstts.codec.registry import parse_codec
from marstts.errors import ConfigError, check_installed
from marstts.io.precision import WeightFormat
from marstts.io.reading import printable_name, printable_text
from marstts.onnx.build import EXPORT_PACKAGES
from marstts.speaker.registry import parse_encoder


def convert(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="RELEASED", help="model-….pt, or its safetensors variant; of MARS5, the AR's file."),
    ],
    output: Annotated[Path, typer.Option(help="The folder to write; an older bundle there is replaced.")],
    tokenizer: Annotated[Path | None, typer.Option(help="eng-tok-512.model (MARS6).")] = None,
    nar: Annotated[Path | None, typer.Option(help="The NAR's file: RELEASED is the AR of a MARS5.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Add graphs that run without PyTorch.")] = False,
    weights: Annotated[
        WeightFormat | None,
        typer.Option(
            help="Format of the weights with --onnx; int8 is faster and smaller "
            "(default: float16 where nothing is lost, else float32)."
        ),
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(metavar="HEX", help="Refuse a checkpoint with any other hash than this.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help=f"The model's name (default: {PUBLISHED[0]}; of MARS5 {PUBLISHED[1]}).")
    ] = None,
    codec: Annotated[
        str | None, typer.Option(help="A codec's folder, or its name (default: `snac`; of MARS5 `encodec`).")
    ] = None,
    identity: Annotated[
        str | None, typer.Option(help="An encoder's folder, or `toy:SIZE` (default: `wavlm`; MARS5 has its own).")
    ] = None,
    style: Annotated[
        str | None, typer.Option(help="An encoder's folder, or `toy:SIZE` (default: `clap`; MARS5 has its own).")
    ] = None,
) -> None:
    """Convert the published MARS6, or with --nar MARS5, to a bundle."""
    check_utf8(**given(name=name))
    if nar is not None:
        refuse_with_nar(
            tokenizer=tokenizer, onnx=onnx or None, weights=weights, sha256=sha256, identity=identity, style=style
        )
        convert_mars5(checkpoint, nar, output, name or PUBLISHED[1], codec or "encodec")
        return
    if tokenizer is None:
        raise ConfigError("a MARS6 needs its --tokenizer, a MARS5 the file of its --nar; give one of the two")
    convert_mars6(
        checkpoint, tokenizer, output, onnx, weights, sha256, name or PUBLISHED[0], codec or "snac",
        {"identity": identity or "wavlm", "style": style or "clap"},
    )  # fmt: skip


def convert_mars5(ar: Path, nar: Path, output: Path, name: str, codec: str) -> None:
    """Write the bundle of a MARS5, and print its sizes."""
    check_installed(("torch",), "released")
    config = models.convert_published_mars5(ar, nar, output, name=name, codec=parse_codec(codec))
    say(
        f"{printable_name(output)}: {printable_text(name)}, AR of width {config.ar.width} with {config.ar.layers} "
        f"layers, NAR of width {config.nar.width} with {config.nar.encoder_layers} + {config.nar.decoder_layers} layers"
    )


def convert_mars6(
    checkpoint: Path,
    tokenizer: Path,
    output: Path,
    onnx: bool,
    weights: WeightFormat | None,
    sha256: str | None,
    name: str,
    codec: str,
    encoders: dict[str, str],
) -> None:
    """Write the bundle of a MARS6, and print its hash and sizes."""
    check_installed(EXPORT_PACKAGES if onnx else ("torch",), "released")
    if weights is not None and not onnx:
        raise ConfigError(f"--weights {weights.value} is for graphs: give it with --onnx")
    config, found = models.convert_published(
        checkpoint,
        tokenizer,
        output,
        onnx=onnx,
        weights=weights,
        name=name,
        sha256=sha256,
        codec=parse_codec(codec),
        encoders={role: parse_encoder(encoder, role) for role, encoder in encoders.items()},
    )
    say(f"{printable_name(checkpoint)}: SHA-256 {found}")
    say(
        f"{printable_name(output)}: {printable_text(name)}, width {config.width}, "
        f"{config.encoder_layers} + {config.global_layers} + "
        f"{config.local_layers} layers, {config.text_vocab_size} text tokens, {config.codebook_size} codes per level"
    )
