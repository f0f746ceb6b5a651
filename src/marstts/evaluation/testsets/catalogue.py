"""Test sets by name, or by where they lie.

Upstream: the command line.  Downstream: the sibling modules, one of which makes the trials.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from marstts.data.manifest import read_manifest
from marstts.errors import DataError
from marstts.evaluation.ordering import stable_order
from marstts.evaluation.testset import Trial, make_trials, read_testset
from marstts.evaluation.testsets.ears import VALIDATION, read_ears
from marstts.evaluation.testsets.folder import read_folder
from marstts.evaluation.testsets.librispeech import read_librispeech
from marstts.evaluation.testsets.people import read_people
from marstts.evaluation.testsets.seed_tts import read_seed_tts
from marstts.evaluation.testsets.studio import read_studio
from marstts.evaluation.testsets.torture import read_torture

STUDIO = "studio"
RENDERED: dict[str, Callable[[Path, Callable[[str], None]], list[Trial]]] = {
    STUDIO: read_studio,
    "torture": read_torture,
}
"""Test sets that need no download, by name."""

CORPORA: dict[str, Callable[[Path], list[Trial]]] = {
    "ears": read_ears,
    "ears-validation": partial(read_ears, split=VALIDATION),
    "seed-tts": read_seed_tts,
    "librispeech": read_librispeech,
    "people": read_people,
}
"""Test sets of recordings that people have or download, by name."""


def open_testset(name: str, root: Path | None, tell: Callable[[str], None]) -> list[Trial]:
    """Trials by the name of a test set, with its recordings in `root`, or by path.

    A path is a testset.jsonl, a manifest (utterances.jsonl) or a folder of recordings with transcripts. The voices of
    `studio` and `torture` are rendered into `root`, or into the user's cache. Raises DataError saying what is missing.
    """
    if name in RENDERED:
        return RENDERED[name](root or cached_studio(), tell)
    if name in CORPORA:
        if root is None:
            raise DataError(f"the test set {name!r} is not part of the package: say with --root where it lies")
        return CORPORA[name](root)
    path = Path(name)
    if path.is_dir():
        return read_folder(path)
    if path.name == "utterances.jsonl":
        utterances = [utterance for utterance in read_manifest(path) if utterance.split == "test"]
        return make_trials(utterances, path.parent, path)
    if path.is_file():
        return read_testset(path)
    known = ", ".join((*RENDERED, *CORPORA))
    raise DataError(f"{name}: expected {known}, a testset.jsonl, an utterances.jsonl or a folder of recordings")


def cached_studio() -> Path:
    """Where the studio test set is kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "marstts" / "studio-testset"


def thin_out(trials: Sequence[Trial], limit: int | None) -> list[Trial]:
    """At most `limit` trials, the same ones every time, styles as evenly as may be; in their order."""
    if limit is None or limit >= len(trials):
        return list(trials)
    turns: dict[str, int] = {}
    ranked = []
    for trial in sorted(trials, key=lambda trial: stable_order(trial.id)):
        turns[trial.style] = turns.get(trial.style, 0) + 1
        ranked.append((turns[trial.style], stable_order(trial.id), trial.id))
    kept = {name for _, _, name in sorted(ranked)[:limit]}
    return [trial for trial in trials if trial.id in kept]
