"""`marstts tokenize`: from a manifest of recordings to shards of codes and embeddings."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from marstts.codec.base import Codec
from marstts.codec.mini import MiniCodec
from marstts.codec.snac import SnacCodec
from marstts.codec.toy import ToyCodec
from marstts.data.tokenize import MAX_SECONDS, MIN_SECONDS, UTTERANCES_PER_SHARD, Ears, tokenize_manifest
from marstts.errors import ConfigError
from marstts.speaker.base import SpeakerEncoder
from marstts.speaker.clap import ClapEncoder
from marstts.speaker.mini import MiniSpeakerEncoder
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.speaker.wavlm import WavLmEncoder

TOY_SIZE = 64
"""Codes per level, or length of the embedding, of `toy` without a size."""


def tokenize(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl of a corpus, see `marstts prepare`.")],
    output: Annotated[Path, typer.Option(help="Folder for the shards; goes on where it stopped.")],
    codec: Annotated[str, typer.Option(help="A trained codec's folder, `snac`, or `toy:CODES`.")],
    identity: Annotated[str, typer.Option(help="A trained identity encoder's folder, `wavlm`, or `toy:SIZE`.")],
    style: Annotated[str, typer.Option(help="A trained style encoder's folder, `clap`, or `toy:SIZE`.")],
    workers: Annotated[int, typer.Option(min=1, help="Processes that listen at the same time.")] = 1,
    shard_size: Annotated[int, typer.Option(min=1, help="Utterances per shard.")] = UTTERANCES_PER_SHARD,
    min_seconds: Annotated[float, typer.Option(help="Leave out shorter recordings.")] = MIN_SECONDS,
    max_seconds: Annotated[float, typer.Option(help="Leave out longer recordings.")] = MAX_SECONDS,
) -> None:
    """Turn a corpus into shards: the codes of every utterance, and how its speaker sounds."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are the parallelism; read by those they start
    report = tokenize_manifest(
        manifest,
        output,
        partial(load_ears, codec, identity, style),
        workers=workers,
        utterances_per_shard=shard_size,
        min_seconds=min_seconds,
        max_seconds=max_seconds,
        say=typer.echo,
    )
    typer.echo(
        f"{output}: {report.utterances} utterances in {report.shards} shards, {report.shards_made} of them made now; "
        f"{report.rejects} left out, see rejects.jsonl"
    )


def load_ears(codec: str, identity: str, style: str) -> Ears:
    """The three models of these names."""
    return Ears(load_codec(codec), load_encoder(identity, "identity"), load_encoder(style, "style"))


def load_codec(name: str) -> Codec:
    """A mini codec's folder, `snac`, `toy` or `toy:CODES`."""
    if name == "snac":
        return SnacCodec()
    size = toy_size(name)
    return MiniCodec(Path(name)) if size is None else ToyCodec(size)


def load_encoder(name: str, kind: str) -> SpeakerEncoder:
    """A mini encoder's folder, `wavlm` for identity, `clap` for style, `toy` or `toy:SIZE`."""
    if kind == "identity" and name == "wavlm":
        return WavLmEncoder()
    if kind == "style" and name == "clap":
        return ClapEncoder()
    size = toy_size(name)
    if size is None:
        return MiniSpeakerEncoder(Path(name))
    return ToySpeakerEncoder("identity" if kind == "identity" else "style", size)


def toy_size(name: str) -> int | None:
    """The size in `toy:SIZE`, the usual one for `toy`, None for other names; ConfigError if it is no number."""
    kind, _, size = name.partition(":")
    if kind != "toy":
        return None
    if size and not (size.isdigit() and int(size) >= 4):
        raise ConfigError(f"{name}: expected toy:SIZE with a whole number of at least 4, e.g. toy:{TOY_SIZE}")
    return int(size) if size else TOY_SIZE
