"""Fine-tuning of a bundle on a folder of recordings: recordings in, a bundle of that voice out.

Upstream: a folder as `data.corpora.folder` reads it, and a bundle, whose codec and encoders tokenize the recordings.
Downstream: a run folder with `corpus/`, `shards/`, the checkpoints of `training.loop`, and `bundle/` for synthesis.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from marstts.bundle import load_bundle
from marstts.data.batching import BatchingConfig
from marstts.data.corpora.build_manifest import MANIFEST, ManifestConfig, build_manifest
from marstts.data.corpora.folder import SUFFIXES, TABLE
from marstts.data.corpora.folder import folder as read_folder
from marstts.data.preprocess import Encoders, PreprocessConfig
from marstts.data.shards import SHARD_PATTERN
from marstts.data.tokenize import tokenize_manifest
from marstts.data.workers import Processes
from marstts.errors import CheckpointError, ConfigError, DataError
from marstts.models import export_like, model_config
from marstts.text.tokenizers.bpe import BPE
from marstts.training import distributed
from marstts.training.attention_guidance import AttentionGuidanceConfig
from marstts.training.checkpoint import BEST, STATE_FILE, best, latest, read_state
from marstts.training.loop import LoopConfig, run
from marstts.training.mars6.config import PretrainConfig
from marstts.training.mars6.run_folder import TOKENIZER_FILE, init_from, open_run, trained_model
from marstts.training.mars6.task import PretrainTask
from marstts.training.optim import OptimizerConfig, Schedule
from marstts.training.run_lock import lock_run
from marstts.training.run_log import read_log
from marstts.training.valid_corpus import load_valid_corpus

UNKNOWN_LICENSE = "unknown"
"""License of recordings that stay where they are."""

LOUDNESS = -23.0
"""LUFS of the recordings; references are normalized to it in synthesis, too."""

DROPOUT = 0.1
"""More than in pretraining: minutes of speech are soon overfitted."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptCheckpoint:
    """The checkpoint that fine-tuning keeps, and its validation loss; None where nothing was validated."""

    step: int
    loss: float | None
    initial_loss: float | None
    """Validation loss before the first step."""

    @property
    def summary(self) -> str:
        """One sentence: which step was kept, and by how much it is better."""
        if self.loss is None or self.initial_loss is None:
            return f"step {self.step} was kept; it was not compared with others, since `patience` is 0"
        if self.step == 0:
            return (
                f"no step had a lower validation loss than the initial model ({self.initial_loss:.3f}), which was kept"
            )
        return (
            f"step {self.step} was kept: its validation loss is {self.loss:.3f}, {self.initial_loss - self.loss:.3f} "
            f"lower than that of the initial model ({self.initial_loss:.3f})"
        )


def finetune(
    base: str,
    data: Sequence[Path],
    output: Path,
    config: PretrainConfig | None = None,
    *,
    workers: int = 1,
    max_corrupt: float = 0.0,
) -> KeptCheckpoint:
    """Fine-tune a bundle (name or folder) on folders of recordings or of shards, and write `output/bundle`.

    Run again with the same arguments, it resumes. DataError or ConfigError where the data or the base cannot be used,
    CheckpointError where another process works in `output`.
    """
    check_folders(data)
    with lock_run(output):
        settings = config or finetune_defaults(base)
        shards = [tokenize_recordings(one, output, base, workers) if holds_recordings(one) else one for one in data]
        corpus = load_valid_corpus(shards, output, max_corrupt)
        tokenizer = open_run(output, settings, corpus, base)
        task = PretrainTask(settings, corpus, tokenizer)
        if latest(output) is None:
            init_from(task, base)
        logger.info("%d utterances, %.2f h; %s", len(corpus), corpus.seconds / 3600, task.summary)
        run(task, settings.loop, output)
        if distributed.is_main():
            export_finetuned(base, output, name=output.resolve().name)
    return kept_checkpoint(output)


def check_folders(data: Sequence[Path]) -> None:
    """DataError if one of the folders does not exist, is a file, or holds neither recordings nor shards."""
    for folder in data:
        if not folder.exists():
            raise DataError(f"{folder}: no such folder; --data takes a folder of recordings with their texts")
        if not folder.is_dir():
            raise DataError(f"{folder}: expected a folder of recordings with their texts, but this is a file")
        if not holds_recordings(folder) and not any(folder.glob(SHARD_PATTERN)):
            raise DataError(
                f"{folder}: no recordings here; expected audio files with {TABLE} or a text file next to each of them"
            )


def holds_recordings(folder: Path) -> bool:
    """True for a folder that has recordings and no shards."""
    if not folder.is_dir() or any(folder.glob(SHARD_PATTERN)):
        return False
    return (folder / TABLE).is_file() or any(path.suffix.lower() in SUFFIXES for path in folder.rglob("*"))


def tokenize_recordings(recordings: Path, output: Path, base: str, workers: int) -> Path:
    """The shards of a folder of recordings, in `output/shards`, by the codec and encoders of the bundle `base`.

    Run again, it resumes. ConfigError if `base` is a run, or under `torchrun`.
    """
    if latest(Path(base)) is not None:
        raise ConfigError(
            f"{recordings} holds recordings, which only a bundle has a codec and encoders for; {base} is a run: "
            f"tokenize the recordings with `marstts tokenize`, or export the run and begin with the bundle"
        )
    distributed.init_distributed()
    if distributed.world_size() > 1:
        raise ConfigError(f"{recordings}: recordings are tokenized by one process; start it without torchrun")
    corpus, shards = output / "corpus", output / "shards"
    report = build_manifest(
        read_folder(recordings, UNKNOWN_LICENSE), corpus, ManifestConfig(max_reject_ratio=0.2, language="any")
    )
    logger.info("%s: %s (see %s)", recordings, report.summary, corpus / "rejects.jsonl")
    tokenize_manifest(
        corpus / MANIFEST,
        shards,
        partial(bundle_encoders, base),
        config=PreprocessConfig(loudness_lufs=LOUDNESS),
        executor=Processes(workers),
    )
    return shards


def bundle_encoders(base: str) -> Encoders:
    """The codec and the speaker encoders of a bundle."""
    bundle = load_bundle(base)
    return Encoders(bundle.codec, bundle.encoders)


def finetune_defaults(base: str) -> PretrainConfig:
    """The configuration for minutes of speech: a low learning rate, dropout, and early stopping by validation."""
    return PretrainConfig(
        model=model_config(base).model_copy(update={"dropout": DROPOUT}),
        loop=LoopConfig(steps=600, log_every=10, validate_every=25, patience=4),
        batching=BatchingConfig(patches_per_batch=500),
        optimizer=OptimizerConfig(
            learning_rate=2e-4, warmup_steps=20, schedule=Schedule.LINEAR, final_lr_ratio=0.1, ema_decay=0.98
        ),
        attention_guidance=AttentionGuidanceConfig(weight=0.0, layers=()),
    )


def export_finetuned(base: str, output: Path, name: str) -> Path:
    """Write `output/bundle`: the fine-tuned model, with everything else as in the bundle `base`."""
    if best(output) is None:
        raise CheckpointError(f"{output}: no checkpoint here yet; run the same command again to resume")
    folder = output / "bundle"
    export_like(base, folder, trained_model(output), BPE.load(output / TOKENIZER_FILE), name=name)
    return folder


def kept_checkpoint(output: Path) -> KeptCheckpoint:
    """The checkpoint of a run folder that its bundle was written from."""
    checkpoint = best(output)
    if checkpoint is None:
        raise CheckpointError(f"{output}: no checkpoint here yet; run the same command again to resume")
    step = read_state(checkpoint).step
    losses = {line["step"]: line["loss"] for line in read_log(output) if line["split"] == "validation"}
    compared = (output / BEST / STATE_FILE).exists()
    return KeptCheckpoint(step, losses.get(step) if compared else None, losses.get(0))
