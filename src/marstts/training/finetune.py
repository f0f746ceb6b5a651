"""Fine-tuning a bundle to somebody's recordings: a folder in, a bundle of that voice out.

Upstream: a folder as `data.corpora.folder` reads it, and a bundle, whose own codec and encoders listen.
Downstream: a run folder with `corpus/`, `shards/`, the checkpoints of `training.loop`, and `bundle/`, which speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from marstts.checkpoint import (
    CODEC_FOLDER,
    CONFIG_FILE,
    IDENTITY_FOLDER,
    MODEL_FOLDER,
    STYLE_FOLDER,
    TOKENIZER_FILE,
    MiniPart,
    export_bundle,
    find_bundle,
    load_bundle,
    read_info,
)
from marstts.config import read_config
from marstts.data.batching import BatchingConfig
from marstts.data.corpora.folder import SUFFIXES, TABLE
from marstts.data.corpora.folder import folder as read_folder
from marstts.data.corpora.gather import MANIFEST, GatherConfig, gather
from marstts.data.listening import Ears, ListeningConfig
from marstts.data.shards import SHARD_PATTERN
from marstts.data.tokenize import tokenize_manifest
from marstts.data.workers import Processes
from marstts.errors import CheckpointError, ConfigError
from marstts.mars6.config import Mars6Config
from marstts.text.bpe import BPE
from marstts.training import distributed
from marstts.training.loop import LoopConfig, latest
from marstts.training.optim import OptimizerConfig, Schedule
from marstts.training.pretrain import AlignmentConfig, PretrainConfig, trained_model

OWNERS = "of whoever recorded them"
"""Licence of recordings that stay where they are."""

LOUDNESS = -23.0
"""LUFS, to which references are brought in speaking too."""

DROPOUT = 0.1
"""More than in pretraining: minutes of speech are soon known by heart."""


def holds_recordings(folder: Path) -> bool:
    """Whether a folder is to be listened to first: it has recordings, and no shards."""
    if not folder.is_dir() or any(folder.glob(SHARD_PATTERN)):
        return False
    return (folder / TABLE).is_file() or any(path.suffix.lower() in SUFFIXES for path in folder.rglob("*"))


def listen(recordings: Path, run: Path, base: str, workers: int, say: Callable[[str], None]) -> Path:
    """The shards of a folder of recordings, below `run`, by the ears of the bundle `base`; goes on where it stopped."""
    if latest(Path(base)) is not None:
        raise ConfigError(
            f"{recordings} holds recordings, which only a bundle has a codec and encoders for; {base} is a run: "
            f"tokenize the recordings with `marstts tokenize`, or export the run and begin from the bundle"
        )
    distributed.join()
    if distributed.world_size() > 1:
        raise ConfigError(f"{recordings}: recordings are listened to by one process; begin without torchrun")
    corpus, shards = run / "corpus", run / "shards"
    report = gather(read_folder(recordings, OWNERS), corpus, GatherConfig(max_fault_share=0.2, language="any"))
    say(f"{recordings}: {report.summary} (see {corpus / 'rejects.jsonl'})")
    tokenize_manifest(
        corpus / MANIFEST,
        shards,
        partial(bundle_ears, base),
        config=ListeningConfig(loudness_lufs=LOUDNESS),
        engine=Processes(workers),
        say=say,
    )
    return shards


def bundle_ears(base: str) -> Ears:
    """The codec and the speaker encoders of a bundle."""
    bundle = load_bundle(base)
    return Ears(bundle.codec, bundle.identity_encoder, bundle.style_encoder)


def gentle_settings(base: str) -> PretrainConfig:
    """How a bundle is tuned to minutes of speech: slowly, and no longer than validation gains by it."""
    model = read_config(Mars6Config, find_bundle(base) / MODEL_FOLDER / CONFIG_FILE)
    return PretrainConfig(
        model=model.model_copy(update={"dropout": DROPOUT}),
        loop=LoopConfig(steps=600, log_every=10, validate_every=25, patience=4),
        batching=BatchingConfig(patches_per_batch=500),
        optimizer=OptimizerConfig(
            learning_rate=2e-4, warmup_steps=20, schedule=Schedule.LINEAR, final_share=0.1, average_decay=0.98
        ),
        alignment=AlignmentConfig(weight=0.0, layers=()),
    )


def export_like(base: str, run: Path, name: str) -> Path:
    """The tuned model with everything else as in the bundle `base`, as `run/bundle`."""
    source, output = find_bundle(base), run / "bundle"
    if latest(run) is None:
        raise CheckpointError(f"{run}: no checkpoint here yet; run the same command again to go on")
    info = read_info(source)
    export_bundle(
        output,
        trained_model(run),
        BPE.load(run / TOKENIZER_FILE),
        codec=source / CODEC_FOLDER if isinstance(info.codec, MiniPart) else info.codec,
        identity=source / IDENTITY_FOLDER if isinstance(info.identity, MiniPart) else info.identity,
        style=source / STYLE_FOLDER if isinstance(info.style, MiniPart) else info.style,
        name=name,
        quality=info.quality,
        sampling=info.sampling,
    )
    return output
