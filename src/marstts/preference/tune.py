"""Tuning from end to end: a bundle and its pairs in, a run folder out, whose best weights are known.

Upstream: `data.pairs`, a bundle, a test set.  Downstream: `marstts export RUN/best`.
What is learnt is told in `training.orpo`, which weights are kept in `checkup`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from marstts.checkpoint import load_bundle, load_mars6
from marstts.config import Config
from marstts.data.pairs import check_pairs, numbers_path, read_pairs
from marstts.evaluation.systems import folder_digest
from marstts.evaluation.testset import read_testset, trials_digest
from marstts.preference.checkup import Checkup, CheckupConfig, Guardian, Ward
from marstts.training.distributed import join, rank
from marstts.training.loop import run
from marstts.training.orpo import TuneConfig, TuneTask, digest, open_tuning


class TuningConfig(Config):
    """A file for `marstts tune`: what is learnt, and how it is judged."""

    tune: TuneConfig
    checkup: CheckupConfig = CheckupConfig()


def tune(
    model: str,
    pairs: Path,
    held_out: Path,
    output: Path,
    config: TuningConfig,
    *,
    say: Callable[[str], None] = print,
) -> Checkup | None:
    """Tune the bundle `model` (name or folder) into `output`, from where it stopped; returns the best check-up.

    Under `torchrun`, all processes learn and the first one judges; the others return None.

    Everything that can be wrong with the pairs is said before the first step, see `data.pairs.check_pairs`.
    """
    bundle = load_bundle(model)
    found = read_pairs(pairs)
    check_pairs(found, bundle.codec.spec, bundle.identity_encoder.name, bundle.style_encoder.name)
    trials = read_testset(held_out)
    base = load_mars6(model)
    claim = {
        "model": folder_digest(bundle.folder),
        "pairs": digest(pairs, numbers_path(pairs)),
        "test set": trials_digest(trials),
    }
    join()
    task = TuneTask(config.tune, found, base, bundle.tokenizer, quality=bundle.quality)
    if rank() > 0:
        run(task, config.tune.loop, output, say)
        return None
    open_tuning(output, config.tune, base, bundle.tokenizer, claim)
    task.judge = guardian = Guardian(output, Ward(bundle, trials, config.checkup), say)
    if not guardian.has_begun:
        beginning = guardian(task.average, 0)
        say(
            f"{len(found)} pairs; before tuning: "
            + " ".join(f"{name} {value:.4g}" for name, value in beginning.items())
        )
    run(task, config.tune.loop, output, say)
    return guardian.best
