"""The published checkpoint as a bundle: `marstts convert`, and the model called `mars6-turbo`.

Upstream: `released` and `text.tokenizers.minbpe`, which read the files.  Downstream: `models`, which opens the bundle.

`mars6-turbo` is downloaded, checked and converted once, into the user's cache; afterward no network is needed but for
the published codec and speaker encoders, which have other caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from marstts.bundle import (
    BUNDLE_FILE,
    CODEC_FOLDER,
    PUBLISHED,
    TOKENIZER_FILE,
    BundleInfo,
    check_name,
    model_folder,
    new_bundle,
    part_config,
)
from marstts.codec.registry import CodecPart, SnacPart, add_snac_graphs
from marstts.errors import require
from marstts.io.precision import WeightFormat
from marstts.mars6.bundled import Mars6Settings, find_alignment, write_model, write_weights
from marstts.mars6.config import IDENTITY, STYLE, Mars6Config
from marstts.mars6.released import load_released
from marstts.mars6.spelling import Spelling
from marstts.speaker.registry import ClapPart, EncoderPart, WavLmPart
from marstts.text.tokenizers.minbpe import read_minbpe
from marstts.weights.pretrained import EXTRA, cache_folder, download_release

TURBO = PUBLISHED[0]
"""The name under which the authors' model is loaded."""

RELEASE = "https://github.com/Camb-ai/mars6-turbo/releases/download/v0.1/"
CHECKPOINT_NAME, TOKENIZER_NAME = "model-2000100.pt", "eng-tok-512.model"

MAX_DOWNLOAD_BYTES = 2 * 2**30
"""The published checkpoint has 67 M parameters: a quarter of a gigabyte in single precision."""


class Converted(NamedTuple):
    """Result of a conversion."""

    config: Mars6Config
    """Sizes of the model."""

    sha256: str
    """SHA-256 of the checkpoint."""

    without_codec: str | None
    """Reason why graphs of the codec are missing."""


def convert(
    checkpoint: Path,
    tokenizer: Path,
    folder: Path,
    *,
    onnx: bool = False,
    weights: WeightFormat | None = None,
    name: str = TURBO,
    sha256: str | None = None,
    codec: Path | CodecPart | None = None,
    encoders: Mapping[str, Path | EncoderPart] | None = None,
) -> Converted:
    """Write a bundle with the published model.

    With `onnx` it has graphs that run without PyTorch, their weights in this format; by default in float16 where
    nothing is lost by it, else in float32. Codec and encoders (by role) are the published ones unless others are given.
    None is opened, so none is downloaded, except for SNAC, which is exported as graphs, too, where it is available.
    Nothing is written where an input is refused (CheckpointError); an older bundle is replaced only at the end.
    """
    require("torch", EXTRA)
    check_name(name)
    released = load_released(checkpoint, sha256)
    model = released.model
    vocabulary = read_minbpe(tokenizer, model.config.text_vocab_size)
    find_alignment(model, vocabulary)
    codec = codec or SnacPart()
    encoders = {IDENTITY: WavLmPart(), STYLE: ClapPart(), **(encoders or {})}
    info = BundleInfo(
        name=name,
        architecture="mars6",
        settings=Mars6Settings(spelling=Spelling.EM_DASHES).model_dump(),
        codec=part_config(codec),
        encoders={role: part_config(part) for role, part in encoders.items()},
    )
    with new_bundle(folder, info, codec, encoders) as temporary:
        vocabulary.save(temporary / TOKENIZER_FILE)
        if not onnx:
            write_weights(model, model_folder(temporary, info))
            return Converted(model.config, released.sha256, None)
        from marstts.onnx.export import lossless_format  # for conversion only

        write_model(model, model_folder(temporary, info), weights or lossless_format(model))
        reason = add_snac_graphs(info.codec, temporary / CODEC_FOLDER)
    return Converted(model.config, released.sha256, reason)


def cached_bundle(*, onnx: bool) -> Path:
    """The folder of the authors' model in the user's cache, downloaded and converted if it is not there yet.

    With `onnx` it is the one that runs without a GPU: graphs, in int8. Raises CheckpointError with the remedy by
    hand, where the download is refused.
    """
    folder = cache_folder() / (f"{TURBO}-{WeightFormat.INT8.value}" if onnx else TURBO)
    if (folder / BUNDLE_FILE).is_file():
        return folder
    convert(*fetch(), folder, onnx=onnx, weights=WeightFormat.INT8 if onnx else None)
    return folder


def fetch() -> tuple[Path, Path]:
    """Checkpoint and tokenizer of the release; each is fetched once."""
    downloads = cache_folder() / "downloads"
    return download(CHECKPOINT_NAME, downloads), download(TOKENIZER_NAME, downloads)


def download(name: str, folder: Path) -> Path:
    """A file of the authors' release, whole or not at all; fetched once."""
    return download_release(TURBO, RELEASE + name, folder, MAX_DOWNLOAD_BYTES)
