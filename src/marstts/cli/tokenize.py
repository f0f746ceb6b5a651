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
from marstts.config import parse_config
from marstts.data.listening import Ears, ListeningConfig, Trim
from marstts.data.tokenize import MAX_REJECT_SHARE, UTTERANCES_PER_SHARD, tokenize_manifest
from marstts.data.workers import Processes, RayCluster
from marstts.errors import ConfigError
from marstts.speaker.base import SpeakerEncoder
from marstts.speaker.clap import ClapEncoder
from marstts.speaker.mini import MiniSpeakerEncoder
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.speaker.wavlm import WavLmEncoder

TOY_SIZE = 64
"""Codes per level, or length of the embedding, of `toy` without a size."""


DEFAULTS = ListeningConfig()


def tokenize(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl of a corpus, see `marstts prepare`.")],
    output: Annotated[Path, typer.Option(help="Folder for the shards; goes on where it stopped.")],
    codec: Annotated[str, typer.Option(help="A trained codec's folder, `snac`, or `toy:CODES`.")],
    identity: Annotated[str, typer.Option(help="A trained identity encoder's folder, `wavlm`, or `toy:SIZE`.")],
    style: Annotated[str, typer.Option(help="A trained style encoder's folder, `clap`, or `toy:SIZE`.")],
    workers: Annotated[int, typer.Option(min=1, help="Processes (with --ray, actors) that listen at one time.")] = 1,
    ray: Annotated[
        str | None, typer.Option(help="Ray cluster that does the work: HOST:PORT, `auto`, or `local`.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where `snac`, `wavlm` and `clap` run, such as cpu or cuda.")] = "cpu",
    shard_size: Annotated[int, typer.Option(min=1, help="Utterances per shard.")] = UTTERANCES_PER_SHARD,
    min_seconds: Annotated[float, typer.Option(help="Leave out shorter recordings.")] = DEFAULTS.min_seconds,
    max_seconds: Annotated[float, typer.Option(help="Leave out longer recordings.")] = DEFAULTS.max_seconds,
    trim: Annotated[Trim, typer.Option(help="What to cut off at both ends.")] = DEFAULTS.trim,
    loudness: Annotated[float | None, typer.Option(help="Bring recordings to so many LUFS, e.g. -23.")] = None,
    min_speech: Annotated[
        float, typer.Option(help="Leave out recordings with a smaller share of speech.")
    ] = DEFAULTS.min_speech_share,
    max_clipped: Annotated[
        float, typer.Option(help="Leave out recordings with a larger share of clipped samples.")
    ] = DEFAULTS.max_clipped_share,
    min_pace: Annotated[
        float, typer.Option(help="Leave out texts with fewer characters per second.")
    ] = DEFAULTS.min_characters_per_second,
    max_pace: Annotated[
        float | None, typer.Option(help="Leave out texts with more characters per second.")
    ] = DEFAULTS.max_characters_per_second,
    batch: Annotated[int, typer.Option(help="Recordings the codec gets at a time.")] = DEFAULTS.batch_size,
    max_rejects: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Stop when a larger share cannot be used.")
    ] = MAX_REJECT_SHARE,
) -> None:
    """Turn a corpus into shards: the codes of every utterance, and how its speaker sounds."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are the parallelism; read by those they start
    values = {
        "min_seconds": min_seconds, "max_seconds": max_seconds, "trim": trim, "loudness_lufs": loudness,
        "min_speech_share": min_speech, "max_clipped_share": max_clipped, "min_characters_per_second": min_pace,
        "max_characters_per_second": max_pace, "batch_size": batch,
    }  # fmt: skip
    gpus = 1.0 if device.startswith("cuda") else 0.0
    report = tokenize_manifest(
        manifest,
        output,
        partial(load_ears, codec, identity, style, device),
        config=parse_config(ListeningConfig, values, "marstts tokenize"),
        utterances_per_shard=shard_size,
        max_reject_share=max_rejects,
        engine=Processes(workers) if ray is None else RayCluster(ray, workers, gpus),
        say=typer.echo,
    )
    typer.echo(
        f"{output}: {report.utterances} utterances in {report.shards} shards, {report.shards_made} of them made now; "
        f"{report.rejects} left out, see rejects.jsonl"
    )


def load_ears(codec: str, identity: str, style: str, device: str = "cpu") -> Ears:
    """The three models of these names."""
    return Ears(
        load_codec(codec, device), load_encoder(identity, "identity", device), load_encoder(style, "style", device)
    )


def load_codec(name: str, device: str = "cpu") -> Codec:
    """A mini codec's folder, `snac`, `toy` or `toy:CODES`; `device` is SNAC's, the others know the CPU alone."""
    if name == "snac":
        return SnacCodec(device=device)
    size = toy_size(name)
    return MiniCodec(Path(name)) if size is None else ToyCodec(size)


def load_encoder(name: str, kind: str, device: str = "cpu") -> SpeakerEncoder:
    """A mini encoder's folder, `wavlm` for identity, `clap` for style, `toy` or `toy:SIZE`; `device` is that of the
    published ones.
    """
    if kind == "identity" and name == "wavlm":
        return WavLmEncoder(device=device)
    if kind == "style" and name == "clap":
        return ClapEncoder(device=device)
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
