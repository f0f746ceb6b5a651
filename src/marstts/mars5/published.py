"""The published checkpoints as a bundle: the model called `mars5-english`.

Upstream: `checkpoint.load_released`, which reads the files.  Downstream: `models`, which opens the bundle.
It is fetched, checked and converted once, into the user's cache; afterward no network is needed but for EnCodec and
Vocos, which have another cache.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from marstts.bundle import TOKENIZER_FILE, BundleInfo, check_name, is_current, model_folder, new_bundle, part_config
from marstts.codec.base import CodecSpec
from marstts.codec.registry import CodecPart, EncodecPart, open_codec
from marstts.mars5 import checkpoint
from marstts.mars5.bundled import Mars5Settings, check_fit
from marstts.mars5.config import Mars5Config
from marstts.mars5.examined import RECORDED, digests, examine
from marstts.mars5.likelihood import log_likelihoods
from marstts.text.tokenizers.bpe import BPE
from marstts.weights.examination import AS_RELEASE_REMEDY, Finding, refuse
from marstts.weights.pretrained import PublishedPart, cache_folder, download_release, find_file, hub_progress
from marstts.weights.published_checkpoint import check_file
from marstts.weights.release_record import digest_findings, likelihood_findings, read_record

logger = logging.getLogger(__name__)

NAME = "mars5-english"

HUB_MODEL = "CAMB-AI/MARS5-TTS"
AR_FILES, NAR_FILES = ("mars5_ar.safetensors",), ("mars5_nar.safetensors",)

RELEASES = "https://github.com/Camb-ai/MARS5-TTS/releases/download/"
AR_PICKLE, NAR_PICKLE = "v0.4/mars5_en_checkpoints_ar-3000000.pt", "v0.3/mars5_en_checkpoints_nar-1980000.pt"
"""The files of the release in PyTorch's format; the hub has others, as safetensors."""

MAX_DOWNLOAD_BYTES = 8 * 2**30

CODEC = CodecSpec(name="encodec", sample_rate=24_000, codebook_size=1024, hop_lengths=(320,) * 8)
"""Geometry of the published codec, which is not opened to compare it."""

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
    as_release: bool = False,
) -> Mars5Config:
    """Write a bundle with the published models, and return their sizes; what is unusual in the files is logged.

    The profile is the release's, until somebody has compared both with these weights. The codec is EnCodec with Vocos
    unless another is given, which must fit.  Head counts: None = width / 64, as published.  Nothing is written where
    an input is refused (CheckpointError); `as_release` also refuses what differs from what is recorded of the release.
    """
    check_name(name)
    codec = codec or EncodecPart()
    models, findings = load_examined(ar, nar, ar_heads=ar_heads, nar_heads=nar_heads, as_release=as_release)
    spec = CODEC if isinstance(codec, PublishedPart) else open_codec(codec).spec
    check_fit(name, models.config, models.vocabulary.text, spec, {})
    for finding in findings:
        logger.warning("%s", finding)
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


def load_examined(
    ar: Path, nar: Path, *, ar_heads: int | None = None, nar_heads: int | None = None, as_release: bool
) -> tuple[checkpoint.Models, list[Finding]]:
    """The models of two files that were examined, and what is unusual in them.

    Raises CheckpointError where a file is broken, or with `as_release` differs from the release, or from the record of
    it where there is one.
    """
    hashes = [check_file(path, None) for path in (ar, nar)]
    heads = {"ar_heads": ar_heads or RECORDED.ar_heads, "nar_heads": nar_heads or RECORDED.nar_heads}
    findings = examine(ar, nar, replace(RECORDED, ar_heads=heads["ar_heads"], nar_heads=heads["nar_heads"]))
    refuse(findings, as_release=as_release, remedy=AS_RELEASE_REMEDY if as_release else "")
    models = checkpoint.load_released(ar, nar, digests=hashes, **heads)
    if as_release and (record := read_record(NAME)) is not None:
        findings += digest_findings(NAME, digests(ar, nar), record)
        found = log_likelihoods(models, models.vocabulary.text, record.sequence)
        findings += likelihood_findings(NAME, found, record)
        refuse(findings, as_release=True, remedy=AS_RELEASE_REMEDY)
    return models, findings


def load(ar: Path, nar: Path) -> tuple[checkpoint.Models, BPE]:
    """The models in two files and their text tokenizer."""
    models = checkpoint.load_released(ar, nar, ar_heads=RECORDED.ar_heads, nar_heads=RECORDED.nar_heads)
    return models, models.vocabulary.text


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
    if not is_current(folder):
        convert(*fetch(), folder, as_release=True)
    return folder
