"""The published checkpoints as a bundle: the model called `mars5-english`.

Upstream: `checkpoint.load_released`, which reads the files.  Downstream: `models`, which opens the bundle.
It is fetched, checked and converted once, into the user's cache; afterward no network is needed but for EnCodec and
Vocos, which have another cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marstts.bundle import BUNDLE_FILE, TOKENIZER_FILE, BundleInfo, check_name, model_folder, new_bundle, part_config
from marstts.codec.registry import CodecPart, EncodecPart
from marstts.mars5 import checkpoint
from marstts.mars5.bundled import Mars5Settings
from marstts.mars5.config import Mars5Config
from marstts.weights.pretrained import cache_folder, download_release, find_file, hub_progress

NAME = "mars5-english"

HUB_MODEL = "CAMB-AI/MARS5-TTS"
AR_FILES, NAR_FILES = ("mars5_ar.safetensors",), ("mars5_nar.safetensors",)

RELEASES = "https://github.com/Camb-ai/MARS5-TTS/releases/download/"
AR_PICKLE, NAR_PICKLE = "v0.4/mars5_en_checkpoints_ar-3000000.pt", "v0.3/mars5_en_checkpoints_nar-1980000.pt"
"""The files of the release in PyTorch's format; the hub has others, as safetensors."""

MAX_DOWNLOAD_BYTES = 8 * 2**30

REMEDY = (
    f"fetch {AR_FILES[0]} and {NAR_FILES[0]} of {HUB_MODEL} elsewhere, run `marstts convert {AR_FILES[0]} "
    f"--nar {NAR_FILES[0]} --output mars5`, and speak with --model ./mars5"
)
"""What to do on a machine without a network."""


def convert(
    ar: Path,
    nar: Path,
    folder: Path,
    *,
    name: str = NAME,
    codec: Path | CodecPart | None = None,
    ar_heads: int | None = None,
    nar_heads: int | None = None,
) -> Mars5Config:
    """Write a bundle with the published models, and return their sizes.

    The profile is the release's, until somebody has compared both with these weights. The codec is EnCodec with Vocos
    unless another is given; it is not opened.  Head counts: None = width / 64, as published.  Nothing is written where
    an input is refused (CheckpointError).
    """
    check_name(name)
    models = checkpoint.load_released(ar, nar, ar_heads=ar_heads, nar_heads=nar_heads)
    codec = codec or EncodecPart()
    info = BundleInfo(
        name=name,
        architecture="mars5",
        settings=Mars5Settings(profile="released").model_dump(mode="json"),
        codec=part_config(codec),
        encoders={},
    )
    with new_bundle(folder, info, codec, {}) as temporary:
        models.vocabulary.text.save(temporary / TOKENIZER_FILE)
        checkpoint.write_models(models, model_folder(temporary, info))
    return models.config


def find_released(source: Path | str, *, progress: bool = True, **options: Any) -> tuple[Path, Path]:
    """The safetensors files of AR and NAR in a folder or on the hub, from its client's cache if they are there.

    `progress` shows downloads on standard error; `options` are `weights.pretrained.find_file`'s.
    """
    with hub_progress(progress):
        return find_file(source, AR_FILES, **options), find_file(source, NAR_FILES, **options)


def download_pickles(progress: bool = True) -> tuple[Path, Path]:
    """The release's `.pt` files of AR and NAR; each is fetched once."""
    folder = cache_folder() / "downloads"
    ar, nar = (
        download_release(NAME, RELEASES + name, folder, MAX_DOWNLOAD_BYTES, progress=progress)
        for name in (AR_PICKLE, NAR_PICKLE)
    )
    return ar, nar


def fetch() -> tuple[Path, Path]:
    """The files of AR and NAR on the hub, from its client's cache if they are there."""
    return find_released(HUB_MODEL, remedy=REMEDY)


def cached_bundle(*, onnx: bool) -> Path:
    """The folder of the published model in the user's cache, fetched and converted if it is not there yet.

    `onnx` makes no difference: PyTorch runs it.  Raises CheckpointError where the
    download is refused.
    """
    folder = cache_folder() / NAME
    if not (folder / BUNDLE_FILE).is_file():
        convert(*fetch(), folder)
    return folder
