"""Fine-tuning of a bundle on a folder of recordings: recordings in, a bundle of that voice out.

Upstream: a folder as `data.corpora.folder` reads it, and a bundle, whose codec and encoders tokenize the recordings.
Downstream: a run folder with `corpus/`, `shards/`, the checkpoints of `training.loop`, and `bundle/` for synthesis.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torch import nn

from marstts.bundle import load_bundle
from marstts.errors import ConfigError, DataError
from marstts.io.part_provenance import read_part
from marstts.mars6.config import Mars6Config
from marstts.models import export_like, load_for_training, model_config
from marstts.text.tokenizers.bpe import BPE
from marstts_lab.data.batching import BatchingConfig
from marstts_lab.data.corpora.build_manifest import MANIFEST, ManifestConfig, build_manifest
from marstts_lab.data.corpora.folder import TABLE, holds_recordings
from marstts_lab.data.corpora.folder import folder as read_folder
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.preprocess import Encoders, PreprocessConfig
from marstts_lab.data.shards import SHARD_PATTERN
from marstts_lab.data.tokenize import tokenize_manifest
from marstts_lab.data.workers import Processes
from marstts_lab.training import distributed
from marstts_lab.training.attention_guidance import AttentionGuidanceConfig
from marstts_lab.training.checkpoint import latest
from marstts_lab.training.distributed import lock_run
from marstts_lab.training.loop import LoopConfig, run
from marstts_lab.training.mars6.config import PretrainConfig
from marstts_lab.training.mars6.run_folder import TOKENIZER_FILE, init_from, open_run, trained_model
from marstts_lab.training.mars6.take_validation import (
    CONFIRMING_SEED,
    KEPT,
    FineTuned,
    FineTuneTask,
    OpenEvaluator,
    best_step,
)
from marstts_lab.training.mars6.task import PretrainTask
from marstts_lab.training.optim import OptimizerConfig, Schedule
from marstts_lab.training.provenance import record_training
from marstts_lab.training.run_log import check_data_folders

UNKNOWN_LICENSE = "unknown"
"""License of recordings that stay where they are."""

LOUDNESS = -23.0
"""LUFS of the recordings; references are normalized to it in synthesis, too."""

DROPOUT = 0.1
"""More than in pretraining: minutes of speech are soon overfitted."""

SHOWN = ("loss", "word_errors", "similarity")
"""Scores of a step and of a validation that are shown while it trains; `log.jsonl` has all."""

logger = logging.getLogger(__name__)


def finetune(
    base: str,
    data: Sequence[Path],
    output: Path,
    config: PretrainConfig | None = None,
    *,
    open_evaluator: OpenEvaluator,
    workers: int = 1,
) -> FineTuned | None:
    """Fine-tune a bundle (name or folder) on folders of recordings or of shards, and write `output/bundle`.

    The bundle has the step with the better takes, or the initial model. Under `torchrun`, the first process
    validates, and the others return None. Run again with the same arguments, it resumes. DataError or ConfigError where
    the data or the base cannot be used, CheckpointError where another process works in `output`.
    """
    check_folders(data)
    with lock_run(output):
        settings = config or finetune_defaults(base)
        shards = [tokenize_recordings(one, output, base, workers) if holds_recordings(one) else one for one in data]
        check_data_folders(shards)
        corpus = load_corpus(*shards)
        tokenizer = open_run(output, settings, corpus, base)
        if distributed.is_main():
            record_training(output, settings, {"shards": corpus.digest}, base)
        initial = load_for_training(base)
        if distributed.is_main():
            task: PretrainTask = FineTuneTask(
                settings, corpus, tokenizer, output, open_evaluator(base, corpus), initial
            )
        else:
            task = PretrainTask(settings, corpus, tokenizer)
        if latest(output) is None:
            init_from(task, base)
        logger.info("%d utterances, %.2f h; %s", len(corpus), corpus.seconds / 3600, task.summary)
        run(task, settings.loop, output, shown=SHOWN)
        if not isinstance(task, FineTuneTask):
            return None
        found = outcome(task, initial)
        if found.helped:
            export_finetuned(base, output, trained_model(output, KEPT))
        else:
            export_finetuned(base, output, initial, "the initial weights, for no step had better takes")
    return found


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
    sizes = model_config(base)
    if not isinstance(sizes, Mars6Config):
        raise ConfigError(f"{base}: only a MARS6 can be fine-tuned, and this is a model of another architecture")
    return PretrainConfig(
        model=sizes.model_copy(update={"dropout": DROPOUT}),
        loop=LoopConfig(steps=600, log_every=10, validate_every=25, patience=4),
        batching=BatchingConfig(patches_per_batch=500),
        optimizer=OptimizerConfig(
            learning_rate=2e-4, warmup_steps=20, schedule=Schedule.LINEAR, final_lr_ratio=0.1, ema_decay=0.98
        ),
        attention_guidance=AttentionGuidanceConfig(weight=0.0, layers=()),
    )


def outcome(task: FineTuneTask, initial: nn.Module) -> FineTuned:
    """Compare the best step with the initial model once more, by other takes; without one, show the nearest voice."""
    first, *steps = task.ordered
    ceiling, best = task.evaluator.ceiling(), best_step(task.ordered)
    if best is None:
        nearest = max(steps, key=lambda one: one.similarity, default=None)
        return FineTuned(first, nearest, ceiling, helped=False)
    before = task.evaluator(initial, 0, CONFIRMING_SEED)
    after = task.evaluator(trained_model(task.folder, KEPT), best.step, CONFIRMING_SEED)
    return FineTuned(before, after, ceiling, helped=after.is_better_than(before))


def export_finetuned(base: str, output: Path, model: nn.Module, note: str = "") -> Path:
    """Write `output/bundle`: the model, with everything else as in the bundle `base`; `note` is for its provenance."""
    folder, record = output / "bundle", read_part(output)
    export_like(
        base,
        folder,
        model,
        BPE.load(output / TOKENIZER_FILE),
        name=output.resolve().name,
        provenance=None if record is None else record.model_copy(update={"note": note}),
    )
    return folder
