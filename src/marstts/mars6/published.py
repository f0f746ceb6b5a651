"""The published checkpoint as a bundle: `marstts convert`, and the model called `mars6-turbo`.

Upstream: `examined`, which looks for faults, and `released`, which reads the files.  Downstream: `models`.
`mars6-turbo` is downloaded, examined and converted once, into the user's cache; afterward no network is needed but for
the published codec and speaker encoders, which have other caches.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from marstts.bundle import (
    PUBLISHED,
    TOKENIZER_FILE,
    BundleInfo,
    check_name,
    is_current,
    model_folder,
    new_bundle,
    part_config,
)
from marstts.codec.base import CodecSpec
from marstts.codec.registry import CodecPart, SnacPart, open_codec
from marstts.errors import require
from marstts.io.precision import WeightFormat
from marstts.mars6.bundled import Mars6Settings, check_fit, find_alignment, write_model, write_weights
from marstts.mars6.config import IDENTITY, STYLE, Mars6Config
from marstts.mars6.examined import RECORDED, digests, examine
from marstts.mars6.released import ReleasedModel, load_released
from marstts.mars6.spelling import Spelling
from marstts.speaker.registry import ClapPart, EncoderPart, WavLmPart, open_encoder
from marstts.text.tokenizers.bpe import BPE
from marstts.text.tokenizers.minbpe import read_minbpe
from marstts.weights.examination import AS_RELEASE_REMEDY, Finding, Kind, refuse
from marstts.weights.pretrained import EXTRA, PublishedPart, cache_folder, download_release
from marstts.weights.published_checkpoint import check_file
from marstts.weights.release_record import digest_findings, likelihood_findings, read_record

if TYPE_CHECKING:
    from marstts.mars6.model import Mars6

logger = logging.getLogger(__name__)

TURBO = PUBLISHED[0]
"""The name under which the authors' model is loaded."""

CODEC = CodecSpec(name="snac", sample_rate=24_000, codebook_size=4096, hop_lengths=(2048, 1024, 512))
ENCODER_SIZES = {IDENTITY: 512, STYLE: 1024}
"""Geometry of the published codec, and of WavLM's and CLAP's embeddings, which are not opened to compare them."""

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
    as_release: bool = False,
) -> Converted:
    """Write a bundle with the published model, whose files are examined first; what is unusual in them is logged.

    With `onnx` it has graphs that run without PyTorch, their weights in this format; by default in float16 where
    nothing is lost by it, else in float32. Codec and encoders (by role) are the published ones unless others are given.
    Published ones are not opened, so none is downloaded; others must fit the model. Nothing is written where an input
    is refused (CheckpointError); an older bundle is replaced only at the end. `as_release` also refuses what differs
    from what is recorded of the release.
    """
    require("torch", EXTRA)
    check_name(name)
    codec = codec or SnacPart()
    encoders = {IDENTITY: WavLmPart(), STYLE: ClapPart(), **(encoders or {})}
    released, vocabulary, findings = load_examined(checkpoint, tokenizer, sha256, as_release=as_release)
    model = released.model
    findings += check_parts(name, model.config, vocabulary, codec, encoders)
    for finding in findings:
        logger.warning("%s", finding)
    find_alignment(model, vocabulary)
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
            return Converted(model.config, released.sha256)
        from marstts.onnx.export import lossless_format  # for conversion only

        write_model(model, model_folder(temporary, info), weights or lossless_format(model))
    return Converted(model.config, released.sha256)


def load_examined(
    checkpoint: Path, tokenizer: Path, sha256: str | None = None, *, as_release: bool
) -> tuple[ReleasedModel, BPE, list[Finding]]:
    """Model and tokenizer of two files that were examined, and what is unusual in them.

    Raises CheckpointError where a file is broken, or with `as_release` differs from the release, or from the record of
    it where there is one.
    """
    from marstts.mars6.likelihood import log_likelihoods  # needs PyTorch

    digest = check_file(checkpoint, sha256)
    findings = examine(checkpoint, tokenizer, RECORDED)
    refuse(findings, as_release=as_release, remedy=AS_RELEASE_REMEDY if as_release else "")
    released = load_released(checkpoint, digest)
    vocabulary = read_minbpe(tokenizer, released.model.config.text_vocab_size)
    if as_release and (record := read_record(TURBO)) is not None:
        findings += digest_findings(TURBO, digests(checkpoint, tokenizer), record)
        found = log_likelihoods(released.model, vocabulary, record.sequence)
        findings += likelihood_findings(TURBO, found, record)
        refuse(findings, as_release=True, remedy=AS_RELEASE_REMEDY)
    return released, vocabulary, findings


def load(checkpoint: Path, tokenizer: Path) -> tuple[Mars6, BPE]:
    """The model in a published file, and its tokenizer."""
    model = load_released(checkpoint).model
    return model, read_minbpe(tokenizer, model.config.text_vocab_size)


@dataclass(frozen=True)
class UnopenedEncoder:
    """The name and length of an encoder that is not opened."""

    name: str
    size: int


def check_parts(
    name: str,
    config: Mars6Config,
    vocabulary: BPE,
    codec: Path | CodecPart,
    encoders: Mapping[str, Path | EncoderPart],
) -> list[Finding]:
    """Compare codec and encoders with the model; what is published is not opened, but known.

    Raises CheckpointError where they do not fit; returns what differs from the release.
    """
    spec = CODEC if isinstance(codec, PublishedPart) else open_codec(codec).spec
    opened: dict[str, Any] = {
        role: UnopenedEncoder(part.source, ENCODER_SIZES[role])
        if isinstance(part, PublishedPart) and role in ENCODER_SIZES
        else open_encoder(part, role)
        for role, part in encoders.items()
    }
    check_fit(name, config, vocabulary, spec, cast(Any, opened))
    if spec.sample_rate == CODEC.sample_rate:
        return []
    found, remedy = f"{spec.sample_rate} Hz", "give the codec that the model was trained with"
    return [Finding(f"codec {spec.name}", f"{CODEC.sample_rate} Hz", found, remedy, Kind.DIFFERENCE)]


def cached_bundle(*, onnx: bool) -> Path:
    """The folder of the authors' model in the user's cache, downloaded and converted if it is not there yet.

    With `onnx` it is the one that runs without a GPU: graphs, in int8. Raises CheckpointError with the remedy by
    hand, where the download is refused.
    """
    folder = cache_folder() / (f"{TURBO}-{WeightFormat.INT8.value}" if onnx else TURBO)
    if is_current(folder):
        return folder
    convert(*fetch(), folder, onnx=onnx, weights=WeightFormat.INT8 if onnx else None, as_release=True)
    return folder


def fetch() -> tuple[Path, Path]:
    """Checkpoint and tokenizer of the release; each is fetched once."""
    downloads = cache_folder() / "downloads"
    return download(CHECKPOINT_NAME, downloads), download(TOKENIZER_NAME, downloads)


def download(name: str, folder: Path) -> Path:
    """A file of the authors' release, whole or not at all; fetched once."""
    return download_release(TURBO, RELEASE + name, folder, MAX_DOWNLOAD_BYTES)
