"""Preference training from end to end: a bundle and its pairs in, a run folder with the best weights out.

Upstream: `data.pairs`, a bundle, a test set.  Downstream: `marstts export RUN`.
`training.mars6.orpo` computes the losses, `validation` chooses which weights are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from marstts import models
from marstts.bundle import Bundle, load_bundle
from marstts.errors import DataError
from marstts.io.config import Config
from marstts.io.reading import printable_name
from marstts_lab.data.held_out_people import refuse_test_people
from marstts_lab.data.pairs import Pair, check_pairs, read_pairs, tensors_path
from marstts_lab.evaluation.testset import model_digest, read_testset, trials_digest
from marstts_lab.metrics.trial import Trial
from marstts_lab.metrics.words import plain_words
from marstts_lab.preference.validation import (
    BestCheckpointKeeper,
    ValidationConfig,
    ValidationResult,
    Validator,
    check_validation,
)
from marstts_lab.training.distributed import init_distributed, is_main, lock_run
from marstts_lab.training.loop import run
from marstts_lab.training.mars6.orpo import OrpoConfig, OrpoTask, files_hash, open_orpo_run
from marstts_lab.training.provenance import record_training

log = logging.getLogger(__name__)


class PreferenceConfig(Config):
    """The configuration of `marstts preference train`."""

    orpo: OrpoConfig
    validation: ValidationConfig = ValidationConfig()


def train(
    model: str, pairs: Sequence[Path], held_out: Path, output: Path, config: PreferenceConfig
) -> ValidationResult | None:
    """Train the bundle `model` (name or folder) on files of pairs, into `output`; returns the best validation.

    An interrupted run is resumed. Under `torchrun`, all processes train and the first one validates; the others return
    None. Everything that can be wrong with pairs, test set and metrics is raised before the first step.
    """
    check_validation(config.validation)
    bundle = load_bundle(model)
    found = [pair for path in pairs for pair in read_pairs(path)]
    check_pairs(found, bundle.codec.spec, {role: encoder.name for role, encoder in bundle.encoders.items()})
    lines = [pair.line for pair in found]
    used = ((one.speaker, (one.id, *(str(side.audio) for side in (one.chosen, one.rejected)))) for one in lines)
    refuse_test_people(used, ", ".join(map(printable_name, pairs)))
    trials = read_testset(held_out)
    check_held_out(trials, found, held_out)
    base = models.load_for_training(model)
    provenance = {
        "model": model_digest(bundle.folder),
        "pairs": files_hash(*(file for path in pairs for file in (path, tensors_path(path)))),
        "testset": trials_digest(trials),
    }
    init_distributed()
    speech: Any = models.open_in_memory(base, bundle)
    task = OrpoTask(config.orpo, found, base, speech.prompt, speech.tokenizer)
    if not is_main():
        run(task, config.orpo.loop, output)
        return None
    with lock_run(output):
        open_orpo_run(output, config.orpo, base.config, speech.tokenizer, provenance)
        record_training(output, config, {"pairs": provenance["pairs"], "test set": provenance["testset"]}, model)
        keeper = BestCheckpointKeeper(
            output, Validator(bundle, trials, config.validation), partial(open_for_validation, bundle)
        )
        task.validate_model = keeper
        if not keeper.has_begun:
            initial = keeper(task.ema, 0)
            log.info("%d pairs; the initial model: %s", len(found),
                     ", ".join(f"{name} {value:.4g}" for name, value in initial.items()))  # fmt: skip
        run(task, config.orpo.loop, output)
    return keeper.best


def open_for_validation(bundle: Bundle, module: Any) -> Any:
    """The speech model of a module in training, with tokenizer, and settings of its bundle."""
    return models.open_in_memory(module, bundle)


def check_held_out(trials: Sequence[Trial], pairs: Sequence[Pair], path: Path) -> None:
    """DataError if the test set of `path` has sentences of the pairs; a warning if it has their voices.

    A sentence that is trained on is no measure of others; a model for one voice has no other voice to validate with.
    """
    trained = {" ".join(plain_words(pair.line.text)) for pair in pairs}
    known = [trial.id for trial in trials if " ".join(plain_words(trial.text)) in trained]
    if known:
        raise DataError(
            f"{path}: {len(known)} of {len(trials)} sentences are in the pairs, the first is that of {known[0]!r}; "
            "validate with others"
        )
    voices = {trial.speaker for trial in trials} & {pair.line.speaker for pair in pairs}
    if voices and is_main():
        log.warning("%s: %d of its voices are in the pairs: %s", path, len(voices), ", ".join(sorted(voices)[:5]))
