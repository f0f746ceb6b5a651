"""Weights other people published: found on disk or fetched by name, checked, and read without running anything in them.

Upstream: the Hugging Face hub, or files a person brings.  Downstream: the adapters `codec.snac`, `speaker.wavlm` and
`speaker.clap`, which alone decide when to ask. PyTorch and the hub's client are imported on use.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors

from marstts.errors import CheckpointError, require

if TYPE_CHECKING:
    from torch import Tensor

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
"""How the hub names a model: owner/name."""

EXTRA = "released"
"""The extra that brings the packages these weights need."""


def find_weights(source: Path | str, names: Sequence[str]) -> Path:
    """The file `source` itself, or the first of `names` in the folder or hub model it names (as `find_file`)."""
    return Path(source) if Path(source).is_file() else find_file(source, names)


def find_file(source: Path | str, names: Sequence[str]) -> Path:
    """The first of `names` in a local folder or, if `source` is no local path, in the hub's model of that name.

    A local file stands for the folder it lies in. Raises CheckpointError where none of `names` is found or the download
    is refused.
    """
    folder = Path(source).parent if Path(source).is_file() else Path(source)
    if folder.is_dir():
        found = [folder / name for name in names if (folder / name).is_file()]
        if not found:
            raise CheckpointError(f"{folder}: expected {' or '.join(names)} in this folder; the model is incomplete")
        return found[0]
    if not isinstance(source, str) or not HUB_NAME.fullmatch(source):
        raise CheckpointError(f"{source}: neither a path on this machine nor a model's name on the hub (owner/name)")
    return _download(source, names)


def _download(model: str, names: Sequence[str]) -> Path:
    """The first of `names` that the hub has, from its cache where possible."""
    hub = require("huggingface_hub", EXTRA)
    reason: Exception | None = None
    for name in names:
        try:
            return Path(hub.hf_hub_download(model, name))
        except Exception as error:  # the client's HTTP library, and so its exceptions, differ between versions
            reason = error
    raise CheckpointError(
        f"{model}: the download of {' or '.join(names)} failed ({_first_line(reason)});"
        " connect to the network, or give the path of a folder that holds the files"
    ) from reason


def fingerprint(path: Path, expected_sha256: str | None = None) -> str:
    """SHA-256 of a file in hexadecimal; raises CheckpointError if it is not the expected one."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    found = digest.hexdigest()
    if expected_sha256 is not None and found != expected_sha256.lower():
        raise CheckpointError(
            f"{path}: expected weights with SHA-256 {expected_sha256}, but these have {found}; fetch them again"
        )
    return found


def short_name(kind: str, sha256: str) -> str:
    """What an adapter calls itself: its kind and enough of its weights' hash to tell trainings apart."""
    return f"{kind}-{sha256[:12]}"


def read_tensors(path: Path) -> dict[str, Any]:
    """The content of a safetensors or PyTorch file (a state dict, or whatever holds one), on the CPU.

    PyTorch files are unpickled with `weights_only`: code inside them is refused, not run.
    """
    torch = require("torch", EXTRA)
    try:
        if path.suffix == ".safetensors":
            return require("safetensors.torch", EXTRA).load_file(str(path))
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (
        safetensors.SafetensorError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        RuntimeError,
        ValueError,
        EOFError,
        OSError,
    ) as error:
        raise CheckpointError(
            f"{path}: expected weights (safetensors or a PyTorch state dict), but: {_first_line(error)}"
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected a PyTorch state dict, but it holds a {type(content).__name__}")
    return content


def load_strictly(module: Any, tensors: dict[str, Tensor], source: Path) -> None:
    """Load a state dict whole or not at all; raises CheckpointError naming what does not fit."""
    try:
        module.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        first_complaints = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{source}: these weights belong to another model: {first_complaints}") from error


def _first_line(error: Exception | None) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
