"""`marstts tokenize`: from a manifest of recordings to shards of codes and embeddings."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from marstts.cli.terminal import say
from marstts.codec.registry import open_codec
from marstts.io.config import parse_config
from marstts.io.reading import printable_name
from marstts.speaker.registry import open_encoder
from marstts_lab.cli.ray_option import Ray
from marstts_lab.data.preprocess import Encoders, PreprocessConfig
from marstts_lab.data.ray_cluster import open_executor
from marstts_lab.data.tokenize import MAX_REJECT_RATIO, UTTERANCES_PER_SHARD, tokenize_manifest
from marstts_lab.data.workers import visible_gpus

DEFAULTS = PreprocessConfig()


def tokenize(
    manifest: Annotated[Path, typer.Argument(help="utterances.jsonl of a corpus, see `marstts prepare`.")],
    output: Annotated[Path, typer.Option(help="Folder for the shards; an interrupted run resumes.")],
    codec: Annotated[str, typer.Option(help="A trained codec's folder, `snac`, or `toy:CODES`.")],
    identity: Annotated[str, typer.Option(help="A trained identity encoder's folder, `wavlm`, or `toy:SIZE`.")],
    style: Annotated[str, typer.Option(help="A trained style encoder's folder, `clap`, or `toy:SIZE`.")],
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes; by default one, or with --device cuda one for each GPU. With --ray, workers; by default "
            "one for each processor or GPU of the cluster.",
            show_default=False,
        ),
    ] = None,
    ray: Ray = None,
    device: Annotated[
        str, typer.Option(help="Where `snac`, `wavlm` and `clap` run: cpu, or cuda for all GPUs in turn.")
    ] = "cpu",
    shard_size: Annotated[int, typer.Option(min=1, help="Utterances per shard.")] = UTTERANCES_PER_SHARD,
    min_seconds: Annotated[float, typer.Option(help="Leave out shorter recordings.")] = DEFAULTS.min_seconds,
    max_seconds: Annotated[float, typer.Option(help="Leave out longer recordings.")] = DEFAULTS.max_seconds,
    loudness: Annotated[float | None, typer.Option(help="Target loudness in LUFS, such as -23.")] = None,
    batch_size: Annotated[int, typer.Option(help="Recordings that are encoded at a time.")] = DEFAULTS.batch_size,
    max_reject_ratio: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Stop when a larger fraction cannot be used.")
    ] = MAX_REJECT_RATIO,
) -> None:
    """Turn a corpus into shards: codes and speaker embeddings of every utterance."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are the parallelism; read by those they start
    values = {
        "min_seconds": min_seconds,
        "max_seconds": max_seconds,
        "loudness_lufs": loudness,
        "batch_size": batch_size,
    }
    gpus = visible_gpus() if device == "cuda" and ray is None else []
    report = tokenize_manifest(
        manifest,
        output,
        partial(load_encoders, codec, identity, style, device),
        config=parse_config(PreprocessConfig, values, "marstts tokenize"),
        utterances_per_shard=shard_size,
        max_reject_ratio=max_reject_ratio,
        executor=open_executor(workers, ray, gpus=gpus, needs_gpu=device.startswith("cuda")),
    )
    say(
        f"{printable_name(output)}: {report.utterances} utterances in {report.shards} shards, "
        f"{report.shards_made} of them made now; "
        f"{report.rejects} rejected, see rejects.jsonl"
    )


def load_encoders(codec: str, identity: str, style: str, device: str = "cpu") -> Encoders:
    """The codec and the speaker encoders of these names."""
    speaker = {
        "identity": open_encoder(identity, "identity", device=device),
        "style": open_encoder(style, "style", device=device),
    }
    return Encoders(open_codec(codec, device=device), speaker)
