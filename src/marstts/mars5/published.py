"""The published checkpoints as a bundle: the model called `mars5-english`.

Upstream: `checkpoint.load_released`, which reads the files.  Downstream: `models`, which opens the bundle.
It is fetched, checked and converted once, into the user's cache; afterward no network is needed but for EnCodec and
Vocos, which have another cache.
"""

from __future__ import annotations

from pathlib import Path

from marstts.bundle import TOKENIZER_FILE, BundleInfo, check_name, is_current, model_folder, new_bundle, part_config
from marstts.codec.registry import CodecPart, EncodecPart
from marstts.mars5 import checkpoint
from marstts.mars5.bundled import Mars5Settings
from marstts.mars5.config import Mars5Config
from marstts.weights.pretrained import cache_folder, find_file

NAME = "mars5-english"

HUB_MODEL = "CAMB-AI/MARS5-TTS"
AR_FILES, NAR_FILES = ("mars5_ar.safetensors",), ("mars5_nar.safetensors",)


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


def fetch() -> tuple[Path, Path]:
    """The files of AR and NAR on the hub, from its client's cache if they are there."""
    return find_file(HUB_MODEL, AR_FILES), find_file(HUB_MODEL, NAR_FILES)


def cached_bundle(*, onnx: bool) -> Path:
    """The folder of the published model in the user's cache, fetched and converted if it is not there yet.

    `onnx` makes no difference: PyTorch runs it.  Raises CheckpointError where the
    download is refused.
    """
    folder = cache_folder() / NAME
    if not is_current(folder):
        convert(*fetch(), folder)
    return folder
