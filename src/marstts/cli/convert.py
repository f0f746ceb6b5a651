"""`marstts convert`: the authors' checkpoint and tokenizer in, a folder that `marstts speak --model` takes out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.export import codec_part, encoder_part
from marstts.cli.terminal import warn
from marstts.errors import ConfigError
from marstts.mars6.quantise import Precision
from marstts.synthesis.conversion import TURBO
from marstts.synthesis.conversion import convert as convert_files


def convert(
    checkpoint: Annotated[Path, typer.Argument(metavar="RELEASED", help="model-….pt, or its safetensors variant.")],
    tokenizer: Annotated[Path, typer.Option(help="eng-tok-512.model.")],
    output: Annotated[Path, typer.Option(help="The folder to write; an older bundle there is replaced.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Add graphs that run without PyTorch.")] = False,
    precision: Annotated[
        Precision, typer.Option(help="Of the graphs; int8 speaks faster and is smaller, but runs in them alone.")
    ] = Precision.FLOAT32,
    sha256: Annotated[
        str | None, typer.Option(metavar="HEX", help="Refuse a checkpoint with any other hash than this.")
    ] = None,
    name: Annotated[str, typer.Option(help="What to call the model.")] = TURBO,
    codec: Annotated[str, typer.Option(help="`snac`, a codec's folder, or `toy:CODES`.")] = "snac",
    identity: Annotated[str, typer.Option(help="`wavlm`, an encoder's folder, or `toy:SIZE`.")] = "wavlm",
    style: Annotated[str, typer.Option(help="`clap`, an encoder's folder, or `toy:SIZE`.")] = "clap",
) -> None:
    """Turn the published MARS6 into a model that speaks here."""
    if precision is Precision.INT8 and not onnx:
        raise ConfigError("--precision int8 is for graphs: give it with --onnx")
    config, found, without_codec = convert_files(
        checkpoint,
        tokenizer,
        output,
        onnx=onnx,
        precision=precision,
        name=name,
        sha256=sha256,
        codec=codec_part(codec),
        identity=encoder_part(identity, "identity"),
        style=encoder_part(style, "style"),
    )
    typer.echo(f"{checkpoint}: SHA-256 {found}")
    if without_codec is not None:
        warn(f"the codec has no graphs and runs in PyTorch: {without_codec}")
    typer.echo(
        f"{output}: {name}, width {config.width}, {config.encoder_layers} + {config.global_layers} + "
        f"{config.local_layers} layers, {config.text_vocab_size} text tokens, {config.codebook_size} codes per level"
    )
