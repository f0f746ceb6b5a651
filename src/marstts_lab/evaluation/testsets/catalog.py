"""Test sets by name or by path.

Upstream: the command line.  Downstream: the sibling modules, one of which makes the trials.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from marstts.errors import DataError
from marstts.io.hash_order import hash_order
from marstts.io.reading import printable_name
from marstts_lab.data.manifest import read_manifest
from marstts_lab.evaluation.testset import make_trials, read_testset
from marstts_lab.evaluation.testsets.ears import VALIDATION, read_ears
from marstts_lab.evaluation.testsets.folder import read_folder
from marstts_lab.evaluation.testsets.hard_texts import read_hard_texts
from marstts_lab.evaluation.testsets.librispeech import read_librispeech
from marstts_lab.evaluation.testsets.packaged_voices import read_packaged_voices
from marstts_lab.evaluation.testsets.real_speakers import read_real_speakers
from marstts_lab.evaluation.testsets.seed_tts import read_seed_tts
from marstts_lab.evaluation.testsets.synthetic import read_synthetic, rendering_problems
from marstts_lab.metrics.trial import Trial

SYNTHETIC, PACKAGED_VOICES = "synthetic", "packaged-voices"
RENDERED: dict[str, Callable[[Path], list[Trial]]] = {
    SYNTHETIC: read_synthetic,
    "hard-texts": read_hard_texts,
}
"""Test sets that need no download, by name."""

CORPORA: dict[str, Callable[[Path], list[Trial]]] = {
    "ears": read_ears,
    "ears-validation": partial(read_ears, split=VALIDATION),
    "seed-tts": read_seed_tts,
    "librispeech": read_librispeech,
    "real-speakers": read_real_speakers,
}
"""Test sets of recordings that their user has or downloads, by name."""


def open_testset(name: str, root: Path | None = None) -> list[Trial]:
    """Trials by the name of a test set, with its recordings in `root`, or by path.

    A path is a testset.jsonl, a manifest (utterances.jsonl) or a folder of recordings with transcripts. The voices of
    `synthetic` and `hard-texts` are rendered into `root`, or into the user's cache. Raises DataError otherwise.
    """
    if name == PACKAGED_VOICES:
        return read_packaged_voices(root or cached_testset(PACKAGED_VOICES))
    if name in RENDERED:
        return RENDERED[name](root or cached_testset(SYNTHETIC))
    if name in CORPORA:
        if root is None:
            raise DataError(f"the test set {name!r} is not part of the package; give its folder with --root")
        return CORPORA[name](root)
    path = Path(name)
    if path_exists(path) and path.is_dir():
        return read_folder(path)
    if path.name == "utterances.jsonl":
        utterances = [utterance for utterance in read_manifest(path) if utterance.split == "test"]
        return make_trials(utterances, path.parent, path)
    if path_exists(path):
        return read_testset(path)
    raise DataError(unknown_testset(name))


def unknown_testset(name: str) -> str:
    """The sentence about a name that is neither a test set's nor a path."""
    known = ", ".join((PACKAGED_VOICES, *RENDERED, *CORPORA))
    return (
        f"{printable_name(name)}: there is no such test set; expected {known}, a testset.jsonl, an utterances.jsonl or "
        "a folder of recordings"
    )


def missing_for_testset(name: str, root: Path | None = None) -> list[str]:
    """Requirements of the trials that are missing, in sentences; empty if nothing is."""
    if name in RENDERED:
        return rendering_problems(root or cached_testset(SYNTHETIC))
    return [] if name == PACKAGED_VOICES or name in CORPORA or path_exists(Path(name)) else [unknown_testset(name)]


def path_exists(path: Path) -> bool:
    """Whether anything is at `path`; False for names that no file can have."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def cached_testset(name: str) -> Path:
    """Folder of the recordings of a test set, kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "marstts" / f"{name}-testset"


def subsample(trials: Sequence[Trial], limit: int | None) -> list[Trial]:
    """At most `limit` trials, the same ones every time, spread over the styles; in their order."""
    if limit is None or limit >= len(trials):
        return list(trials)
    counts: dict[str, int] = {}
    ranked = []
    for trial in sorted(trials, key=lambda trial: hash_order(trial.id)):
        counts[trial.style] = counts.get(trial.style, 0) + 1
        ranked.append((counts[trial.style], hash_order(trial.id), trial.id))
    kept = {name for _, _, name in sorted(ranked)[:limit]}
    return [trial for trial in trials if trial.id in kept]
