"""`marstts convert`: a published checkpoint and its tokenizer in, a bundle out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts import models
from marstts.bundle import PUBLISHED
from marstts.cli.terminal import check_utf8, warn
from marstts.codec.registry import parse_codec
from marstts.errors import ConfigError, check_installed
from marstts.file_errors import printable_name, printable_text
from marstts.onnx_build import EXPORT_PACKAGES
from marstts.precision import WeightFormat
from marstts.speaker.registry import parse_encoder


def convert(
    checkpoint: Annotated[Path, typer.Argument(metavar="RELEASED", help="model-….pt, or its safetensors variant.")],
    tokenizer: Annotated[Path, typer.Option(help="eng-tok-512.model.")],
    output: Annotated[Path, typer.Option(help="The folder to write; an older bundle there is replaced.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Add graphs that run without PyTorch.")] = False,
    weights: Annotated[
        WeightFormat | None,
        typer.Option(
            help="Format of the weights with --onnx; int8 is faster and smaller, but PyTorch cannot read it "
            "(default: float16 where nothing is lost, else float32)."
        ),
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(metavar="HEX", help="Refuse a checkpoint with any other hash than this.")
    ] = None,
    name: Annotated[str, typer.Option(help="The model's name.")] = PUBLISHED[0],
    codec: Annotated[str, typer.Option(help="`snac`, a codec's folder, or `toy:CODES`.")] = "snac",
    identity: Annotated[str, typer.Option(help="`wavlm`, an encoder's folder, or `toy:SIZE`.")] = "wavlm",
    style: Annotated[str, typer.Option(help="`clap`, an encoder's folder, or `toy:SIZE`.")] = "clap",
) -> None:
    """Convert the published MARS6 to a bundle."""
    check_utf8(name=name)
    check_installed(EXPORT_PACKAGES if onnx else ("torch",), "released")
    if weights is not None and not onnx:
        raise ConfigError(f"--weights {weights.value} is for graphs: give it with --onnx")
    config, found, without_codec = models.convert_published(
        checkpoint,
        tokenizer,
        output,
        onnx=onnx,
        weights=weights,
        name=name,
        sha256=sha256,
        codec=parse_codec(codec),
        encoders={"identity": parse_encoder(identity, "identity"), "style": parse_encoder(style, "style")},
    )
    typer.echo(f"{printable_name(checkpoint)}: SHA-256 {found}")
    if without_codec is not None:
        warn(f"the codec has no graphs and runs in PyTorch: {without_codec}")
    typer.echo(
        f"{printable_name(output)}: {printable_text(name)}, width {config.width}, "
        f"{config.encoder_layers} + {config.global_layers} + "
        f"{config.local_layers} layers, {config.text_vocab_size} text tokens, {config.codebook_size} codes per level"
    )
