"""Published weights: found on disk or downloaded by name, verified, and read without running any code in them.

Upstream: the Hugging Face hub, or local files.  Downstream: the adapters `codec.snac`, `speaker.wavlm` and
`speaker.clap`, which alone request them. PyTorch and the hub's client are imported on use.
The network is used only for files that are not in the hub client's cache, and only if the hub can be reached at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import safetensors

from marstts.errors import CheckpointError, require
from marstts.io.config import Config
from marstts.io.files import atomic_path
from marstts.io.reading import open_regular, os_errors, printable_name, printable_text
from marstts.weights.torch_archive import read_torch_archive

if TYPE_CHECKING:
    from torch import Tensor

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
"""Form of a model's name on the hub: owner/name."""

EXTRA = "released"
"""Extra with the packages that these weights need."""

NETWORK_SECONDS = 5.0
"""Longest wait for the hub to answer, before the client would start to retry."""

MAX_WEIGHTS_BYTES = 64 * 2**30


CACHE_VARIABLE = "MARSTTS_CACHE"
"""Environment variable: folder of converted models, instead of the user's cache folder."""


def cache_folder() -> Path:
    """Folder of converted models."""
    chosen = os.environ.get(CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(base) / "marstts"


def find_weights(source: Path | str, names: Sequence[str]) -> Path:
    """The file `source` itself, or the first of `names` in a local folder or hub model; otherwise as `find_file`."""
    return Path(source) if Path(source).is_file() else find_file(source, names)


FOLDER_REMEDY = "give the path of a folder that holds the files (of a bundle: as `source` in its bundle.json)"
"""What to do without a network, for codecs, encoders and metrics."""


def find_file(source: Path | str, names: Sequence[str], *, remedy: str = FOLDER_REMEDY, **hub_options: Any) -> Path:
    """The first of `names` in a local folder or, if `source` is no local path, in the hub's model of that name.

    A local file stands for its folder. `hub_options` are those of the hub's client that are not None, such as
    `revision`. Raises CheckpointError where none of `names` is found or the download fails; `remedy` says what to do
    without a network.
    """
    folder = Path(source).parent if Path(source).is_file() else Path(source)
    if folder.is_dir():
        found = [folder / name for name in names if (folder / name).is_file()]
        if not found:
            raise CheckpointError(
                f"{printable_name(folder)}: expected {' or '.join(names)} in this folder; the model is incomplete"
            )
        return found[0]
    if not isinstance(source, str) or not HUB_NAME.fullmatch(source):
        raise CheckpointError(
            f"{printable_name(source)}: neither a path on this machine nor a model's name on the hub (owner/name)"
        )
    return _download(source, names, {name: value for name, value in hub_options.items() if value is not None}, remedy)


def _download(model: str, names: Sequence[str], options: dict[str, Any], remedy: str) -> Path:
    """The first of `names` in the client's cache, or else the first that the hub has; one attempt."""
    hub, constants = require("huggingface_hub", EXTRA), require("huggingface_hub.constants", EXTRA)
    for name in names:
        # the client's HTTP library, and so its exceptions, differ between versions
        with suppress(Exception), _offline(constants):
            return Path(hub.hf_hub_download(model, name, local_files_only=True, **options))
    reason = connection_problem(constants.ENDPOINT) or answer_problem(hub, model)
    for name in names if reason is None else ():
        try:
            return Path(hub.hf_hub_download(model, name, etag_timeout=NETWORK_SECONDS, **options))
        except hub.utils.EntryNotFoundError as error:
            reason = error
        except Exception as error:
            reason = error
            break
    raise CheckpointError(
        f"{model}: the download of {' or '.join(names)} failed ({_first_line(reason)});"
        f" connect to the network, or {remedy}"
    ) from reason


@contextmanager
def hub_progress(is_shown: bool) -> Iterator[None]:
    """Show downloads from the hub on standard error, as its client does by itself, or hide them."""
    if is_shown:
        yield
        return
    utils = require("huggingface_hub.utils", EXTRA)
    hidden = utils.are_progress_bars_disabled()
    utils.disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            utils.enable_progress_bars()


HUB_SCHEME = "hf://"

SAFE_PATTERNS = ("*.json", "*.safetensors", "*.onnx", "*.md", "*.txt")
"""Files of a model's folder on the hub that are fetched: none of them is run."""


def download_folder(address: str) -> Path:
    """The folder of `hf://OWNER/NAME` or `hf://OWNER/NAME@REVISION`, as files in the cache of this package.

    Only files that differ from those in the cache are fetched; without a network, those in the cache are used. Raises
    CheckpointError for another address, and where there is nothing in the cache and the hub cannot be reached.
    """
    model, _, revision = address.removeprefix(HUB_SCHEME).partition("@")
    if not address.startswith(HUB_SCHEME) or not HUB_NAME.fullmatch(model):
        raise CheckpointError(f"{printable_name(address)}: expected hf://OWNER/NAME, perhaps with @REVISION")
    hub, constants = require("huggingface_hub", EXTRA), require("huggingface_hub.constants", EXTRA)
    folder = cache_folder() / "hub" / "--".join(re.split("[/@]", address.removeprefix(HUB_SCHEME)))
    problem = connection_problem(constants.ENDPOINT) or answer_problem(hub, model)
    if problem is None:
        try:
            hub.snapshot_download(
                model, revision=revision or None, local_dir=str(folder), allow_patterns=list(SAFE_PATTERNS)
            )
        except Exception as error:  # the client's HTTP library, and so its exceptions, differ between versions
            problem = error
    if problem is not None and not folder.is_dir():
        raise CheckpointError(
            f"{address}: the download failed ({_first_line(problem)}); connect to the network, or give the path of a "
            "folder that holds the files"
        ) from problem
    return folder


def download_release(
    model: str, address: str, folder: Path, max_bytes: int, *, name: str | None = None, progress: bool = False
) -> Path:
    """A file of a release of `model`, whole or not at all, under `name` (default: its own) in `folder`; fetched once.

    `progress` shows the download on standard error.  Raises CheckpointError where it cannot be fetched, or is larger
    than `max_bytes`.
    """
    from urllib import request  # imports ssl, which takes a while

    path = folder / (name or address.rpartition("/")[2])
    if path.is_file():
        return path
    try:
        if (problem := connection_problem(address)) is not None:
            raise problem
        with (
            request.urlopen(address, timeout=NETWORK_SECONDS) as answer,
            atomic_path(path, CheckpointError) as partial,
            partial.open("wb") as file,
            shown(answer, path.name) if progress else nullcontext(answer) as source,
        ):
            while block := source.read(2**20):
                file.write(block)
                if file.tell() > max_bytes:
                    raise OSError("it is far larger than the published file")
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{model}: the download of {address} failed ({error}); connect to the network, or fetch the files of the "
            "release elsewhere and run `marstts convert`"
        ) from error
    return path


def shown(answer: Any, name: str) -> Any:
    """A context of the answer of a server, whose reading is shown on standard error."""
    from rich.console import Console
    from rich.progress import wrap_file

    size = getattr(answer, "length", None)
    return wrap_file(answer, total=size or 0, description=printable_text(name), console=Console(stderr=True))


@contextmanager
def _offline(constants: Any) -> Iterator[None]:
    """Keep the hub's client off the network: while it looks into its cache, it fetches a list for its user agent."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def connection_problem(address: str) -> Exception | None:
    """The error of connecting to the server of a URL, or its proxy, within NETWORK_SECONDS; None if it works."""
    from urllib import request  # 0.06 s, since it imports ssl

    url = urlsplit(address)
    proxy = request.getproxies().get(url.scheme)
    if proxy and not request.proxy_bypass(url.hostname or ""):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    target = (url.hostname or "", url.port or (443 if url.scheme == "https" else 80))
    return problem_in_time(target[0], lambda: socket.create_connection(target, timeout=NETWORK_SECONDS).close())


def problem_in_time(server: str, attempt: Callable[[], object]) -> Exception | None:
    """The error of an attempt, which has NETWORK_SECONDS and a little more; None if it succeeds."""
    outcome: list[Exception | None] = []

    def run() -> None:
        try:
            attempt()
            outcome.append(None)
        except Exception as error:  # the client's HTTP library, and so its exceptions, differ between versions
            outcome.append(error)

    thread = Thread(target=run, daemon=True)  # looking up a name, and an answer byte by byte, have no time limit
    thread.start()
    thread.join(1.5 * NETWORK_SECONDS)  # the client's own limit comes first where it has one
    return outcome[0] if outcome else TimeoutError(f"{server} did not answer within {NETWORK_SECONDS:g} s")


def answer_problem(hub: Any, model: str) -> Exception | None:
    """The error of asking the hub for the description of a model, once, within NETWORK_SECONDS; None if it answers.

    Where a server accepts connections and then is silent, the client would retry each download for minutes.
    """
    return problem_in_time("the hub", lambda: hub.HfApi().model_info(model, timeout=NETWORK_SECONDS))


def fingerprint(path: Path, expected_sha256: str | None = None) -> str:
    """SHA-256 of a file in hexadecimal; raises CheckpointError if it differs from the expected one."""
    digest = hashlib.sha256()
    with open_regular(path, MAX_WEIGHTS_BYTES, CheckpointError) as file, os_errors(path, "be read", CheckpointError):
        while block := file.read(2**20):
            digest.update(block)
    found = digest.hexdigest()
    if expected_sha256 is not None and found != expected_sha256.lower():
        raise CheckpointError(
            f"{printable_name(path)}: expected weights with SHA-256 {expected_sha256}, but these have {found}; "
            "download them again"
        )
    return found


def short_name(kind: str, sha256: str) -> str:
    """Name of an adapter: its kind and the first digits of its weights' hash."""
    return f"{kind}-{sha256[:12]}"


def read_tensors(path: Path) -> dict[str, Any]:
    """The content of a safetensors or PyTorch file (a state dict, or a dictionary that holds one), on the CPU.

    PyTorch files hold tensors and plain data alone: one that names a class is refused, and nothing in it is run. Raises
    CheckpointError where the file is something else.
    """
    name = printable_name(path)
    open_regular(path, MAX_WEIGHTS_BYTES, CheckpointError).close()
    if path.suffix == ".safetensors":
        try:
            return require("safetensors.torch", EXTRA).load_file(str(path))
        except (safetensors.SafetensorError, RuntimeError, ValueError, OSError, LookupError, TypeError) as error:
            raise CheckpointError(f"{name}: expected weights (safetensors), but: {_first_line(error)}") from error

    def refuse(module: str, kind: str) -> None:
        raise CheckpointError(
            f"{name}: expected weights alone, but it names {printable_text(f'{module}.{kind}', 100)}, and nothing in a "
            "file is run here; save its tensors as safetensors on a machine that may trust it"
        )

    content = read_torch_archive(path, refuse)
    if not isinstance(content, dict):
        raise CheckpointError(f"{name}: expected a PyTorch state dict, but it holds a {type(content).__name__}")
    return content


def read_metadata(path: Path) -> dict[str, str]:
    """The strings in the header of a safetensors file; CheckpointError where it is none."""
    try:
        with safetensors.safe_open(path, "numpy") as file:
            return file.metadata() or {}
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{printable_name(path)}: expected a safetensors file, but {error}") from error


def load_strictly(module: Any, tensors: dict[str, Tensor], source: Path) -> None:
    """Load a state dict whole or not at all; raises CheckpointError naming what does not fit."""
    try:
        module.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        first_complaints = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{source}: these weights belong to another model: {first_complaints}") from error


def _first_line(error: Exception | None) -> str:
    """The first line of a library's message, without its colors."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return printable_text(lines[0]) if lines else type(error).__name__


# Descriptions that codecs and speaker encoders share in `bundle.json`.


class MiniPart(Config):
    """A codec or speaker encoder trained with this package, in a folder of the bundle."""

    kind: Literal["mini"] = "mini"


class PublishedPart(Config):
    """Weights published by other authors."""

    source: str
    """A file, a folder or a name on the hub."""

    sha256: str | None = None
    """Refuse any other weights."""


def toy_size(name: str, default: int) -> int | None:
    """Size N of "toy:N", the default for "toy", None for any other name."""
    kind, _, size = name.partition(":")
    if kind != "toy":
        return None
    if not size:
        return default
    return int(size) if size.isdecimal() and len(size) <= 5 and 0 < int(size) <= 2**16 else None
