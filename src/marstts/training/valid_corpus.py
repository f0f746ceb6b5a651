"""The shards that a model is trained on: all of them, or those that are valid.

Upstream: folders of `marstts tokenize`.  Downstream: the trainings of MARS6 and MARS5.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from marstts.data.corpus import Corpus, load_corpus
from marstts.data.shards import SHARD_PATTERN, read_shard
from marstts.errors import DataError
from marstts.io.jsonl import write_rows
from marstts.training.run_log import CORRUPT_FILE

logger = logging.getLogger(__name__)


def load_valid_corpus(folders: Sequence[Path], run: Path, max_corrupt: float) -> Corpus:
    """The corpus of these folders without corrupt shards, which are listed in `run/corrupt.jsonl`.

    DataError where a folder does not exist, or the ratio of corrupt shards is above `max_corrupt`.
    """
    check_data_folders(folders)
    paths = [path for folder in folders for path in sorted(folder.glob(SHARD_PATTERN))]
    if max_corrupt == 0.0 or not paths:
        return load_corpus(*folders)
    corrupt: dict[Path, str] = {}
    for path in paths:
        try:
            read_shard(path)
        except DataError as error:
            corrupt[path] = str(error)
    write_rows(run / CORRUPT_FILE, [{"shard": str(path), "reason": reason} for path, reason in corrupt.items()])
    if len(corrupt) > max_corrupt * len(paths):
        raise DataError(
            f"{len(corrupt)} of {len(paths)} shards are corrupt, more than the ratio {max_corrupt} that is allowed; "
            f"they are listed in {run / CORRUPT_FILE}: tokenize them again"
        )
    if corrupt:
        logger.warning("%d of %d shards are corrupt and skipped, see %s", len(corrupt), len(paths), run / CORRUPT_FILE)
    return load_corpus(*folders, without=corrupt)


def check_data_folders(folders: Sequence[Path]) -> None:
    """DataError if one of the folders with data does not exist, or is a file."""
    for folder in folders:
        if not folder.exists():
            raise DataError(f"{folder}: no such folder; --data takes a folder of shards, see `marstts tokenize`")
        if not folder.is_dir():
            raise DataError(f"{folder}: expected a folder of shards, but this is a file")
