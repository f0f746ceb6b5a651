"""The model of a run folder, which stays the same as long as the run has checkpoints.

Upstream: the configuration of a training.  Downstream: `config.json`, by which a run is exported. It describes the
weights of the checkpoints, so a resumed run must not replace it by that of another model. Sizes are not all: other
attention heads, for one, fit the same weights and make another model of them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from marstts.errors import CheckpointError
from marstts.io.config import Config, parse_config, read_values
from marstts.io.file_errors import printable_name, printable_text
from marstts.training.checkpoint import latest

MAX_COMPLAINT = 600
"""Characters of the message that names what differs."""


def check_same_model(path: Path, model: Config, free: Collection[str] = ()) -> None:
    """CheckpointError where the run of `path`, its config.json, has checkpoints of another model than `model`.

    `free` fields may differ: those that change neither the weights nor what the model computes with them.
    """
    if latest(path.parent) is None or not path.is_file():
        return
    name = printable_name(path)
    stored = read_values(path, CheckpointError).get("model")
    known = stored if isinstance(stored, dict) else {}
    known = {key: value for key, value in known.items() if key in type(model).model_fields}  # those of this version
    try:
        before = parse_config(type(model), known, name, CheckpointError)
    except CheckpointError as error:
        raise CheckpointError(
            f"{name}: the checkpoints here are of another kind of model; use another folder for a new run"
        ) from error
    changes = [
        f"{key} is {getattr(model, key)} instead of {getattr(before, key)}"
        for key in type(model).model_fields
        if key not in free and getattr(model, key) != getattr(before, key)
    ]
    if changes:
        raise CheckpointError(
            f"{name}: the checkpoints here are of another model ({printable_text(', '.join(changes), MAX_COMPLAINT)}); "
            "give its [model] table, or use another folder for a new run"
        )
