"""`marstts export`: a trained MARS6 and all it speaks with, as one folder that `marstts speak --model` takes.
`marstts optimise`: the same folder made faster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from marstts.checkpoint import (
    ClapPart,
    CodecPart,
    EncoderPart,
    MiniPart,
    SnacPart,
    ToyCodecPart,
    ToyEncoderPart,
    WavLmPart,
    find_bundle,
    read_info,
    rewrite_bundle,
)
from marstts.cli.terminal import warn
from marstts.cli.tokenize import toy_size
from marstts.errors import DataError
from marstts.mars6.quantise import Precision


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="What `marstts train mars6` wrote.")],
    name: Annotated[str, typer.Option(help="What to call the model; voices do not depend on it.")],
    output: Annotated[Path, typer.Option(help="The folder to write; an older bundle there is replaced.")],
    codec: Annotated[
        str | None, typer.Option(help="The codec's folder, `snac`, or `toy:CODES`: the one of the shards.")
    ] = None,
    identity: Annotated[str | None, typer.Option(help="The identity encoder's folder, `wavlm`, or `toy:SIZE`.")] = None,
    style: Annotated[str | None, typer.Option(help="The style encoder's folder, `clap`, or `toy:SIZE`.")] = None,
    like: Annotated[
        str | None,
        typer.Option(help="Model that lends its codec, encoders and settings, e.g. the one before tuning."),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json (default: the run's own).")] = None,
    quality: Annotated[
        int | None, typer.Option(help="Sample rate (Hz) that speech is asked to sound like (default: 48000).")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Where backoff starts by default (default: the paper's 0.2).")
    ] = None,
    guidance: Annotated[
        float | None,
        typer.Option(
            min=1.0, help="How strongly it keeps to its words, if it learnt without them, too (default: 1, not at all)."
        ),
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="int8 speaks faster and is smaller, but cannot be trained further.")
    ] = Precision.FLOAT32,
) -> None:
    """Bundle a trained MARS6 with its codec and encoders, as graphs that need no PyTorch."""
    from marstts.checkpoint import TOKENIZER_FILE, export_bundle
    from marstts.mars6.generate import SamplingConfig
    from marstts.text.bpe import BPE
    from marstts.training.pretrain import trained_model

    folder = None if like is None else find_bundle(like)
    before = None if folder is None else read_info(folder)
    sampling = SamplingConfig() if before is None else before.sampling
    parts: dict[str, Any] = {
        "codec": part_like(folder, "codec") if codec is None else codec_part(codec),
        "identity": part_like(folder, "identity") if identity is None else encoder_part(identity, "identity"),
        "style": part_like(folder, "style") if style is None else encoder_part(style, "style"),
    }
    export_bundle(
        output,
        trained_model(run),
        BPE.load(tokenizer or run / TOKENIZER_FILE),
        **parts,
        name=name,
        quality=quality or (48_000 if before is None else before.quality),
        sampling=sampling if top_p is None else sampling.model_copy(update={"top_p": top_p}),
        guidance=guidance or (1.0 if before is None else before.guidance),
        precision=precision,
    )
    typer.echo(f"{output}: {name}, {megabytes(output):.1f} MB")


def optimise(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundle with graphs, by name or folder.")],
    output: Annotated[Path, typer.Option(help="The folder to write; an older bundle there is replaced.")],
    precision: Annotated[
        Precision, typer.Option(help="int8 speaks faster and is smaller, but cannot be trained further.")
    ] = Precision.INT8,
) -> None:
    """Write a bundle's graphs anew from its weights, in integers or in single precision."""
    reason = rewrite_bundle(model, output, precision)
    if reason is not None:
        warn(f"the codec stays as it was: {reason}")
    typer.echo(f"{output}: {precision.value}, {megabytes(output):.1f} MB")


def megabytes(folder: Path) -> float:
    """What all its files take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def part_like(folder: Path | None, role: str) -> Any:
    """The codec or encoder of the bundle in `folder`: where it lies, or its description."""
    if folder is None:
        raise DataError(f"say with --{role} which one the model learnt with, or with --like which model has the same")
    part = getattr(read_info(folder), role)
    return folder / role if isinstance(part, MiniPart) else part


def codec_part(name: str) -> Path | CodecPart:
    """A mini codec's folder, `snac`, `toy` or `toy:CODES`, as a bundle describes it."""
    if name == "snac":
        return SnacPart()
    size = toy_size(name)
    return Path(name) if size is None else ToyCodecPart(codebook_size=size)


def encoder_part(name: str, role: str) -> Path | EncoderPart:
    """A mini encoder's folder, `wavlm` for identity, `clap` for style, `toy` or `toy:SIZE`."""
    if role == "identity" and name == "wavlm":
        return WavLmPart()
    if role == "style" and name == "clap":
        return ClapPart()
    size = toy_size(name)
    return Path(name) if size is None else ToyEncoderPart(size=size)
