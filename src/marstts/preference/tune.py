"""Tuning from end to end: a bundle and its pairs in, a run folder out, whose best weights are known.

Upstream: `data.pairs`, a bundle, a test set.  Downstream: `marstts export RUN/best`.
What is learnt is told in `training.orpo`, which weights are kept in `checkup`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from marstts.checkpoint import load_bundle, load_mars6
from marstts.config import Config
from marstts.data.pairs import Pair, check_pairs, numbers_path, read_pairs
from marstts.errors import DataError
from marstts.evaluation.metrics.words import plain_words
from marstts.evaluation.systems import folder_digest
from marstts.evaluation.testset import Trial, read_testset, trials_digest
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

    Everything that can be wrong with the pairs is said before the first step, see `data.pairs.check_pairs`, and so is
    a test set that asks for what is learnt.
    """
    bundle = load_bundle(model)
    found = read_pairs(pairs)
    check_pairs(found, bundle.codec.spec, bundle.identity_encoder.name, bundle.style_encoder.name)
    trials = read_testset(held_out)
    check_held_out(trials, found, held_out, say)
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


def check_held_out(trials: Sequence[Trial], pairs: Sequence[Pair], path: Path, say: Callable[[str], None]) -> None:
    """DataError if the test set of `path` has sentences of the pairs; says so if it has voices of theirs.

    A sentence that was learnt says nothing of others; of a model for one voice, there is no other voice to ask.
    """
    learnt = {" ".join(plain_words(pair.line.text)) for pair in pairs}
    known = [trial.id for trial in trials if " ".join(plain_words(trial.text)) in learnt]
    if known:
        raise DataError(
            f"{path}: {len(known)} of {len(trials)} sentences are among those learnt from, the first is that of "
            f"{known[0]!r}; judge by others"
        )
    voices = {trial.speaker for trial in trials} & {pair.line.speaker for pair in pairs}
    if voices and rank() == 0:
        say(f"{path}: {len(voices)} of its voices are learnt from: {', '.join(sorted(voices)[:5])}")
