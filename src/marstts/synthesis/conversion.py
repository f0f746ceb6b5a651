"""From the authors' files to a bundle that speaks here: `marstts convert`, and the model called `mars6-turbo`.

Upstream: `mars6.released` and `text.minbpe`, which read the files.  Downstream: `loading`, which opens the bundle.

`mars6-turbo` is downloaded, checked and converted once, into the user's cache; afterwards no network is needed but for
the published codec and speaker encoders, which have caches of their own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, NamedTuple

from marstts.checkpoint import (
    BUNDLE_FILE,
    CODEC_FOLDER,
    CONFIG_FILE,
    MODEL_FOLDER,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    BundleInfo,
    ClapPart,
    CodecPart,
    EncoderPart,
    SnacPart,
    WavLmPart,
    add_snac_graphs,
    copy_files,
    describe,
    replacing,
    write_mars6,
)
from marstts.config import write_config
from marstts.errors import CheckpointError, require
from marstts.mars6.config import Mars6Config
from marstts.mars6.quantise import Precision
from marstts.pretrained import EXTRA
from marstts.text.minbpe import read_minbpe

TURBO = "mars6-turbo"
"""The name under which the authors' model is loaded."""

RELEASE = "https://github.com/Camb-ai/mars6-turbo/releases/download/v0.1/"
CHECKPOINT_NAME, TOKENIZER_NAME = "model-2000100.pt", "eng-tok-512.model"

MAX_DOWNLOAD_BYTES = 2 * 2**30
"""The published checkpoint has 67 M parameters: a quarter of a gigabyte in single precision."""

DOWNLOAD_TIMEOUT_SECONDS = 30.0

CACHE_VARIABLE = "MARSTTS_CACHE"
"""Says where converted models are kept, if not in the user's cache folder."""


class Converted(NamedTuple):
    """What is worth telling of a conversion."""

    config: Mars6Config
    """Sizes of the model."""

    sha256: str
    """Of the checkpoint."""

    without_codec: str | None
    """Why there are no graphs of the codec, where there should be."""


def convert(
    checkpoint: Path,
    tokenizer: Path,
    folder: Path,
    *,
    onnx: bool = False,
    precision: Precision = Precision.FLOAT32,
    name: str = TURBO,
    sha256: str | None = None,
    codec: Path | CodecPart | None = None,
    identity: Path | EncoderPart | None = None,
    style: Path | EncoderPart | None = None,
) -> Converted:
    """Write a bundle with the published model.

    With `onnx` it has graphs that run without PyTorch, at this precision; float32 weights are stored as they are, in
    half precision where nothing is lost by it. The neighbours are the published ones unless others are given. None is
    opened, so none is downloaded, but for SNAC, of which graphs are made, too, if it can be had.
    Nothing is written where an input is refused (CheckpointError), and an older bundle is replaced only at the end.
    """
    require("torch", EXTRA)
    from safetensors.torch import save_file

    from marstts.mars6.released import load_released

    released = load_released(checkpoint, sha256)
    model = released.model
    vocabulary = read_minbpe(tokenizer, model.config.text_vocab_size)
    parts = {"codec": codec or SnacPart(), "identity": identity or WavLmPart(), "style": style or ClapPart()}
    info = BundleInfo(name=name, **{role: describe(part) for role, part in parts.items()})
    with replacing(folder) as temporary:
        for role, part in parts.items():
            if isinstance(part, Path):
                copy_files(part, temporary / role)
        vocabulary.save(temporary / TOKENIZER_FILE)
        write_config(info, temporary / BUNDLE_FILE)
        target = temporary / MODEL_FOLDER
        reason = None
        if onnx:
            from marstts.mars6.graphs import lossless_storage

            write_mars6(model, target, precision, lossless_storage(model))
            reason = add_snac_graphs(info.codec, temporary / CODEC_FOLDER)
        else:
            target.mkdir()
            save_file({key: tensor.contiguous() for key, tensor in model.state_dict().items()}, target / WEIGHTS_FILE)
            write_config(model.config, target / CONFIG_FILE)
            (target / WEIGHTS_FILE).chmod(0o644)  # safetensors writes for the owner's eyes only
    return Converted(model.config, released.sha256, reason)


def turbo_bundle(*, onnx: bool) -> Path:
    """The folder of the authors' model in the user's cache, downloaded and converted if it is not there yet.

    With `onnx` it is the one that runs without a GPU: graphs, in int8. Raises CheckpointError, saying what to do by
    hand, where the download is refused.
    """
    folder = cache_folder() / (f"{TURBO}-{Precision.INT8.value}" if onnx else TURBO)
    if (folder / BUNDLE_FILE).is_file():
        return folder
    downloads = cache_folder() / "downloads"
    checkpoint, tokenizer = (download(name, downloads) for name in (CHECKPOINT_NAME, TOKENIZER_NAME))
    convert(checkpoint, tokenizer, folder, onnx=onnx, precision=Precision.INT8 if onnx else Precision.FLOAT32)
    return folder


def cache_folder() -> Path:
    """Where converted models are kept."""
    chosen = os.environ.get(CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(base) / "marstts"


def download(name: str, folder: Path) -> Path:
    """A file of the authors' release, whole or not at all; fetched once."""
    import urllib.request  # slow, and seldom needed

    path = folder / name
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{name}.partial")
    try:
        with urllib.request.urlopen(RELEASE + name, timeout=DOWNLOAD_TIMEOUT_SECONDS) as answer:
            save_stream(answer, partial)
        os.replace(partial, path)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{TURBO}: the download of {RELEASE}{name} failed ({error}); connect to the network, or fetch "
            f"{CHECKPOINT_NAME} and {TOKENIZER_NAME} elsewhere and run `marstts convert`"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def save_stream(stream: BinaryIO, path: Path) -> None:
    """Write what comes to a file; raises OSError where it is far too much."""
    size = 0
    with path.open("wb") as file:
        while block := stream.read(2**20):
            size += len(block)
            if size > MAX_DOWNLOAD_BYTES:
                raise OSError("it is far larger than the published file")
            file.write(block)
