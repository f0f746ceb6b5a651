"""What a run was trained with, written into its folder when it begins.

Upstream: the commands that train.  Downstream: `marstts export` and the exports of parts, which pass it on to
`bundle.json`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import version
from pathlib import Path

from marstts.bundle import find_bundle, read_info
from marstts.errors import CheckpointError
from marstts.io.config import Config
from marstts.io.part_provenance import MAX_TEXT, PartProvenance, command_line, commit, read_part, write_part
from marstts.onnx.revision import revision_of
from marstts_lab.training.checkpoint import preferred


def record_training(
    folder: Path, config: Config, data: Mapping[str, str], base: Path | str | None = None
) -> PartProvenance:
    """Write the provenance of a run into its folder, which is made if it is missing; a resumed run keeps its parent.

    `data` are digests by name (`file_digests`, `Corpus.digest`); `base` is the run, part or model with the initial
    weights.
    """
    before = read_part(folder)
    code = commit()
    record = PartProvenance(
        command=command_line()[:MAX_TEXT],
        commit=f"marstts {version('marstts')}" if code == "unknown" else code,
        configuration=config.model_dump(mode="json"),
        data=dict(data),
        parent=before.parent if before is not None else "" if base is None else name_parent(base),
        date=before.date if before is not None else date.today().isoformat(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_part(record, folder)
    return record


def name_parent(base: Path | str) -> str:
    """A model as NAME@REVISION; a run, or an exported part, as the name of its folder and the digest of its weights."""
    path = Path(base)
    if not (found := preferred(path)):
        with suppress(CheckpointError):
            return read_info(find_bundle(str(base))).label
    folder = found[0] if found else path
    return f"{path.resolve().name}@{revision_of({'weights': folder})}"


def file_digests(paths: Sequence[Path]) -> dict[str, str]:
    """The digest of each file, by the name of its folder and its own."""
    return {f"{path.resolve().parent.name}/{path.name}": digest_file(path) for path in paths}


def digest_file(path: Path) -> str:
    """First digits of the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
